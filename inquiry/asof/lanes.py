"""The timeline of a session in lanes as of a cut: the same window of the same rows, as they stood, and facts up to it.

Tasks are called by their keys, and who worked on them is left out: neither their titles nor heartbeats are made again.
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
    f"More than {pages.MOST_MOVED:,} effects of this session have changed since then: its lanes cannot be drawn as of"
    " then. Choose a later moment, or look at the effects in the table."
)


def read(
    project: Project, live: Session, cut: Cut, filters: Filters, window: Window, *, size: int, clock: str = ""
) -> tuple[Session, Lanes] | None:
    """The window of `live` (fetched through the wall) as of `cut`, and the session as it stood; None: it was not there.

    `clock` as lanes.CLOCKS; "" for the one that suits the session. Raises UnfitError where too much has changed since.
    """
    then = sessions.sessions(project.id, [live.id], cut).get(live.id)
    if then is None:
        return None
    moved = pages.moved(live.id, cut)
    if len(moved) > pages.MOST_MOVED:
        raise UnfitError(_TOO_MANY)
    again = replay.effects(project.id, moved, cut)
    there = Effect.objects.filter(opened_position__lte=cut.position)
    page = keyset.merge(_arms(live, filters, again, cut), annotated(there), size, window)
    found = Lanes(clock or lanes.clock_of({}, then), older=page.older, newer=page.newer, size=size, now_us=cut.at_us)
    found.upto = cut.position
    found.skews = clocks.skews([then], wanted=found.clock == "corrected", upto=cut.position)
    effects = list(reversed(page.rows))
    low = effects[0].opened_position if effects else 0
    if effects and found.is_newest and not filters:
        unmoved = lanes.still_open(live, low).exclude(pk__in=again)
        were = [pk for pk, row in again.items() if row.opened_position < low and _waited(row)]
        earlier = [*annotated(unmoved).order_by("-opened_position")[:STILL_OPEN], *annotated(there.filter(pk__in=were))]
        earlier.sort(key=lambda row: row.opened_position)
        effects = [*earlier[-STILL_OPEN:], *effects][-MOST:]
    for row in rows.as_they_were(effects, again, cut):
        row.task_title = row.task_worker = ""
    lanes.add_all(found, then, effects, low)
    return then, found


def _arms(live: Session, filters: Filters, again: dict[UUID, Effect], cut: Cut) -> list[Any]:
    """What the filters let through: of what has not changed as it stands, of the rest as it stood."""
    opened = Effect.objects.filter(session=live, opened_position__lte=cut.position)
    if not filters:
        return [opened]
    tasks = Task.objects.filter(session=live, opened_position=filters.task) if filters.task is not None else None
    task = tasks.values_list("id", flat=True).first() if tasks is not None else None
    met = [pk for pk, row in again.items() if timeline.lets_through(filters, row, task, cut.at_us)]
    unmoved = timeline.narrow(opened, filters, cut.at_us).exclude(pk__in=again)
    return [unmoved, opened.filter(pk__in=met)]


def _waited(row: Effect) -> bool:
    return row.state in OPEN and (row.state == "dispatched" or (row.state == "planned" and row.leave == "pending"))
