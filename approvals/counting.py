"""Counts what was planned before an effect, as a rule's rate asks. Each question costs at most two index ranges."""

from typing import Final
from uuid import UUID

from approvals.matching import Counted, Rate
from approvals.states import US
from journal.models import Entry
from ledger.models import Effect

_SLACK_US: Final = 60 * US  # by how much positions and the server's clock may disagree about what came first


def counter(project: UUID, agent: UUID, session: UUID, tool: str, at_us: int, before: int | None = None) -> Counted:
    """A function that counts the effects planned before this one, up to `rate.over` of them.

    `at_us` is the moment at which the rate's window ends; `before` the effect's own position where it is in the book
    already, so that neither it nor what came later counts.
    """

    def counted(rate: Rate) -> int:
        rows = Effect.objects.filter(project=project)
        if rate.per in ("session", "session_effects"):
            rows = rows.filter(session=session)
        if rate.per == "agent":
            rows = rows.filter(agent=agent)
        if rate.per in ("tool", "agent", "session"):
            rows = rows.filter(tool=tool)
        if before is not None:
            rows = rows.filter(opened_position__lt=before)
        if rate.within_s:
            since = at_us - rate.within_s * US
            rows = rows.filter(opened_position__gt=position_at(since - _SLACK_US), received_us__gt=since)
        return rows.order_by("-opened_position")[: rate.over].count()

    return counted


def position_at(at_us: int) -> int:
    """The last position received before a moment, 0 for none: whatever came later stands above it."""
    found = Entry.objects.filter(received_us__lt=at_us).order_by("-received_us").values_list("position", flat=True)
    return found.first() or 0
