"""The timeline of effects that people gathered, of an incident or a chain, across sessions: a lane for each session.

A window is at most lanes.MOST effects, found by their positions in two arms: whole sessions, and effects by themselves.
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
    """A window of the effects of `whole` sessions and of `single` ones, all fetched through the wall.

    `three`: every clock is wanted, and so the skew of each session is read.
    """
    arms = []
    if whole:
        arms.append(timeline.narrow(Effect.objects.filter(session__in=whole), filters, now_us))
    if single:
        alone = Effect.objects.filter(id__in=single).exclude(session__in=whole)
        arms.append(timeline.narrow(alone, filters, now_us))
    rows = annotated(Effect.objects.select_related("session__agent")).annotate(
        session_position=F("session__opened_position")
    )
    if whole:
        page = keyset.gather(arms, rows, size, window)
    else:  # few, and found by their ids whatever else is asked
        page = keyset.page(timeline.narrow(rows.filter(id__in=single), filters, now_us), size, window)
    found = Lanes(clock, older=page.older, newer=page.newer, size=size, now_us=now_us, across=True)
    effects = list(reversed(page.rows))
    sessions: dict[UUID, Session] = {effect.session_id: effect.session for effect in effects}
    for one in sessions.values():
        found.tasks[one.id] = (str(one), f"{one} {one.title or one.key}", one.agent.name)
    found.skews = clocks.skews(list(sessions.values()), wanted=three or clock == "corrected")
    entries = lanes.add_bars(found, effects)
    if entries:
        until = None if whole and found.is_newest else entries[-1]["position"]
        found.beside = _beside(found, sessions, entries[0]["position"], until)
    return found


def _beside(found: Lanes, sessions: dict[UUID, Session], low: int, until: int | None) -> list[Beside]:
    """What happened to these sessions between two positions, or since the first of them. One query."""
    told = Entry.objects.filter(session__in=list(sessions), position__gte=low, effect=None, kind__in=OF_SEVERAL)
    if until is not None:
        told = told.filter(position__lte=until)
    told = told.exclude(lane="evidence", kind__in=OURS).exclude(lane="claim")
    rows = told.order_by("-position").values(*ENTRY, "session")[:BESIDE]
    return [lanes.of_session(entry, found.clock, found.skews.get(entry["session"])) for entry in reversed(rows)]
