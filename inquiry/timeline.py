"""The timeline of a session as a table: effects newest first, filtered and windowed by the database."""

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
SKEW_US: Final = 2_000_000  # clocks that differ by more are both shown
# The columns of an effect that tables of effects show: it has twice as many more, and each costs as much as showing it.
SHOWN: Final = (
    *("opened_position", "project", "session", "tool", "plan_position", "received_us", "planned_at_us", "deadline_us"),
    *("state", "outcome", "leave", "leave_basis", "attempt_count", "violates", "task"),
    *("repository", "ref", "ref_class", "environment"),
)


@dataclass(slots=True)
class Filters:
    """What the table is narrowed to; empty means everything."""

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

    effect: Any  # ledger.models.Effect with what `with_gists` added
    marked: bool = False
    corrected_us: int | None = None  # when its plan was made by the corrected clock, where that was asked for

    @property
    def gist(self) -> str | None:
        """What its call says in a line, untrusted; None where the plan has not arrived or its body was erased.

        Read from the plan at every look: tables that show other text of an effect do without.
        """
        return gists.gist_of(self.effect.plan_head)


@dataclass(slots=True)
class Timeline:
    """One page of rows, newest first, and how to reach its neighbours."""

    rows: list[Row] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    marked_is_here: bool = True  # False when `at` named a row that is not among them

    @property
    def day(self) -> str:
        """The day on which all of these rows arrived (UTC), "" when they are of several."""
        return day_of(row.effect.received_us for row in self.rows)

    @property
    def told(self) -> bool:
        """True when an agent's time of any row differs from the server's: then both are shown."""
        pairs = [(row.effect.planned_at_us, row.effect.received_us) for row in self.rows]
        return any(told is not None and abs(told - arrived) > SKEW_US for told, arrived in pairs)

    @property
    def told_day(self) -> str:
        """The day on which agents say that all of these rows were planned, "" when of several."""
        return day_of(row.effect.planned_at_us for row in self.rows if row.effect.planned_at_us is not None)

    @property
    def tries(self) -> bool:
        """True when any of these rows was attempted more than once."""
        return any(row.effect.attempt_count > 1 for row in self.rows)

    @property
    def tasks(self) -> bool:
        """True when any of these rows belongs to a task."""
        return any(row.effect.task_id is not None for row in self.rows)


def day_of(times: Iterable[int]) -> str:
    """The one day (UTC) of a column of times, or "": a column of one day names it once, at its head."""
    days = {us // DAY_US for us in times}
    return (date(1970, 1, 1) + timedelta(days=days.pop())).isoformat() if len(days) == 1 else ""


def filters_of(query: Mapping[str, str]) -> tuple[Filters, list[str]]:
    """Read filters from a query string; values that mean nothing come back as sentences, and do not narrow anything."""
    wanted, wrong = Filters(), []
    state, outcome, task = query.get("state", ""), query.get("outcome", ""), query.get("task", "")
    if state in shown.STATES:
        wanted.state = state
    elif state:
        wrong.append(f"A state is one of {', '.join(shown.STATES)}; “{state[:40]}” is none of them.")
    if outcome in OUTCOMES:
        wanted.outcome = outcome
    elif outcome:
        wrong.append(f"An outcome is ok, error or unknown; “{outcome[:40]}” is none of them.")
    if task:
        wanted.task = as_position(task)
        if wanted.task is None:
            wrong.append(f"A task is named by its handle, as t_12; “{task[:40]}” is none.")
    wanted.tool = query.get("tool", "").replace("\0", "")[:LONGEST_TOOL]
    wanted.problems = query.get("problems", "") == "1"
    return wanted, wrong


def timeline(session: Session, filters: Filters, window: keyset.Window, now_us: int) -> Timeline:
    """One page of the session's effects: one query, two around a row. `session` was fetched through the wall."""
    page = keyset.page(_filtered(session, filters, now_us), SIZE, window)
    rows = as_rows(page.rows, window.at)
    return Timeline(rows, page.older, page.newer, window.at is None or any(row.marked for row in rows))


def with_gists(effects: "QuerySet[Effect]", **joined: Expression | F) -> "QuerySet[Effect]":
    """What `as_rows` and the tables need, in the query of the effects themselves; `joined` are values of other rows."""
    return effects.only(*SHOWN).annotate(plan_head=gists.plan_heads(), **joined)


def as_rows(effects: Iterable[Any], at: int | None = None) -> list[Row]:
    """Rows for effects that were fetched `with_gists`; the one whose handle is `at` is marked."""
    return [Row(effect, effect.opened_position == at) for effect in effects]


def _filtered(session: Session, filters: Filters, now_us: int) -> "QuerySet[Effect]":
    return with_gists(
        narrowed(session, filters, now_us),
        task_position=F("task__opened_position"),
        task_title=F("task__title"),
        task_key=F("task__key"),
    )


def narrowed(session: Session, filters: Filters, now_us: int) -> "QuerySet[Effect]":
    """The session's effects that `filters` let through."""
    # By session alone, without its project: SQLite would think two equal columns narrower and walk the whole project.
    return narrow(Effect.objects.filter(session=session), filters, now_us)


def narrow(effects: "QuerySet[Effect]", filters: Filters, now_us: int) -> "QuerySet[Effect]":
    """Those of `effects` that `filters` let through."""
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
    """The same of one effect in plain Python; `task` is the id of the one that the filters name by its number."""
    word = shown.shown_state(effect, now_us)
    late = word == shown.STATES[shown.UNKNOWN] and effect.state == "dispatched"
    bad = effect.outcome in ("error", "unknown") and effect.state not in ("compensated", "superseded")
    return (
        (not filters.state or word == shown.STATES[filters.state])
        and (not filters.problems or late or bad or effect.violates)
        and (not filters.outcome or effect.outcome == filters.outcome)
        and (filters.task is None or (task is not None and effect.task_id == task))
        and (not filters.tool or effect.tool == filters.tool)
    )


def has_news(session: Session, since: int) -> bool:
    """True when the book says something about the session after `since` (a position up to which it had settled)."""
    return Entry.objects.filter(session=session.id, position__gt=since).exists()
