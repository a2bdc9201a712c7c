"""Stream all matches of a query, newest first, in chunks.

Each chunk is a short read; no result set is held in memory. As of a moment, rows that change during
the read are rebuilt: after each chunk, the journal is checked for later entries of its rows. So the
complete output is of one moment.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from investigation.history import past_rows as asof_rows
from investigation.query import as_of, execute
from investigation.query.as_of import PastState
from investigation.query.execute import SLOW_WINDOW, CompiledQuery

CHUNK_ROWS: Final = 1_000  # Rows that are read at a time.
REBUILT_AT_ONCE: Final = 500  # Rows that are rebuilt at a time.
_MOST: Final = 2**63 - 1

Rows = Callable[["QuerySet[Any]"], "QuerySet[Any]"]


def stream_matches(compiled: CompiledQuery, rows: Rows) -> Iterator[list[Any]]:
    """Yield all matches, newest first, in chunks.

    `rows` adds the display columns to a query of complete rows. A chunk is empty if a window of an
    unindexed search has no matches. Raises QueryError if more rows change during the read than can
    be rebuilt.
    """
    top = min(_MOST, execute.newest_position(compiled) + 1)
    changed: dict[UUID, int] = {}
    while top > 0:
        lowest = max(top - SLOW_WINDOW, 0) if compiled.slow else 0
        chunk = _read_chunk(compiled, rows, lowest, top)
        for _ in range(execute.MAX_REREADS):
            refreshed = execute.refresh_related_rows(compiled)
            if refreshed is compiled:
                break
            compiled = refreshed
            chunk = _read_chunk(compiled, rows, lowest, top)
        bottom = chunk[-1].opened_position if len(chunk) == CHUNK_ROWS else lowest
        if compiled.past is None:
            yield chunk
        else:
            past, newly_changed = as_of.find_changed_during_read(
                compiled.past, compiled.entity, compiled.context.project.id
            )
            compiled = replace(compiled, past=past)
            if newly_changed:
                compiled = execute.refresh_related_rows(compiled)
            changed |= {pk: position for pk, position in newly_changed.items() if position < top}
            changed_in_chunk = sorted(
                ((at, pk) for pk, at in changed.items() if at >= bottom), reverse=True
            )
            for _, pk in changed_in_chunk:
                del changed[pk]
            yield from _apply_past_states(compiled, past, rows, chunk, changed_in_chunk)
        top = bottom


def _read_chunk(compiled: CompiledQuery, rows: Rows, lowest: int, top: int) -> list[Any]:
    """Return the newest matches below `top`, at most CHUNK_ROWS."""
    matching = rows(execute.matching_rows(compiled)).filter(opened_position__lt=top)
    matching = matching.filter(opened_position__gte=lowest) if lowest else matching
    return list(matching.order_by("-opened_position")[:CHUNK_ROWS])


def _apply_past_states(
    compiled: CompiledQuery,
    moment: PastState,
    rows: Rows,
    chunk: list[Any],
    changed: list[tuple[int, UUID]],
) -> Iterator[list[Any]]:
    """Yield `chunk` in the state of the moment.

    Rows that `changed` during the read are removed, and those that matched at the moment are added.
    """
    changed_ids = {pk for _, pk in changed}
    remaining = asof_rows.set_past_values(
        [row for row in chunk if row.pk not in changed_ids], moment.rebuilt_rows, moment.cut
    )
    for start in range(0, len(changed), REBUILT_AT_ONCE):
        part = changed[start : start + REBUILT_AT_ONCE]
        project, lowest = compiled.context.project, part[-1][0]
        rebuilt = as_of.rebuild_changed(
            compiled.entity, project.id, [pk for _, pk in part], moment.cut
        )
        matching_ids = as_of.select_matching_ids(
            rebuilt, compiled.entity, project, moment.cut, compiled.parts
        )
        past_rows = (
            list(rows(compiled.entity.select_project_rows(project).filter(pk__in=matching_ids)))
            if matching_ids
            else []
        )
        past_rows = asof_rows.set_past_values(past_rows, rebuilt, moment.cut)
        newer = [row for row in remaining if row.opened_position >= lowest]
        remaining = remaining[len(newer) :]
        yield sorted([*newer, *past_rows], key=lambda row: row.opened_position, reverse=True)
    yield remaining


__all__ = ["CHUNK_ROWS", "stream_matches"]
