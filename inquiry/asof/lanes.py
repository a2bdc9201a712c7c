"""The lane timeline of a session as of a cut: the same window of rows, as they were.

Tasks are shown by their keys and without workers: titles and heartbeats are not rebuilt.
"""

from typing import Any, Final
from uuid import UUID

from inquiry import clocks, keyset, lanes, timeline
from inquiry.asof import pages, replay, rows, sessions
from inquiry.asof.cut import Cut, UnfitError
from inquiry.bars import Lanes
from inquiry.keyset import Window
from inquiry.lanes import MOST, STILL_OPEN, annotated
from inquiry.timeline import Filters
from ledger.models import Effect
from ledger.states import OPEN
from sessions.models import Project, Session, Task

_TOO_MANY: Final = (
    f"More than {pages.MOST_MOVED:,} effects of this session changed since then. "
    "Choose a later moment or use the effects table."
)


def read(
    project: Project,
    live: Session,
    cut: Cut,
    filters: Filters,
    window: Window,
    *,
    size: int,
    clock: str = "",
) -> tuple[Session, Lanes] | None:
    """Return the session and its lanes as of `cut`, or None if it did not exist yet.

    `live` must be of the project. `clock` is one of lanes.CLOCKS, or "" for the best one for the
    session. Raises UnfitError if too much has changed since.
    """
    past_session = sessions.sessions(project.id, [live.id], cut).get(live.id)
    if past_session is None:
        return None
    moved = pages.moved(live.id, cut)
    if len(moved) > pages.MOST_MOVED:
        raise UnfitError(_TOO_MANY)
    rebuilt = replay.effects(project.id, moved, cut)
    past_effects = Effect.objects.filter(opened_position__lte=cut.position)
    page = keyset.merge(
        _filtered_querysets(live, filters, rebuilt, cut), annotated(past_effects), size, window
    )
    past_lanes = Lanes(
        clock or lanes.clock_of({}, past_session),
        older=page.older,
        newer=page.newer,
        size=size,
        now_us=cut.at_us,
    )
    past_lanes.upto = cut.position
    past_lanes.skews = clocks.skews(
        [past_session], wanted=past_lanes.clock == "corrected", upto=cut.position
    )
    effects = list(reversed(page.rows))
    low = effects[0].opened_position if effects else 0
    if effects and past_lanes.is_newest and not filters:
        unmoved = lanes.still_open(live, low).exclude(pk__in=rebuilt)
        open_then = [
            pk for pk, row in rebuilt.items() if row.opened_position < low and _is_open(row)
        ]
        earlier = [
            *annotated(unmoved).order_by("-opened_position")[:STILL_OPEN],
            *annotated(past_effects.filter(pk__in=open_then)),
        ]
        earlier.sort(key=lambda row: row.opened_position)
        effects = [*earlier[-STILL_OPEN:], *effects][-MOST:]
    for row in rows.as_they_were(effects, rebuilt, cut):
        row.task_title = row.task_worker = ""
    lanes.add_all(past_lanes, past_session, effects, low)
    return past_session, past_lanes


def _filtered_querysets(
    live: Session, filters: Filters, rebuilt: dict[UUID, Effect], cut: Cut
) -> list[Any]:
    """Return the rows that pass the filters: unchanged ones as stored, changed ones as rebuilt."""
    opened = Effect.objects.filter(session=live, opened_position__lte=cut.position)
    if not filters:
        return [opened]
    tasks = (
        Task.objects.filter(session=live, opened_position=filters.task)
        if filters.task is not None
        else None
    )
    task = tasks.values_list("id", flat=True).first() if tasks is not None else None
    matching_ids = [
        pk for pk, row in rebuilt.items() if timeline.lets_through(filters, row, task, cut.at_us)
    ]
    unmoved = timeline.narrow(opened, filters, cut.at_us).exclude(pk__in=rebuilt)
    return [unmoved, opened.filter(pk__in=matching_ids)]


def _is_open(row: Effect) -> bool:
    return row.state in OPEN and (
        row.state == "dispatched" or (row.state == "planned" and row.leave == "pending")
    )
