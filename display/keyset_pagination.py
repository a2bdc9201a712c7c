"""Keyset pagination, newest first.

Each page costs one index range at any depth, and pages stay correct while rows are added.
"""

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
    """The requested page: `before`, `after` or around (`at`) a row; at most one is set.

    Rows above `upto` are left out of pages other than those around a row.
    """

    before: int | None = None
    after: int | None = None
    at: int | None = None
    upto: int | None = None


@dataclass(slots=True)
class Page(Generic[Row]):
    """Rows, newest first.

    `older` and `newer` are the values of `before` and `after` for the adjacent pages.
    """

    rows: list[Row] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None


Stages = Sequence[Sequence["QuerySet[Any]"]]


def load_keyset_page(rows: "QuerySet[Any]", size: int, window: Window) -> Page[Any]:
    """Return one page of `size` rows. One query; two around a row."""
    return _load_page([[rows]], size, window)


def merge_pages(
    arms: "Iterable[QuerySet[Any]]", rows: "QuerySet[Any]", size: int, window: Window
) -> Page[Any]:
    """Return one page of several disjoint querysets of a table.

    One query for each arm, and one for `rows` by id. The arms select only ids and positions, so
    that each can use its own index, and the joins of `rows` cannot change the plan.
    """
    return page_in_stages([list(arms)], lambda ids: rows.filter(pk__in=ids), size, window)


def gather_page(
    arms: "Iterable[QuerySet[Any]]", rows: "QuerySet[Any]", size: int, window: Window
) -> Page[Any]:
    """Return a page of a few arms, found fast by id, in one or two queries."""
    together: Any = _CombinedArms(list(arms), rows)
    return _load_page([[together]], size, window)


@dataclass(frozen=True, slots=True)
class _CombinedArms:
    """A minimal queryset of `rows` for pagination: the nearest rows of each arm."""

    arms: "list[QuerySet[Any]]"
    rows: "QuerySet[Any]"
    order: str = ""

    def filter(self, **where: int) -> "_CombinedArms":
        return replace(self, arms=[arm.filter(**where) for arm in self.arms])

    def order_by(self, order: str) -> "_CombinedArms":
        return replace(self, order=order)

    def __getitem__(self, nearest: slice) -> "QuerySet[Any]":
        parts = [arm.order_by(self.order).values("pk")[nearest] for arm in self.arms]
        if len(parts) > 1:  # SQLite allows no ORDER BY or LIMIT in a part of a UNION.
            ids = [
                self.rows.model._default_manager.filter(pk__in=part).values("pk") for part in parts
            ]
            parts = [ids[0].union(*ids[1:], all=True)]
        return self.rows.filter(pk__in=parts[0]).order_by(self.order)[nearest]


def page_in_stages(
    stages: Stages, by_id: Callable[[list[Any]], Iterable[Any]], size: int, window: Window
) -> Page[Any]:
    """Return one page of arms in stages.

    All rows of a stage are older than those of the stages before it; its arms are queried only if
    these had too few rows. `by_id` loads rows by their ids.
    """
    keys_page = _load_page(
        [[arm.values_list("pk", "opened_position", named=True) for arm in arms] for arms in stages],
        size,
        window,
    )
    ids = [row.pk for row in keys_page.rows]
    rows_by_id = {row.pk: row for row in by_id(ids)} if ids else {}
    keys_page.rows = [rows_by_id[row.pk] for row in keys_page.rows if row.pk in rows_by_id]
    return keys_page


def _load_page(arms: Stages, size: int, window: Window) -> Page[Any]:
    if window.at is not None:
        ahead = _load_newer(arms, window.at - 1, size // 2 + 1)
        has_newer = len(ahead) > size // 2
        ahead = ahead[1:] if has_newer else ahead
        behind = _load_older(arms, window.at, size - len(ahead) + 1)
        return _build_page([*ahead, *behind], size, has_newer=has_newer)
    if window.after is not None:
        rows = _load_newer(arms, window.after, size + 1, window.upto)
        has_newer = len(rows) > size
        rows = rows[-size:]
        page = _build_page(rows, size, has_newer=has_newer)
        page.older = rows[-1].opened_position if rows else window.after + 1
        return page
    below = window.before
    if window.upto is not None and (below is None or below > window.upto):
        below = window.upto + 1
    return _build_page(
        _load_older(arms, below, size + 1), size, has_newer=window.before is not None
    )


def _build_page(rows: list[Any], size: int, *, has_newer: bool) -> Page[Any]:
    has_older = len(rows) > size
    rows = rows[:size]
    return Page(
        rows,
        older=rows[-1].opened_position if rows and has_older else None,
        newer=rows[0].opened_position if rows and has_newer else None,
    )


def _load_older(stages: Stages, before: int | None, limit: int) -> list[Any]:
    """Return the next `limit` rows below `before`, or the newest ones, newest first."""
    older_rows: list[Any] = []
    for arms in stages:
        stage_rows: list[Any] = []
        for rows in arms:
            below = rows if before is None else rows.filter(opened_position__lt=before)
            stage_rows += below.order_by("-opened_position")[: limit - len(older_rows)]
        older_rows += _sort_newest_first(stage_rows)[: limit - len(older_rows)]
        if len(older_rows) >= limit:
            break
    return older_rows


def _load_newer(stages: Stages, after: int, limit: int, upto: int | None = None) -> list[Any]:
    """Return the next `limit` rows above `after`, up to `upto`, newest first."""
    newer_rows: list[Any] = []
    for arms in reversed(stages):
        stage_rows: list[Any] = []
        for rows in arms:
            above = rows.filter(opened_position__gt=after)
            above = above if upto is None else above.filter(opened_position__lte=upto)
            stage_rows += above.order_by("opened_position")[: limit - len(newer_rows)]
        newer_rows = [*_sort_newest_first(stage_rows)[len(newer_rows) - limit :], *newer_rows]
        if len(newer_rows) >= limit:
            break
    return newer_rows


def _sort_newest_first(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row.opened_position, reverse=True)
