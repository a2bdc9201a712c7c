"""The lane timeline of a session as of a cut: the same window of rows, as they were.

Tasks are shown by their keys and without workers: titles and heartbeats are not rebuilt.
"""

from typing import Any, Final
from uuid import UUID

from accounts.models import Project
from display import keyset_pagination
from display.keyset_pagination import Window
from investigation.history import past_effects as history_effects
from investigation.history import past_rows, past_sessions
from investigation.history.moment import CutError, JournalCut
from ledger.models import Effect
from ledger.states import OPEN_STATES
from pages.history import data
from pages.timeline import clock_skew, lanes
from pages.timeline.bars import TimelineWindow
from pages.timeline.filtered_effects import EffectFilters, filter_effects, matches_filters
from pages.timeline.lanes import MAX_BARS, MAX_EARLIER_OPEN, annotate_bars
from sessions.models import Session, Task

_TOO_MANY: Final = (
    f"More than {data.MAX_REBUILT_EFFECTS:,} effects of this session changed since then. "
    "Choose a later moment or use the effects table."
)


def load_past_lanes(
    project: Project,
    live: Session,
    cut: JournalCut,
    filters: EffectFilters,
    window: Window,
    *,
    size: int,
    clock: str = "",
) -> tuple[Session, TimelineWindow] | None:
    """Return the session and its lanes as of `cut`, or None if it did not exist yet.

    `live` must be of the project. `clock` is one of clock_skew.CLOCKS, or "" for the best one for
    the session. Raises CutError if too much has changed since.
    """
    past_session = past_sessions.rebuild_sessions(project.id, [live.id], cut).get(live.id)
    if past_session is None:
        return None
    moved = data.find_changed_effects(live.id, cut)
    if len(moved) > data.MAX_REBUILT_EFFECTS:
        raise CutError(_TOO_MANY)
    rebuilt = history_effects.rebuild_effects(project.id, moved, cut)
    past_effects = Effect.objects.filter(opened_position__lte=cut.position)
    page = keyset_pagination.merge_pages(
        _filtered_querysets(live, filters, rebuilt, cut),
        annotate_bars(past_effects),
        size,
        window,
    )
    past_lanes = TimelineWindow(
        lanes.choose_clock(clock, [past_session]),
        older=page.older,
        newer=page.newer,
        size=size,
        now_us=cut.at_us,
    )
    past_lanes.upto = cut.position
    past_lanes.skews = clock_skew.load_skews(
        [past_session], wanted=past_lanes.clock == "corrected", upto=cut.position
    )
    effects = list(reversed(page.rows))
    low = effects[0].opened_position if effects else 0
    if effects and past_lanes.is_newest and not filters:
        unmoved = lanes.open_effects_before(live, low).exclude(pk__in=rebuilt)
        open_then = [
            pk for pk, row in rebuilt.items() if row.opened_position < low and _is_open(row)
        ]
        earlier = [
            *annotate_bars(unmoved).order_by("-opened_position")[:MAX_EARLIER_OPEN],
            *annotate_bars(past_effects.filter(pk__in=open_then)),
        ]
        earlier.sort(key=lambda row: row.opened_position)
        effects = [*earlier[-MAX_EARLIER_OPEN:], *effects][-MAX_BARS:]
    for row in past_rows.set_past_values(effects, rebuilt, cut):
        row.task_title = row.task_worker = ""
    lanes.add_bars_and_events(past_lanes, past_session, effects, low)
    return past_session, past_lanes


def _filtered_querysets(
    live: Session, filters: EffectFilters, rebuilt: dict[UUID, Effect], cut: JournalCut
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
        pk for pk, row in rebuilt.items() if matches_filters(filters, row, task, cut.at_us)
    ]
    unmoved = filter_effects(opened, filters, cut.at_us).exclude(pk__in=rebuilt)
    return [unmoved, opened.filter(pk__in=matching_ids)]


def _is_open(row: Effect) -> bool:
    return row.state in OPEN_STATES and (
        row.state == "dispatched" or (row.state == "planned" and row.permission == "pending")
    )
