"""How often an agent used its tools, by day: counts for its page. Reads only.

Days are UTC days by the server's clock of each effect's first entry, as `at` of searches.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, F, Min, Q, QuerySet

from accounts.models import Agent
from db import raw_sql
from db.whole_days import DAY_US, DayPeriod, find_day_start
from display import display_state
from ledger.models import Effect
from ledger.partial_indexes import RAN_WITHOUT_PERMISSION
from monitoring import effect_hours

CALENDAR_WEEKS: Final = 26
MAX_TIMED: Final = 1_000  # the newest answered effects of a tool, of which the page shows the p95
_WEEKDAY_OF_1970: Final = 3  # the first of January 1970 was a Thursday, 3 days after Monday

# One index step per tool (effect_by_agent), then one range of the same index per tool: no row is
# fetched.
_TOOLS: Final = """
used(tool) AS (
  SELECT min(tool) FROM ledger_effect WHERE agent_id = %s
  UNION ALL
  SELECT (SELECT min(tool) FROM ledger_effect WHERE agent_id = %s AND tool > used.tool)
  FROM used WHERE used.tool IS NOT NULL
)"""
_IN_RANGE: Final = f"""
WITH RECURSIVE {_TOOLS}
SELECT tool, (
    SELECT COUNT(*) FROM ledger_effect WHERE agent_id = %s AND tool = used.tool
    AND received_us >= %s AND received_us < %s
  ), (SELECT MAX(received_us) FROM ledger_effect WHERE agent_id = %s AND tool = used.tool)
FROM used WHERE tool IS NOT NULL
"""
_TIMED: Final = """
SELECT %s AS nth, settled_at_us - dispatched_at_us FROM (
  SELECT settled_at_us, dispatched_at_us FROM ledger_effect
  WHERE agent_id = %s AND tool = %s AND received_us >= %s
  AND settled_at_us IS NOT NULL AND dispatched_at_us IS NOT NULL
  ORDER BY received_us DESC LIMIT %s) AS newest_{}
"""
_LAST: Final = """
SELECT %s AS nth, policy_outcome, policy_rule FROM (
  SELECT policy_outcome, policy_rule FROM ledger_effect
  WHERE agent_id = %s AND tool = %s ORDER BY received_us DESC LIMIT 1) AS last_{}
"""

DayCounts = dict[str, Counter[int]]  # tool -> start of the day -> effects


@dataclass(slots=True)
class AgentActivity:
    """Effects of an agent by tool and day, and those of them with a problem."""

    first_day_us: int
    effects: DayCounts = field(default_factory=dict)
    failed: DayCounts = field(default_factory=dict)
    unknown: DayCounts = field(default_factory=dict)
    bypassed: DayCounts = field(default_factory=dict)
    all_unknown: int = 0  # also before the first day
    unknown_since_us: int | None = None  # when the first of all was first seen
    last_used_us: dict[str, int] = field(default_factory=dict)
    same_time_last_week: int = 0


def load_agent_activity(agent: Agent, now: int) -> AgentActivity:
    """Load the counts of CALENDAR_WEEKS weeks up to now. Six queries, or seven."""
    today = find_day_start(now)
    activity = AgentActivity(find_first_day(now))
    key = raw_sql.vendor_id(agent.id)
    activity.effects = effect_hours.load_effect_days(
        agent.project_id, activity.first_day_us, agent.id
    )
    week = 7 * DAY_US
    for tool, number, last_us in raw_sql.fetch_rows(
        _IN_RANGE, [key, key, key, today - week, now - week, key]
    ):
        activity.same_time_last_week += number
        activity.last_used_us[tool] = last_us
    # Without the project, which an agent has only one of: it is in no index of agents.
    effects = Effect.objects.filter(agent=agent.id)
    since = effects.filter(received_us__gte=activity.first_day_us)
    of_project = effects.filter(project=agent.project_id)
    activity.failed, *_ = _count_by_day(since, [display_state.error_condition()])
    unknown = display_state.shown_state_conditions(display_state.UNKNOWN, now)
    activity.unknown, activity.all_unknown, activity.unknown_since_us = _count_by_day(
        of_project, unknown, activity.first_day_us
    )
    bypassed = since.filter(project=agent.project_id)
    activity.bypassed, *_ = _count_by_day(bypassed, [Q(RAN_WITHOUT_PERMISSION)])
    return activity


def find_first_day(now: int) -> int:
    """Return the Monday with which the calendar begins."""
    today = find_day_start(now)
    weekday = (today // DAY_US + _WEEKDAY_OF_1970) % 7
    return today - (weekday + 7 * (CALENDAR_WEEKS - 1)) * DAY_US


def _count_by_day(
    rows: "QuerySet[Effect]", conditions: Iterable[Q], first_day_us: int = 0
) -> tuple[DayCounts, int, int | None]:
    """Count effects that meet one of disjoint conditions. One query each, for its own index.

    Returns the counts from the first day on, the number of all, and when the first was seen.
    """
    counts: DayCounts = {}
    total, first_us = 0, None
    day: Any = F("received_us") - F("received_us") % DAY_US
    for condition in conditions:
        grouped = rows.filter(condition).order_by().values_list("tool", day)
        for tool, start_us, number, earliest_us in grouped.annotate(
            number=Count("*"), earliest=Min("received_us")
        ):
            total += number
            first_us = min(earliest_us, earliest_us if first_us is None else first_us)
            if start_us >= first_day_us:
                counts.setdefault(tool, Counter())[start_us] += number
    return counts, total, first_us


def sum_days(counts: DayCounts, since_us: int, until_us: int | None = None) -> Counter[str]:
    """Sum days by tool, from one start of a day up to before another one."""
    return Counter(
        {
            tool: number
            for tool, by_day in counts.items()
            if (
                number := sum(
                    n
                    for day, n in by_day.items()
                    if day >= since_us and (until_us is None or day < until_us)
                )
            )
        }
    )


def sum_tools(counts: DayCounts) -> Counter[int]:
    """Sum all tools by day."""
    return sum(counts.values(), Counter())


def load_tool_times(
    agent: UUID, tools: Iterable[str], period: DayPeriod
) -> dict[str, tuple[int, bool]]:
    """Return by tool the p95 in microseconds, and whether it is of all. One query.

    Nearest rank, as `p95(took)` of searches, over the newest MAX_TIMED answered effects.
    """
    key = raw_sql.vendor_id(agent)
    times: dict[str, list[int]] = {}
    for tool, took in _fetch_each(
        _TIMED, tools, lambda tool: [key, tool, period.since_us, MAX_TIMED]
    ):
        times.setdefault(tool, []).append(took)
    return {tool: (find_p95(took), len(took) < MAX_TIMED) for tool, took in times.items()}


def load_last_rules(agent: UUID, tools: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return by tool the policy outcome and the rule of its newest effect. One query."""
    key = raw_sql.vendor_id(agent)
    return {
        tool: (outcome, rule)
        for tool, outcome, rule in _fetch_each(_LAST, tools, lambda tool: [key, tool])
    }


def _fetch_each(
    text: str, tools: Iterable[str], parameters: Callable[[str], list[Any]]
) -> list[tuple[Any, ...]]:
    """Run a statement for each tool as one, and put the tool before its rows."""
    listed = list(tools)
    if not listed:
        return []
    parts = [
        f"SELECT * FROM ({text.replace('%s AS nth', f'{n} AS nth').format(n)}) AS of_{n}"
        for n in range(len(listed))
    ]
    rows = raw_sql.fetch_rows(
        " UNION ALL ".join(parts), [value for tool in listed for value in parameters(tool)]
    )
    return [(listed[nth], *rest) for nth, *rest in rows]


def find_p95(values: Iterable[int]) -> int:
    """Return the smallest value that at least 95 % of them do not exceed."""
    ordered = sorted(values)
    return ordered[(len(ordered) * 95 + 99) // 100 - 1]
