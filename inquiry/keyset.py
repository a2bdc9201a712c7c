"""Paging by key, newest first: every page costs one index range, however deep, and stays true while rows arrive."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from django.db.models import QuerySet

MAX_POSITION = 2**63 - 1


class HasPosition(Protocol):
    """A row with its handle's number."""

    opened_position: Any


Row = TypeVar("Row", bound=HasPosition)


@dataclass(frozen=True, slots=True)
class Window:
    """Which page is asked for: rows older than `before`, newer than `after`, or around `at` (at most one)."""

    before: int | None = None
    after: int | None = None
    at: int | None = None


@dataclass(slots=True)
class Page(Generic[Row]):
    """Rows newest first. `older` and `newer` are what to pass as `before` and `after` for the neighbouring pages."""

    rows: list[Row] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None


Stages = Sequence[Sequence["QuerySet[Any]"]]


def page(rows: "QuerySet[Any]", size: int, window: Window) -> Page[Any]:
    """Cut one page of `size` rows out of `rows` (any order, any filter). Costs one query; two around a row."""
    return _cut([[rows]], size, window)


def merge(arms: "Iterable[QuerySet[Any]]", rows: "QuerySet[Any]", size: int, window: Window) -> Page[Any]:
    """Cut one page out of several disjoint query sets of one table: a query for each arm, and one for `rows` by id.

    The arms find ids and positions alone. So each is served by its own index where their union would have none, and
    what `rows` joins cannot tempt a planner away from it.
    """
    return fall([list(arms)], rows, size, window)


def gather(arms: "Iterable[QuerySet[Any]]", rows: "QuerySet[Any]", size: int, window: Window) -> Page[Any]:
    """The same in one query, two around a row, for arms that are few and rows that are found fast by their ids."""
    together: Any = _Together(list(arms), rows)
    return _cut([[together]], size, window)


@dataclass(frozen=True, slots=True)
class _Together:
    """As much of a query set of `rows` as cutting a page takes: those of the arms, the nearest of each being enough."""

    arms: "list[QuerySet[Any]]"
    rows: "QuerySet[Any]"
    order: str = ""

    def filter(self, **where: int) -> "_Together":
        return replace(self, arms=[arm.filter(**where) for arm in self.arms])

    def order_by(self, order: str) -> "_Together":
        return replace(self, order=order)

    def __getitem__(self, nearest: slice) -> "QuerySet[Any]":
        parts = [arm.order_by(self.order).values("pk")[nearest] for arm in self.arms]
        if len(parts) > 1:  # SQLite takes no part with an order and a limit of its own
            ids = [self.rows.model._default_manager.filter(pk__in=part).values("pk") for part in parts]
            parts = [ids[0].union(*ids[1:], all=True)]
        return self.rows.filter(pk__in=parts[0]).order_by(self.order)[nearest]


def fall(
    stages: Stages,
    rows: "QuerySet[Any]",
    size: int,
    window: Window,
    by_id: "Callable[[list[Any]], Iterable[Any]] | None" = None,
) -> Page[Any]:
    """The same of arms by stages. All rows of a stage are older than those of the stages before it, and its arms are
    asked only where those were not enough. `by_id`, where it is given, reads what `rows` would.
    """
    found = _cut(
        [[arm.values_list("pk", "opened_position", named=True) for arm in arms] for arms in stages], size, window
    )
    ids = [row.pk for row in found.rows]
    read = (by_id(ids) if by_id is not None else rows.filter(pk__in=ids)) if ids else []
    whole = {row.pk: row for row in read}
    found.rows = [whole[row.pk] for row in found.rows if row.pk in whole]
    return found


def _cut(arms: Stages, size: int, window: Window) -> Page[Any]:
    if window.at is not None:
        ahead = _newer(arms, window.at - 1, size // 2 + 1)
        has_newer = len(ahead) > size // 2
        ahead = ahead[1:] if has_newer else ahead
        behind = _older(arms, window.at, size - len(ahead) + 1)
        return _page([*ahead, *behind], size, has_newer=has_newer)
    if window.after is not None:
        rows = _newer(arms, window.after, size + 1)
        has_newer = len(rows) > size
        rows = rows[-size:]
        page = _page(rows, size, has_newer=has_newer)
        page.older = rows[-1].opened_position if rows else window.after + 1
        return page
    return _page(_older(arms, window.before, size + 1), size, has_newer=window.before is not None)


def _page(rows: list[Any], size: int, *, has_newer: bool) -> Page[Any]:
    has_older = len(rows) > size
    rows = rows[:size]
    return Page(
        rows,
        older=rows[-1].opened_position if rows and has_older else None,
        newer=rows[0].opened_position if rows and has_newer else None,
    )


def _older(stages: Stages, before: int | None, limit: int) -> list[Any]:
    """The `limit` rows next below `before`, or the newest, newest first."""
    found: list[Any] = []
    for arms in stages:
        here: list[Any] = []
        for rows in arms:
            below = rows if before is None else rows.filter(opened_position__lt=before)
            here += below.order_by("-opened_position")[: limit - len(found)]
        found += _newest_first(here)[: limit - len(found)]
        if len(found) >= limit:
            break
    return found


def _newer(stages: Stages, after: int, limit: int) -> list[Any]:
    """The `limit` rows next above `after`, newest first."""
    found: list[Any] = []
    for arms in reversed(stages):
        here: list[Any] = []
        for rows in arms:
            above = rows.filter(opened_position__gt=after).order_by("opened_position")
            here += above[: limit - len(found)]
        found = [*_newest_first(here)[len(found) - limit :], *found]
        if len(found) >= limit:
            break
    return found


def _newest_first(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row.opened_position, reverse=True)
