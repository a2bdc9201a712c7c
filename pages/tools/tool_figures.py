"""How each tool of a project fared: calls, success, unknown outcomes and durations. Reads only.

Periods are whole UTC days by the server's clock of each effect's first entry. Counts read ranges
of indexes; positions bound them, and only the effects near the first day's start are fetched.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db.models import Count

from accounts.models import Project
from approvals.policies.rate_counters import find_position_before
from db import raw_sql
from db.whole_days import DayPeriod
from display import display_state
from investigation.query.edit import quote_if_needed
from ledger.models import Effect
from pages.agents.agent_activity import find_p95

MAX_TIMED: Final = 1_000
MAX_TOOLS: Final = 100
_SLACK_US: Final = 60_000_000  # how far the order of positions and of the server's clock differ

# One index step per tool (effect_by_tool), then ranges of the same index.
_CALLS: Final = """
WITH RECURSIVE used(tool) AS (
  SELECT min(tool) FROM ledger_effect WHERE project_id = %s AND tool > ''
  UNION ALL
  SELECT (SELECT min(tool) FROM ledger_effect WHERE project_id = %s AND tool > used.tool)
  FROM used WHERE used.tool IS NOT NULL
)
SELECT tool, (
    SELECT COUNT(*) FROM ledger_effect WHERE project_id = %s AND tool = used.tool
    AND opened_position > %s
  ) + (
    SELECT COUNT(*) FROM ledger_effect WHERE project_id = %s AND tool = used.tool
    AND opened_position > %s AND opened_position <= %s AND received_us >= %s
  )
FROM used WHERE tool IS NOT NULL
"""
_TIMED: Final = """
SELECT {n}, settled_at_us - dispatched_at_us FROM (
  SELECT settled_at_us, dispatched_at_us FROM ledger_effect
  WHERE project_id = %s AND tool = %s AND opened_position > %s AND received_us >= %s
  AND settled_at_us IS NOT NULL AND dispatched_at_us IS NOT NULL
  ORDER BY opened_position DESC LIMIT %s) AS newest_{n}
"""


@dataclass(slots=True)
class ToolFigures:
    """A tool in a period; `p95_us` is None without an answered effect."""

    name: str
    query: str
    calls: int
    failed: int
    unknown: int
    succeeded: int
    p95_us: int | None = None
    is_p95_of_all: bool = True


def load_tool_figures(project: Project, period: DayPeriod) -> list[ToolFigures]:
    """Load the tools used in the period, most used first. At most eight queries."""
    key, since = raw_sql.vendor_id(project.id), period.since_us
    low, high = find_position_before(since - _SLACK_US), find_position_before(since + _SLACK_US)
    calls = {
        tool: number
        for tool, number in raw_sql.fetch_rows(_CALLS, [key, key, key, high, key, low, high, since])
        if number
    }
    failed = _count_states(project.id, "failed", low, period)
    unknown = _count_states(project.id, display_state.UNKNOWN, low, period)
    open_effects: Counter[str] = Counter()
    for state in ("planned", display_state.AWAITING, "dispatched", "superseded", "compensated"):
        open_effects += _count_states(project.id, state, low, period)
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


def _count_states(project: UUID, state: str, low: int, period: DayPeriod) -> Counter[str]:
    """Count effects by tool that are shown in a state; by its partial index."""
    counts: Counter[str] = Counter()
    rows = Effect.objects.filter(
        project=project, opened_position__gt=low, received_us__gte=period.since_us
    )
    for condition in display_state.shown_state_conditions(state, period.now_us):
        grouped = rows.filter(condition).order_by().values_list("tool")
        counts.update(dict(grouped.annotate(number=Count("id"))))
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
