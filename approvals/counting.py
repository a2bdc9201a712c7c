"""Counts what was planned before an effect, as a rule's rate asks. Each question costs at most two index ranges."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from django.db import connection

from approvals.matching import SAME_CALL, Compiled, Counted, Rate
from approvals.states import US
from journal import sql
from journal.models import Entry
from ledger import same_calls
from ledger.models import Effect

_SLACK_US: Final = (
    60 * US
)  # by how much positions and the server's clock may disagree about what came first
# Rates per one of these count plans that the lock of a session does not keep apart.
_BEYOND_SESSION: Final = frozenset({"tool", "agent", "project"})
_PER: Final = (*sorted(_BEYOND_SESSION), "session", "session_effects")
_LOCK: Final = (
    0x6762  # keeps our advisory locks apart from others'; 0x6761 is that of stops (ledger/holds.py)
)
_Alike = tuple[tuple[str, UUID | str], ...]


def alone(project: UUID, compiled: Compiled, tools: Iterable[str]) -> None:
    """Where a rate beyond one session might count plans of these tools, wait for whoever else plans under one.

    They count what we plan and we what they planned, so no two pass one limit at once; kept until the transaction ends.
    Call it with the rows of sessions locked and before those of effects, as every plan does: then nobody waits round.
    """
    if connection.vendor == "postgresql" and any(
        rate.per in _BEYOND_SESSION
        for tool in set(tools)
        for rule in compiled.of(tool)
        for rate in rule.rates
    ):  # SQLite has one writer at a time
        number = int.from_bytes(project.bytes[-4:], "big", signed=True)
        sql.rows("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, number])


def counter(
    project: UUID,
    agent: UUID,
    session: UUID,
    tool: str,
    at_us: int,
    before: int | None = None,
    *,
    intent: str,
) -> Counted:
    """A function that counts the effects planned before this one, up to `rate.over` of them.

    `at_us` is the moment at which the rate's window ends; `before` the effect's own position where it is in the book
    already, so that neither it nor what came later counts.
    """

    def counted(rate: Rate) -> int:
        if rate == SAME_CALL:
            return len(same_calls.unknown(project, session, tool, intent, most=1))
        return _stored(
            project, rate, _alike(rate.per, agent, session, tool), at_us, before, position_at
        )

    return counted


class Before(NamedTuple):
    """What was planned before an effect: in the book below its position, or all of it; and by the same batch."""

    position: int | None
    planned: Counter[tuple[str, _Alike]]


class Tally:
    """Counts for all plans that one agent reports at once: the book is asked each question once, and they count too."""

    def __init__(self, project: UUID, agent: UUID, at_us: int) -> None:
        self._project, self._agent, self._at_us = project, agent, at_us
        self._stored: dict[tuple[Rate, _Alike, int | None], int] = {}
        self._positions: dict[int, int] = {}
        self._planned: Counter[tuple[str, _Alike]] = Counter()

    def counter(
        self, session: UUID, tool: str, before: Before | None = None, *, intent: str
    ) -> Counted:
        """A function that counts what was planned before the next of them, or `before` it where it was told already."""
        position, planned = before or Before(None, self._planned)

        def counted(rate: Rate) -> int:
            if rate == SAME_CALL:
                return len(same_calls.unknown(self._project, session, tool, intent, most=1))
            alike = _alike(rate.per, self._agent, session, tool)
            asked = (rate, alike, position)
            if asked not in self._stored:
                found = _stored(
                    self._project, rate, alike, self._at_us, position, self._position_at
                )
                self._stored[asked] = found
            return self._stored[asked] + planned[rate.per, alike]

        return counted

    def planned(self, session: UUID, tool: str) -> Before:
        """Count one that is new from now on, and return what was counted before it."""
        alike = [(per, _alike(per, self._agent, session, tool)) for per in _PER]
        before = Before(None, Counter({one: self._planned[one] for one in alike}))
        self._planned.update(alike)
        return before

    def _position_at(self, at_us: int) -> int:
        if at_us not in self._positions:
            self._positions[at_us] = position_at(at_us)
        return self._positions[at_us]


def _alike(per: str, agent: UUID, session: UUID, tool: str) -> _Alike:
    """Which columns are the same, and what they hold, in all that a rate `per` this counts."""
    alike: _Alike = (("tool", tool),) if per in ("tool", "agent", "session") else ()
    if per in ("session", "session_effects"):
        return (("session", session), *alike)
    return (("agent", agent), *alike) if per == "agent" else alike


def _stored(
    project: UUID,
    rate: Rate,
    alike: _Alike,
    at_us: int,
    before: int | None,
    position: Callable[[int], int],
) -> int:
    rows = Effect.objects.filter(project=project, **dict(alike))
    if before is not None:
        rows = rows.filter(opened_position__lt=before)
    if rate.within_s:
        since = at_us - rate.within_s * US
        rows = rows.filter(opened_position__gt=position(since - _SLACK_US), received_us__gt=since)
    return rows.order_by("-opened_position")[: rate.over].count()


def position_at(at_us: int) -> int:
    """The last position received before a moment, 0 for none: whatever came later stands above it."""
    found = (
        Entry.objects.filter(received_us__lt=at_us)
        .order_by("-received_us")
        .values_list("position", flat=True)
    )
    return found.first() or 0
