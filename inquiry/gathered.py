"""Timeline of effects of several sessions (incident or chain).

One lane per session.

A window has at most lanes.MOST effects, found by position: all effects of sessions, and single
effects.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import F

from inquiry import clocks, keyset, lanes, timeline
from inquiry.bars import Beside, Lanes
from inquiry.beside import OF_SEVERAL, OURS
from inquiry.lanes import BESIDE, ENTRY, annotated
from inquiry.timeline import Filters
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session


def read(
    whole: Sequence[UUID],
    single: Sequence[UUID],
    filters: Filters,
    window: keyset.Window,
    now_us: int,
    *,
    size: int,
    clock: str,
    three: bool = False,
) -> Lanes:
    """Return a window of the effects of `whole` sessions and of `single` effects.

    All are of the member's project. `three`: all clocks are shown, so the skew of each session is
    read.
    """
    arms = []
    if whole:
        arms.append(timeline.narrow(Effect.objects.filter(session__in=whole), filters, now_us))
    if single:
        single_effects = Effect.objects.filter(id__in=single).exclude(session__in=whole)
        arms.append(timeline.narrow(single_effects, filters, now_us))
    rows = annotated(Effect.objects.select_related("session__agent")).annotate(
        session_position=F("session__opened_position")
    )
    if whole:
        page = keyset.gather(arms, rows, size, window)
    else:  # few rows, found by their ids with any filter
        page = keyset.page(
            timeline.narrow(rows.filter(id__in=single), filters, now_us), size, window
        )
    window_shown = Lanes(
        clock, older=page.older, newer=page.newer, size=size, now_us=now_us, across=True
    )
    effects = list(reversed(page.rows))
    sessions: dict[UUID, Session] = {effect.session_id: effect.session for effect in effects}
    for session in sessions.values():
        window_shown.tasks[session.id] = (
            str(session),
            f"{session} {session.title or session.key}",
            session.agent.name,
        )
    window_shown.skews = clocks.skews(list(sessions.values()), wanted=three or clock == "corrected")
    entries = lanes.add_bars(window_shown, effects)
    if entries:
        until_position = None if whole and window_shown.is_newest else entries[-1]["position"]
        window_shown.beside = _beside(
            window_shown, sessions, entries[0]["position"], until_position
        )
    return window_shown


def _beside(
    window_shown: Lanes, sessions: dict[UUID, Session], low: int, until_position: int | None
) -> list[Beside]:
    """Return the events of these sessions between two positions, or since the first.

    One query.
    """
    entries = Entry.objects.filter(
        session__in=list(sessions), position__gte=low, effect=None, kind__in=OF_SEVERAL
    )
    if until_position is not None:
        entries = entries.filter(position__lte=until_position)
    entries = entries.exclude(lane="evidence", kind__in=OURS).exclude(lane="claim")
    rows = entries.order_by("-position").values(*ENTRY, "session")[:BESIDE]
    return [
        lanes.of_session(entry, window_shown.clock, window_shown.skews.get(entry["session"]))
        for entry in reversed(rows)
    ]
