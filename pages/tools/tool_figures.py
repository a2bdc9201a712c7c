"""How each tool of a project fared: calls, success, unknown outcomes and durations. Reads only.

Periods are whole UTC days by the server's clock of each effect's first entry. The job has counted
the calls (monitoring/effect_hours.py). States are counted in ranges of indexes, which positions
bound; of failed effects only those near the first day's start are fetched.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db.models import Count, Q

from accounts.models import Project
from approvals.policies.rate_counters import find_position_before
from db import raw_sql
from db.whole_days import DayPeriod
from display import display_state
from investigation.query.edit import quote_if_needed
from ledger.models import Effect
from monitoring import effect_hours
from pages.agents.agent_activity import find_p95

MAX_TIMED: Final = 1_000
MAX_TOOLS: Final = 100
_SLACK_US: Final = 60_000_000  # how far the order of positions and of the server's clock differ

_TIMED: Final = """
SELECT {n}, settled_at_us - dispatched_at_us FROM (
  SELECT settled_at_us, dispatched_at_us FROM ledger_effect
  WHERE project_id = %s AND tool = %s AND opened_position > %s AND received_us >= %s
  AND settled_at_us IS NOT NULL AND dispatched_at_us IS NOT NULL
  ORDER BY opened_position DESC LIMIT %s) AS newest_{n}
"""


@dataclass(slots=True)
class ToolFigures:
    """A tool in a period; `p95_us` is None without an answered effect.

    `failed` did not happen or happened with an error.
    """

    name: str
    query: str
    calls: int
    failed: int
    unknown: int
    succeeded: int
    p95_us: int | None = None
    is_p95_of_all: bool = True

    @property
    def failed_query(self) -> str:
        """The search for the failed calls."""
        return f"{self.query} {display_state.ENDED_IN_ERROR}"

    @property
    def answered(self) -> int:
        """How many calls have an answer or an unknown outcome; the others wait, or never ran."""
        return self.succeeded + self.failed + self.unknown


def load_tool_figures(project: Project, period: DayPeriod) -> list[ToolFigures]:
    """Load the tools used in the period, most used first. At most eight queries."""
    since = period.since_us
    low, high = find_position_before(since - _SLACK_US), find_position_before(since + _SLACK_US)
    days = effect_hours.load_effect_days(project.id, since)
    calls = {tool: by_day.total() for tool, by_day in days.items() if tool}
    failed = _count_effects(project.id, [display_state.error_condition()], low, high, period)
    unknown = _count_states(project.id, display_state.UNKNOWN, low, high, period)
    open_effects: Counter[str] = Counter()
    for state in ("planned", display_state.AWAITING, "dispatched", "superseded", "compensated"):
        open_effects += _count_states(project.id, state, low, high, period)
    ordered = sorted(calls, key=lambda tool: (-calls[tool], tool))
    figures = [
        ToolFigures(
            tool,
            f"tool:{quote_if_needed(tool)} {period.text}",
            calls[tool],
            failed[tool],
            unknown[tool],
            calls[tool] - failed[tool] - unknown[tool] - open_effects[tool],
        )
        for tool in ordered
    ]
    times = _load_times(project.id, ordered[:MAX_TOOLS], low, since)
    for row in figures:
        if row.name in times:
            took = times[row.name]
            row.p95_us, row.is_p95_of_all = find_p95(took), len(took) < MAX_TIMED
    return figures


def _count_states(
    project: UUID, state: str, low: int, high: int, period: DayPeriod
) -> Counter[str]:
    """Count effects by tool that are shown in a state. One or two queries."""
    conditions = display_state.shown_state_conditions(state, period.now_us)
    return _count_effects(project, conditions, low, high, period)


def _count_effects(
    project: UUID, conditions: Iterable[Q], low: int, high: int, period: DayPeriod
) -> Counter[str]:
    """Count effects by tool that meet one of disjoint conditions, each by its partial index.

    Above position `high` all are of the period, so their times are not read.
    """
    counts: Counter[str] = Counter()
    effects = Effect.objects.filter(project=project).order_by()
    parts = (
        effects.filter(opened_position__gt=high),
        effects.filter(
            opened_position__gt=low, opened_position__lte=high, received_us__gte=period.since_us
        ),
    )
    for condition in conditions:
        of_parts = [
            rows.filter(condition).values_list("tool").annotate(number=Count("*")) for rows in parts
        ]
        for tool, number in of_parts[0].union(of_parts[1], all=True):
            counts[tool] += number
    return counts


def _load_times(project: UUID, tools: list[str], low: int, since_us: int) -> dict[str, list[int]]:
    """Return durations of the newest MAX_TIMED answered effects by tool. One query."""
    if not tools:
        return {}
    key = raw_sql.vendor_id(project)
    parts = [f"SELECT * FROM ({_TIMED.format(n=n)}) AS of_{n}" for n in range(len(tools))]
    parameters = [value for tool in tools for value in (key, tool, low, since_us, MAX_TIMED)]
    times: dict[str, list[int]] = {}
    for number, took in raw_sql.fetch_rows(" UNION ALL ".join(parts), parameters):
        times.setdefault(tools[number], []).append(took)
    return times
