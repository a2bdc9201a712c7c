"""Rate counters for policy rules. Each count reads at most two index ranges."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
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
_PER: Final = (*sorted(_BEYOND_SESSION), "session", "session_effects")
_LOCK: Final = 0x6762  # class of these advisory locks; stops use 0x6761 (ledger/stops.py)
_Scope = tuple[tuple[str, UUID | str], ...]


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
) -> RateCounter:
    """Return a function that counts earlier plans, up to `rate.over`.

    The rate's window ends at `at_us`. `before` is the effect's own position if it is in the journal
    already: neither it nor later effects count.
    """

    def count(rate: PlanRate) -> int:
        if rate == SAME_CALL:
            return len(same_calls.find_unknown_calls(project, session, tool, intent, most=1))
        return _count_stored(
            project,
            rate,
            _scope_columns(rate.per, agent, session, tool),
            at_us,
            before,
            find_position_before,
        )

    return count


class EarlierPlans(NamedTuple):
    """What was planned before an effect.

    Journal entries below `position` (None: all of them), and plans of the same batch.
    """

    position: int | None
    planned: Counter[tuple[str, _Scope]]


class BatchPlanCounter:
    """Counts for all plans that one agent reports in a batch; they count each other.

    Each query runs once per batch.
    """

    def __init__(self, project: UUID, agent: UUID, at_us: int) -> None:
        self._project, self._agent, self._at_us = project, agent, at_us
        self._stored: dict[tuple[PlanRate, _Scope, int | None], int] = {}
        self._positions: dict[int, int] = {}
        self._planned: Counter[tuple[str, _Scope]] = Counter()

    def counter(
        self, session: UUID, tool: str, before: EarlierPlans | None = None, *, intent: str
    ) -> RateCounter:
        """Return a function that counts the plans before the next one, or `before` it."""
        position, planned = before or EarlierPlans(None, self._planned)

        def count(rate: PlanRate) -> int:
            if rate == SAME_CALL:
                return len(
                    same_calls.find_unknown_calls(self._project, session, tool, intent, most=1)
                )
            scope = _scope_columns(rate.per, self._agent, session, tool)
            cache_key = (rate, scope, position)
            if cache_key not in self._stored:
                self._stored[cache_key] = _count_stored(
                    self._project, rate, scope, self._at_us, position, self._position_at
                )
            return self._stored[cache_key] + planned[rate.per, scope]

        return count

    def count_plan(self, session: UUID, tool: str) -> EarlierPlans:
        """Count a new plan from now on, and return the counts before it."""
        scopes = [(per, _scope_columns(per, self._agent, session, tool)) for per in _PER]
        before = EarlierPlans(None, Counter({scope: self._planned[scope] for scope in scopes}))
        self._planned.update(scopes)
        return before

    def _position_at(self, at_us: int) -> int:
        if at_us not in self._positions:
            self._positions[at_us] = find_position_before(at_us)
        return self._positions[at_us]


def _scope_columns(per: str, agent: UUID, session: UUID, tool: str) -> _Scope:
    """Return the columns and values shared by all effects that a rate `per` counts."""
    columns: _Scope = (("tool", tool),) if per in ("tool", "agent", "session") else ()
    if per in ("session", "session_effects"):
        return (("session", session), *columns)
    return (("agent", agent), *columns) if per == "agent" else columns


def _count_stored(
    project: UUID,
    rate: PlanRate,
    scope: _Scope,
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
