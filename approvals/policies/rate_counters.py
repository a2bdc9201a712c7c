"""Rate counters for policy rules. Each count reads at most two index ranges."""

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from django.db import connection

from approvals.gates.statuses import US
from approvals.policies.engine import SAME_CALL, CompiledPolicy, PlanRate, RateCounter
from db import raw_sql
from journal.models import Entry
from ledger import same_calls
from ledger.models import Effect

_SLACK_US: Final = 60 * US  # how far the order of positions and of the server's clock may differ
# The lock of a session does not serialize the plans that these rates count.
_BEYOND_SESSION: Final = frozenset({"tool", "agent", "project"})
RATE_KINDS: Final = (*sorted(_BEYOND_SESSION), "session", "session_effects")  # of PlanRate.per
_LOCK: Final = 0x6762  # class of these advisory locks; stops use 0x6761 (ledger/stops.py)
RateScope = tuple[tuple[str, UUID | str], ...]


def serialize_rated_plans(project: UUID, compiled: CompiledPolicy, tools: Iterable[str]) -> None:
    """Serialize plans of these tools if a rate counts beyond one session.

    Two concurrent plans would not count each other and could pass one limit together. The lock
    lasts until the transaction ends. To avoid deadlocks, call it with the rows of sessions locked
    and before those of effects, as every plan does.
    """
    if connection.vendor == "postgresql" and any(
        rate.per in _BEYOND_SESSION
        for tool in set(tools)
        for rule in compiled.of(tool)
        for rate in rule.rates
    ):  # SQLite has one writer at a time
        number = int.from_bytes(project.bytes[-4:], "big", signed=True)
        raw_sql.fetch_rows("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, number])


def make_rate_counter(
    project: UUID,
    agent: UUID,
    session: UUID,
    tool: str,
    at_us: int,
    before: int | None = None,
    *,
    intent: str,
    find_start: Callable[[int], int] | None = None,
) -> RateCounter:
    """Return a function that counts earlier plans, up to `rate.over`.

    The rate's window ends at `at_us`. `before` is the effect's own position if it is in the journal
    already: neither it nor later effects count. `find_start` is `find_position_before`, cached.
    """

    def count(rate: PlanRate) -> int:
        if rate == SAME_CALL:
            return len(same_calls.find_unknown_calls(project, session, tool, intent, most=1))
        return _count_stored(
            project,
            rate,
            get_rate_scope(rate.per, agent, session, tool),
            at_us,
            before,
            find_start or find_position_before,
        )

    return count


def get_rate_scope(per: str, agent: UUID, session: UUID, tool: str) -> RateScope:
    """Return the columns and values shared by all effects that a rate `per` counts."""
    columns: RateScope = (("tool", tool),) if per in ("tool", "agent", "session") else ()
    if per in ("session", "session_effects"):
        return (("session", session), *columns)
    return (("agent", agent), *columns) if per == "agent" else columns


def _count_stored(
    project: UUID,
    rate: PlanRate,
    scope: RateScope,
    at_us: int,
    before: int | None,
    position: Callable[[int], int],
) -> int:
    rows = Effect.objects.filter(project=project, **dict(scope))
    if before is not None:
        rows = rows.filter(opened_position__lt=before)
    if rate.within_s:
        since = at_us - rate.within_s * US
        rows = rows.filter(opened_position__gt=position(since - _SLACK_US), received_us__gt=since)
    return rows.order_by("-opened_position")[: rate.over].count()


def find_position_before(at_us: int) -> int:
    """Return the last position received before a moment, 0 for none."""
    positions = (
        Entry.objects.filter(received_us__lt=at_us)
        .order_by("-received_us")
        .values_list("position", flat=True)
    )
    return positions.first() or 0
