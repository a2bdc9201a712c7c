"""Kinds of sessions on the session list with their numbers, and the orders of the list.

Every order is paged by a value and a position, so a page costs the same at any depth. Problems are
counted over the project first, because few effects have one.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from accounts.models import Project
from approvals.models import Gate
from display import display_state
from display.keyset_pagination import MAX_POSITION
from ledger import violations
from ledger.models import Effect
from monitoring import stuck_counts
from recovery import liveness
from sessions.models import ENDED, Session

# Value of `show` -> words of its tab.
KINDS: Final = {
    "attention": "Needs attention",
    "running": "Running",
    "waiting": "Waiting",
    "failed": "Failed",
    "ended": "Ended",
    "imported": "Reported or imported",
}
# Value of `sort` -> words, and the column; problems are counted and have none.
SORTS: Final = {
    "": ("Start", "opened_position"),
    "seen": ("Last act", "seen_at_us"),
    "effects": ("Effects", "effect_count"),
    "problems": ("Problems", ""),
}
MAX_PROBLEM_SESSIONS: Final = 500  # sessions with the most problems that one order holds
MAX_READ: Final = 20_000  # effects with problems that are counted for one page


def kind_condition(project: Project, kind: str, now_us: int) -> Q:
    """Return the condition of the sessions of a kind; none for an unknown one."""
    gone = liveness.worker_gone_condition(now_us)
    if kind == "attention":
        stuck = stuck_counts.query_raised_episodes(project.id, now_us)
        violating = violations.query_unacknowledged(project.id)
        return (
            gone
            | Q(id__in=stuck.filter(session__isnull=False).values("session"))
            | Q(id__in=violating.order_by().values("session"))
        )
    if kind == "running":
        return Q(status="running") & ~Q(mode="reported") & ~gone
    if kind == "waiting":
        pending = Gate.objects.filter(project=project, status="pending")
        return Q(status="waiting") | Q(id__in=pending.values("session"))
    return {
        "failed": Q(status="failed"),
        "ended": Q(status__in=ENDED),
        "imported": Q(mode="reported"),
    }.get(kind, Q())


def count_kinds(project: Project, now_us: int) -> dict[str, int]:
    """Return the number of sessions of each kind. One query."""
    counts: dict[str, int] = project.sessions.aggregate(
        **{kind: Count("id", filter=kind_condition(project, kind, now_us)) for kind in KINDS}
    )
    return counts


@dataclass(frozen=True, slots=True)
class SortedPlace:
    """Where a page of an order begins: after the row with this value and position."""

    value: int
    position: int

    def __str__(self) -> str:
        return f"{self.value}.{self.position}"


def parse_sorted_place(text: str) -> SortedPlace | None:
    """Return the place that `text` names, None for other text."""
    value, dot, position = text.partition(".")
    numbers = [part for part in (value, position) if part.isascii() and part.isdigit()]
    if not dot or len(numbers) != 2 or any(int(number) > MAX_POSITION for number in numbers):
        return None
    return SortedPlace(int(value), int(position))


@dataclass(slots=True)
class SortedPage:
    """Rows in their order; `further` is where the next page begins."""

    rows: list[Any] = field(default_factory=list)
    further: SortedPlace | None = None


def load_sorted_page(
    sessions: "QuerySet[Session]",
    project: Project,
    sort: str,
    size: int,
    place: SortedPlace | None,
    now_us: int,
) -> SortedPage:
    """Return a page of `sessions`, greatest value first. One query, two by problems."""
    if sort == "problems":
        return _page_by_problems(sessions, project, size, place, now_us)
    column = SORTS[sort][1]
    if place is not None:
        equal = Q(**{column: place.value}, opened_position__lt=place.position)
        sessions = sessions.filter(Q(**{f"{column}__lt": place.value}) | equal)
    rows = list(sessions.order_by(f"-{column}", "-opened_position")[: size + 1])
    last = rows[size - 1] if len(rows) > size else None
    further = SortedPlace(getattr(last, column), last.opened_position) if last is not None else None
    return SortedPage(rows[:size], further)


def _page_by_problems(
    sessions: "QuerySet[Session]",
    project: Project,
    size: int,
    place: SortedPlace | None,
    now_us: int,
) -> SortedPage:
    numbers = dict(count_problems(project, now_us).most_common(MAX_PROBLEM_SESSIONS))
    rows = list(sessions.filter(id__in=list(numbers)))
    rows.sort(key=lambda row: (numbers[row.id], row.opened_position), reverse=True)
    if place is not None:
        after = (place.value, place.position)
        rows = [row for row in rows if (numbers[row.id], row.opened_position) < after]
    last = rows[size - 1] if len(rows) > size else None
    further = SortedPlace(numbers[last.id], last.opened_position) if last is not None else None
    return SortedPage(rows[:size], further)


def count_problems(
    project: Project, now_us: int, sessions: "list[UUID] | None" = None
) -> Counter[UUID]:
    """Return the number of effects with a problem by session, of all or of `sessions`.

    One query: bad outcomes, missing answers and violations each have an index of their own.
    """
    arms = []
    for condition in display_state.problem_conditions(now_us):
        rows = Effect.objects.filter(condition, project=project)
        rows = rows if sessions is None else rows.filter(session__in=sessions)
        arms.append(rows.order_by().values("session").annotate(number=Count("id")))
    numbers: Counter[UUID] = Counter()
    for row in arms[0].union(*arms[1:], all=True)[:MAX_READ]:
        numbers[row["session"]] += row["number"]
    return numbers
