"""Effect table of a session: newest first, filtered and paged by the database."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Expression, F, QuerySet

from inquiry import keyset, shown
from inquiry.handles import as_position
from journal import gists
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session

SIZE: Final = 100
OUTCOMES: Final = ("ok", "error", "unknown")
LONGEST_TOOL: Final = 100
DAY_US: Final = 86_400_000_000
SKEW_US: Final = 2_000_000  # if clocks differ by more, both are shown
# Columns that effect tables show. An effect has twice as many; each costs as much as showing it.
SHOWN: Final = (
    "opened_position",
    "project",
    "session",
    "tool",
    "plan_position",
    "received_us",
    "planned_at_us",
    "deadline_us",
    "state",
    "outcome",
    "leave",
    "leave_basis",
    "attempt_count",
    "violates",
    "task",
    "repository",
    "ref",
    "ref_class",
    "environment",
)


@dataclass(slots=True)
class Filters:
    """Filters of the table; empty means all effects."""

    state: str = ""  # a key of shown.STATES
    outcome: str = ""
    tool: str = ""
    task: int | None = None  # the number of its handle
    problems: bool = False

    def __bool__(self) -> bool:
        return bool(self.state or self.outcome or self.tool or self.task or self.problems)


@dataclass(slots=True)
class Row:
    """One effect in a table."""

    effect: Any  # ledger.models.Effect loaded `with_gists`
    marked: bool = False
    corrected_us: int | None = None  # when it was planned by the corrected clock, if requested

    @property
    def gist(self) -> str | None:
        """Return the one-line summary of its call, untrusted.

        None without a readable plan.

        Parsed at each access: tables that show other text of an effect do not use it.
        """
        return gists.gist_of(self.effect.plan_head)


@dataclass(slots=True)
class Timeline:
    """One page of rows, newest first, and the positions of its neighbors."""

    rows: list[Row] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    marked_is_here: bool = True  # False if the row of `at` is not on this page

    @property
    def day(self) -> str:
        """Return the day (UTC) on which all rows arrived, empty for several days."""
        return day_of(row.effect.received_us for row in self.rows)

    @property
    def told(self) -> bool:
        """Return True if an agent time differs from the server time: then both are shown."""
        pairs = [(row.effect.planned_at_us, row.effect.received_us) for row in self.rows]
        return any(
            agent_us is not None and abs(agent_us - arrived) > SKEW_US
            for agent_us, arrived in pairs
        )

    @property
    def told_day(self) -> str:
        """Return the day on which agents planned all rows, empty for several days."""
        return day_of(
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


def day_of(times: Iterable[int]) -> str:
    """Return the only day (UTC) of a column of times, or empty.

    The column head then shows it.
    """
    days = {us // DAY_US for us in times}
    return (date(1970, 1, 1) + timedelta(days=days.pop())).isoformat() if len(days) == 1 else ""


def filters_of(query: Mapping[str, str]) -> tuple[Filters, list[str]]:
    """Parse filters; return also a sentence for each invalid value.

    Invalid values do not narrow the rows.
    """
    filters, errors = Filters(), []
    state, outcome, task = query.get("state", ""), query.get("outcome", ""), query.get("task", "")
    if state in shown.STATES:
        filters.state = state
    elif state:
        errors.append(f"Unknown state “{state[:40]}”. Use one of {', '.join(shown.STATES)}.")
    if outcome in OUTCOMES:
        filters.outcome = outcome
    elif outcome:
        errors.append(f"Unknown outcome “{outcome[:40]}”. Use ok, error or unknown.")
    if task:
        filters.task = as_position(task)
        if filters.task is None:
            errors.append(f"“{task[:40]}” is not a task. Use a handle such as t_12.")
    filters.tool = query.get("tool", "").replace("\0", "")[:LONGEST_TOOL]
    filters.problems = query.get("problems", "") == "1"
    return filters, errors


def timeline(session: Session, filters: Filters, window: keyset.Window, now_us: int) -> Timeline:
    """Return one page of the session's effects. One query, two around a row."""
    page = keyset.page(_filtered(session, filters, now_us), SIZE, window)
    rows = as_rows(page.rows, window.at)
    return Timeline(
        rows, page.older, page.newer, window.at is None or any(row.marked for row in rows)
    )


def with_gists(effects: "QuerySet[Effect]", **joined: Expression | F) -> "QuerySet[Effect]":
    """Add what `as_rows` and the tables need; `joined` are columns of other tables."""
    return effects.only(*SHOWN).annotate(plan_head=gists.plan_heads(), **joined)


def as_rows(effects: Iterable[Any], at: int | None = None) -> list[Row]:
    """Return rows for effects loaded `with_gists`.

    The row whose number is `at` is marked.
    """
    return [Row(effect, effect.opened_position == at) for effect in effects]


def _filtered(session: Session, filters: Filters, now_us: int) -> "QuerySet[Effect]":
    return with_gists(
        narrowed(session, filters, now_us),
        task_position=F("task__opened_position"),
        task_title=F("task__title"),
        task_key=F("task__key"),
    )


def narrowed(session: Session, filters: Filters, now_us: int) -> "QuerySet[Effect]":
    """Return the session's effects that match `filters`."""
    # By session without its project: SQLite prefers two equal columns and would read the whole
    # project.
    return narrow(Effect.objects.filter(session=session), filters, now_us)


def narrow(effects: "QuerySet[Effect]", filters: Filters, now_us: int) -> "QuerySet[Effect]":
    """Return those of `effects` that match `filters`."""
    if filters.state:
        effects = effects.filter(shown.any_of(shown.arms(filters.state, now_us)))
    if filters.problems:
        effects = effects.filter(shown.any_of(shown.problems(now_us)))
    if filters.outcome:
        effects = effects.filter(outcome=filters.outcome)
    if filters.task is not None:
        effects = effects.filter(task__opened_position=filters.task)
    if filters.tool:
        effects = effects.filter(tool=filters.tool)
    return effects


def lets_through(filters: Filters, effect: Any, task: UUID | None, now_us: int) -> bool:
    """Return whether one effect matches `filters`.

    `task` is the id of the filtered task.
    """
    word = shown.shown_state(effect, now_us)
    late = word == shown.STATES[shown.UNKNOWN] and effect.state == "dispatched"
    bad = effect.outcome in ("error", "unknown") and effect.state not in (
        "compensated",
        "superseded",
    )
    return (
        (not filters.state or word == shown.STATES[filters.state])
        and (not filters.problems or late or bad or effect.violates)
        and (not filters.outcome or effect.outcome == filters.outcome)
        and (filters.task is None or (task is not None and effect.task_id == task))
        and (not filters.tool or effect.tool == filters.tool)
    )


def has_news(session: Session, since: int) -> bool:
    """Return True if the journal has an entry of the session after `since`.

    `since` is a settled position.
    """
    return Entry.objects.filter(session=session.id, position__gt=since).exists()
