"""The effects of a session that the filters of its timeline select, newest first.

The database filters and pages them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import F, QuerySet

from display import display_state, effect_runs, keyset_pagination
from display.effect_table import Timeline, select_row_columns, to_effect_rows
from display.handles import parse_position
from ledger.models import Effect
from sessions.models import Session

EFFECTS_PER_PAGE: Final = 50  # with their drawing a page stays below 150 KB
OUTCOMES: Final = ("ok", "error", "unknown")
LONGEST_TOOL: Final = 100


@dataclass(slots=True)
class EffectFilters:
    """Filters of the table; empty means all effects."""

    state: str = ""  # a key of display_state.STATES
    outcome: str = ""
    tool: str = ""
    task: int | None = None  # the number of its handle
    problems: bool = False

    def __bool__(self) -> bool:
        return bool(self.state or self.outcome or self.tool or self.task or self.problems)


def parse_effect_filters(query: Mapping[str, str]) -> tuple[EffectFilters, list[str]]:
    """Parse filters; return also a sentence for each invalid value, which is ignored."""
    filters, errors = EffectFilters(), []
    state, outcome, task = query.get("state", ""), query.get("outcome", ""), query.get("task", "")
    if state in display_state.STATES:
        filters.state = state
    elif state:
        errors.append(
            f"Unknown state “{state[:40]}”. Use one of {', '.join(display_state.STATES)}."
        )
    if outcome in OUTCOMES:
        filters.outcome = outcome
    elif outcome:
        errors.append(f"Unknown outcome “{outcome[:40]}”. Use ok, error or unknown.")
    if task:
        filters.task = parse_position(task)
        if filters.task is None:
            errors.append(f"“{task[:40]}” is not a task. Use a handle such as t_12.")
    filters.tool = query.get("tool", "").replace("\0", "")[:LONGEST_TOOL]
    filters.problems = query.get("problems", "") == "1"
    return filters, errors


def load_timeline_page(
    session: Session, filters: EffectFilters, window: keyset_pagination.Window, now_us: int
) -> Timeline:
    """Return one page of the session's effects. One query, two around a row."""
    page = keyset_pagination.load_keyset_page(
        _filtered_effects(session, filters, now_us), EFFECTS_PER_PAGE, window
    )
    rows = to_effect_rows(page.rows, window.at)
    return Timeline(
        rows, page.older, page.newer, window.at is None or any(row.marked for row in rows)
    )


def _filtered_effects(session: Session, filters: EffectFilters, now_us: int) -> "QuerySet[Effect]":
    return select_row_columns(
        effect_runs.annotate_runs(filtered_session_effects(session, filters, now_us)),
        task_position=F("task__opened_position"),
        task_title=F("task__title"),
        task_key=F("task__key"),
        task_worker=F("task__worker"),
    )


def filtered_session_effects(
    session: Session, filters: EffectFilters, now_us: int
) -> "QuerySet[Effect]":
    """Return the session's effects that match `filters`."""
    # By session without its project: SQLite prefers two equal columns and would read the whole
    # project.
    return filter_effects(Effect.objects.filter(session=session), filters, now_us)


def filter_effects(
    effects: "QuerySet[Effect]", filters: EffectFilters, now_us: int
) -> "QuerySet[Effect]":
    """Return those of `effects` that match `filters`."""
    if filters.state:
        effects = effects.filter(
            display_state.union_of_conditions(
                display_state.shown_state_conditions(filters.state, now_us)
            )
        )
    if filters.problems:
        effects = effects.filter(
            display_state.union_of_conditions(display_state.problem_conditions(now_us))
        )
    if filters.outcome:
        effects = effects.filter(outcome=filters.outcome)
    if filters.task is not None:
        effects = effects.filter(task__opened_position=filters.task)
    if filters.tool:
        effects = effects.filter(tool=filters.tool)
    return effects


def matches_filters(filters: EffectFilters, effect: Any, task: UUID | None, now_us: int) -> bool:
    """Return whether an effect matches `filters`; `task` is the filtered task's id."""
    word = display_state.derive_shown_state(effect, now_us)
    late = word == display_state.STATES[display_state.UNKNOWN] and effect.state == "dispatched"
    bad = effect.outcome in ("error", "unknown") and effect.state not in (
        "compensated",
        "superseded",
    )
    return (
        (not filters.state or word == display_state.STATES[filters.state])
        and (not filters.problems or late or bad or effect.violates)
        and (not filters.outcome or effect.outcome == filters.outcome)
        and (filters.task is None or (task is not None and effect.task_id == task))
        and (not filters.tool or effect.tool == filters.tool)
    )
