"""Reads all matches of a query, newest first, by chunks: each is a short read of its own, and none is held in memory.

As of a moment, what changes while it is read is made again too: rows are read, and then the journal is asked which of
them it says more of since. So the whole is of one moment, however long it takes, and whatever is done meanwhile.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from inquiry.asof import rows as asof_rows
from inquiry.query import asking, past
from inquiry.query.asking import SLOW_WINDOW, Asked
from inquiry.query.past import Past

CHUNK: Final = 1_000  # rows that are read at once
MADE_AT_ONCE: Final = 500  # … and made again
_MOST: Final = 2**63 - 1

Rows = Callable[["QuerySet[Any]"], "QuerySet[Any]"]


def stream(asked: Asked, rows: Rows) -> Iterator[list[Any]]:
    """All matches, newest first, by chunks; `rows` adds what the caller shows of them to a query of whole rows.

    A chunk may be empty: where no index serves the query, the matches of a stretch of the book in which there are none.
    Raises Fault where more changes meanwhile than can be made again.
    """
    top = min(_MOST, asking.newest(asked) + 1)
    changed: dict[UUID, int] = {}
    while top > 0:
        lowest = max(top - SLOW_WINDOW, 0) if asked.slow else 0
        chunk = _read(asked, rows, lowest, top)
        for _ in range(asking.LOOKS):
            if not asking.have_others_changed(asked):
                break
            chunk = _read(asked, rows, lowest, top)
        bottom = chunk[-1].opened_position if len(chunk) == CHUNK else lowest
        if asked.past is None:
            yield chunk
        else:
            news = past.changed_meanwhile(asked.past, asked.entity, asked.context.project.id)
            if news:
                asking.have_others_changed(asked)
            changed |= {pk: position for pk, position in news.items() if position < top}
            here = sorted(((at, pk) for pk, at in changed.items() if at >= bottom), reverse=True)
            for _, pk in here:
                del changed[pk]
            yield from _told(asked, asked.past, rows, chunk, here)
        top = bottom


def _read(asked: Asked, rows: Rows, lowest: int, top: int) -> list[Any]:
    """The newest matches below `top`, CHUNK at most."""
    found = rows(asking.matches(asked)).filter(opened_position__lt=top)
    found = found.filter(opened_position__gte=lowest) if lowest else found
    return list(found.order_by("-opened_position")[:CHUNK])


def _told(
    asked: Asked, moment: Past, rows: Rows, chunk: list[Any], changed: list[tuple[int, UUID]]
) -> Iterator[list[Any]]:
    """`chunk` as it was; what `changed` of it meanwhile is taken out, and what of that matched then is put in."""
    gone = {pk for _, pk in changed}
    kept = asof_rows.as_they_were([row for row in chunk if row.pk not in gone], moment.again, moment.cut)
    for start in range(0, len(changed), MADE_AT_ONCE):
        part = changed[start : start + MADE_AT_ONCE]
        project, lowest = asked.context.project, part[-1][0]
        again = past.again_meanwhile(asked.entity, project.id, [pk for _, pk in part], moment.cut)
        met = past.matching(again, asked.entity, asked.context, asked.parts)
        then = list(rows(asked.entity.of(project).filter(pk__in=met))) if met else []
        then = asof_rows.as_they_were(then, again, moment.cut)
        ahead = [row for row in kept if row.opened_position >= lowest]
        kept = kept[len(ahead) :]
        yield sorted([*ahead, *then], key=lambda row: row.opened_position, reverse=True)
    yield kept


__all__ = ["CHUNK", "stream"]
