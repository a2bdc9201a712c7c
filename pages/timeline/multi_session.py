"""Timeline of effects of several sessions (incident or chain).

One lane per session.

A window has at most lanes.MAX_BARS effects, found by position: all effects of sessions, and single
effects.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import F

from display import keyset_pagination
from journal.models import Entry
from ledger.models import Effect
from pages.timeline import clock_skew, lanes
from pages.timeline.bars import (
    GATEBOOK_ONLY_KINDS,
    MULTI_SESSION_EVENT_KINDS,
    SessionEvent,
    TimelineWindow,
)
from pages.timeline.filtered_effects import EffectFilters, filter_effects
from pages.timeline.lanes import ENTRY_COLUMNS, MAX_EVENTS, annotate_bars
from sessions.models import Session


def load_multi_session_window(
    whole: Sequence[UUID],
    single: Sequence[UUID],
    filters: EffectFilters,
    window: keyset_pagination.Window,
    now_us: int,
    *,
    size: int,
    clock: str,
    three: bool = False,
) -> TimelineWindow:
    """Return a window of the effects of `whole` sessions and of `single` effects.

    `clock` is empty unless one is requested.
    All are of the member's project. `three`: all clocks are shown, so the skew of each session is
    read.
    """
    arms = []
    if whole:
        arms.append(filter_effects(Effect.objects.filter(session__in=whole), filters, now_us))
    if single:
        single_effects = Effect.objects.filter(id__in=single).exclude(session__in=whole)
        arms.append(filter_effects(single_effects, filters, now_us))
    rows = annotate_bars(Effect.objects.select_related("session__agent")).annotate(
        session_position=F("session__opened_position")
    )
    if whole:
        page = keyset_pagination.gather_page(arms, rows, size, window)
    else:  # few rows, found by their ids with any filter
        page = keyset_pagination.load_keyset_page(
            filter_effects(rows.filter(id__in=single), filters, now_us), size, window
        )
    effects = list(reversed(page.rows))
    sessions: dict[UUID, Session] = {effect.session_id: effect.session for effect in effects}
    window_shown = TimelineWindow(
        lanes.choose_clock(clock, sessions.values(), effects),
        older=page.older,
        newer=page.newer,
        size=size,
        now_us=now_us,
        across=True,
    )
    for session in sessions.values():
        window_shown.tasks[session.id] = (
            str(session),
            f"{session} {session.title or session.key}",
            session.agent.name,
        )
    window_shown.skews = clock_skew.load_skews(
        list(sessions.values()), wanted=three or window_shown.clock == "corrected"
    )
    entries = lanes.add_bars(window_shown, effects)
    if entries:
        until_position = None if whole and window_shown.is_newest else entries[-1]["position"]
        window_shown.session_events = _load_session_events(
            window_shown, sessions, entries[0]["position"], until_position
        )
    return window_shown


def _load_session_events(
    window_shown: TimelineWindow,
    sessions: dict[UUID, Session],
    low: int,
    until_position: int | None,
) -> list[SessionEvent]:
    """Return the sessions' events between positions, or since the first. One query."""
    entries = Entry.objects.filter(
        session__in=list(sessions),
        position__gte=low,
        effect=None,
        kind__in=MULTI_SESSION_EVENT_KINDS,
    )
    if until_position is not None:
        entries = entries.filter(position__lte=until_position)
    entries = entries.exclude(lane="evidence", kind__in=GATEBOOK_ONLY_KINDS).exclude(lane="claim")
    rows = entries.order_by("-position").values(*ENTRY_COLUMNS, "session")[:MAX_EVENTS]
    return [
        lanes.session_event(entry, window_shown.clock, window_shown.skews.get(entry["session"]))
        for entry in reversed(rows)
    ]
