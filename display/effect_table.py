"""Effect table of a session: newest first, filtered and paged by the database."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Expression, F, QuerySet

from display import display_state, effect_runs, keyset_pagination
from display.handles import parse_position
from journal import summaries
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session

EFFECTS_PER_PAGE: Final = 50  # with their drawing a page stays below 150 KB
OUTCOMES: Final = ("ok", "error", "unknown")
LONGEST_TOOL: Final = 100
DAY_US: Final = 86_400_000_000
SKEW_US: Final = 2_000_000  # if clocks differ by more, both are shown
# Columns that effect tables show. An effect has twice as many; each costs as much as showing it.
EFFECT_TABLE_COLUMNS: Final = (
    "opened_position",
    "project",
    "session",
    "agent",
    "tool",
    "plan_position",
    "received_us",
    "planned_at_us",
    "deadline_us",
    "state",
    "outcome",
    "permission",
    "permission_basis",
    "permission_until_us",
    "policy_rule",
    "policy_outcome",
    "attempt_count",
    "violates",
    "task",
    "repository",
    "ref",
    "ref_class",
    "environment",
    "intent_digest",
)


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


@dataclass(slots=True)
class EffectRow:
    """One effect in a table."""

    effect: Any  # ledger.models.Effect loaded `annotate_calls`
    marked: bool = False
    corrected_us: int | None = None  # when it was planned by the corrected clock, if requested

    @property
    def run(self) -> effect_runs.RunTimes:
        """Return when it ran; the effect was loaded with `annotate_runs`."""
        return effect_runs.read_run_times(self.effect)

    @property
    def gist(self) -> str | None:
        """Return the one-line summary of its call, untrusted.

        None without a readable plan.

        Parsed at each access: tables that show other text of an effect do not use it.
        """
        return summaries.summarize_plan_head(self.effect.plan_head)


@dataclass(slots=True)
class Timeline:
    """One page of rows, newest first, and the positions of its neighbors."""

    rows: list[EffectRow] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    marked_is_here: bool = True  # False if the row of `at` is not on this page

    @property
    def day(self) -> str:
        """Return the day (UTC) on which all rows arrived, empty for several days."""
        return common_day(row.effect.received_us for row in self.rows)

    @property
    def ran_day(self) -> str:
        """Return the day (UTC) on which all rows ran that did, empty for several days."""
        return common_day(us for row in self.rows if (us := row.run.ran_us) is not None)

    @property
    def has_agent_time(self) -> bool:
        """Return True if an agent time differs from the server time: then both are shown."""
        pairs = [(row.effect.planned_at_us, row.effect.received_us) for row in self.rows]
        return any(
            agent_us is not None and abs(agent_us - arrived) > SKEW_US
            for agent_us, arrived in pairs
        )

    @property
    def agent_day(self) -> str:
        """Return the day on which agents planned all rows, empty for several days."""
        return common_day(
            row.effect.planned_at_us for row in self.rows if row.effect.planned_at_us is not None
        )

    @property
    def tries(self) -> bool:
        """Return True if any of these rows was attempted more than once."""
        return any(row.effect.attempt_count > 1 for row in self.rows)

    @property
    def tasks(self) -> bool:
        """Return True if any of these rows belongs to a task."""
        return any(row.effect.task_id is not None for row in self.rows)


def common_day(times: Iterable[int]) -> str:
    """Return the only day (UTC) of a column of times, for its head; or empty."""
    days = {us // DAY_US for us in times}
    return (date(1970, 1, 1) + timedelta(days=days.pop())).isoformat() if len(days) == 1 else ""


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


def annotate_calls(effects: "QuerySet[Effect]", **joined: Expression | F) -> "QuerySet[Effect]":
    """Add what `to_effect_rows` and the tables need; `joined` are columns of other tables."""
    return effects.only(*EFFECT_TABLE_COLUMNS).annotate(
        plan_head=summaries.select_plan_heads(), **joined
    )


def to_effect_rows(effects: Iterable[Any], at: int | None = None) -> list[EffectRow]:
    """Return rows for effects loaded `annotate_calls`; marks number `at`."""
    return [EffectRow(effect, effect.opened_position == at) for effect in effects]


def _filtered_effects(session: Session, filters: EffectFilters, now_us: int) -> "QuerySet[Effect]":
    return annotate_calls(
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


def has_news(session: Session, since: int) -> bool:
    """Return True if something was recorded after the stable position `since`.

    That a person looked changes nothing on the page.
    """
    later = Entry.objects.filter(session=session.id, position__gt=since)
    return later.exclude(kind="access.viewed").exists()
