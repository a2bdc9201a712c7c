"""Queries of the lanes timeline.

Effects of a window, their entries, and session events.

A window has at most MAX_BARS effects of one session, found by position, so every view costs the
same however long the session is: six queries.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import F, Q, QuerySet

from accounts.models import SAMPLE_IDS
from display import display_state, effect_runs, effect_table, keyset_pagination
from display.page_params import parse_number
from journal import imported_entries, summaries
from journal.models import Entry
from ledger.models import Effect
from ledger.open_effects import MAY_BE_OPEN
from ledger.states import OPEN_STATES
from pages.timeline import clock_skew
from pages.timeline.bars import (
    DEFAULT_SIZE,
    GATEBOOK_ONLY_KINDS,
    MINUTE_US,
    SESSION_EVENT_KINDS,
    Bar,
    SequenceGap,
    SessionEvent,
    Step,
    TimelineWindow,
)
from pages.timeline.clock_skew import CLOCKS, Skew
from pages.timeline.filtered_effects import EffectFilters, filtered_session_effects
from sessions.models import HeartbeatMinute, Session

MAX_BARS: Final = 500  # bars in one view
SIZES: Final = (
    30,
    60,
    120,
    250,
    MAX_BARS,
)  # effects in a window, from the closest zoom to the widest
MAX_EARLIER_OPEN: Final = 50  # open effects from before the window
MAX_ENTRIES: Final = 6_000
MAX_EVENTS: Final = 2_000
MAX_GAPS: Final = 10

# Entry kind -> step of the effect's bar.
STEP_OF_KIND: Final[dict[str, str]] = {
    "effect.planned": "planned",
    "gate.requested": "awaiting",
    "gate.voted": "voted",
    "gate.ruled": "ruled",
    "gate.expired": "ruled",
    "effect.granted": "granted",
    "effect.dispatched": "dispatched",
    "effect.acknowledged": "acknowledged",
    "effect.failed": "failed",
    "effect.probed": "probed",
    "effect.superseded": "superseded",
    "effect.resolved": "resolved",
    "effect.confirmed": "confirmed",
    "effect.unconfirmed": "confirmation withdrawn",
}
ENTRY_COLUMNS: Final = (
    "position",
    "kind",
    "effect",
    "attempt",
    "received_us",
    "occurred_us",
    "producer_seq",
    "source",
    "facts",
    "lease_epoch",
    "lane",
)


def parse_size(query: Mapping[str, str]) -> int:
    """Return the window size: the known size nearest to the one in the query string."""
    wanted = parse_number(query.get("size", ""), 5)
    return DEFAULT_SIZE if wanted is None else min(SIZES, key=lambda size: abs(size - wanted))


def choose_clock(requested: str, sessions: Iterable[Session], effects: Iterable[Any] = ()) -> str:
    """Return the clock of the axis: the requested one, else the one that shows when effects ran.

    Sessions reported after the event may arrive all at once, and those of a sample project did.
    Their clock is the agent's. So is that of live sessions if one of the `annotate_bars` effects
    was reported long after it ran; what has no time of an agent keeps the server's.
    """
    if requested in CLOCKS:
        return requested
    arrive_at_once = any(
        session.mode == "reported" or session.project_id.int in SAMPLE_IDS for session in sessions
    )
    is_late = arrive_at_once or any(map(effect_runs.is_reported_late, effects))
    return "agent" if is_late else "server"


def load_session_window(
    session: Session,
    filters: EffectFilters,
    window: keyset_pagination.Window,
    now_us: int,
    *,
    size: int,
    clock: str,
) -> TimelineWindow:
    """Return the window of the member's `session`, at most `size` effects.

    `clock` is empty unless one is requested.
    """
    page = keyset_pagination.load_keyset_page(
        annotate_bars(filtered_session_effects(session, filters, now_us)),
        size,
        window,
    )
    timeline_window = TimelineWindow(
        choose_clock(clock, [session], page.rows),
        older=page.older,
        newer=page.newer,
        size=size,
        now_us=now_us,
    )
    timeline_window.skews = clock_skew.load_skews([session], wanted=clock == "corrected")
    effects = list(reversed(page.rows))
    low = effects[0].opened_position if effects else 0
    if effects and timeline_window.is_newest and not filters:
        earlier = list(
            annotate_bars(open_effects_before(session, low)).order_by("-opened_position")[
                :MAX_EARLIER_OPEN
            ]
        )
        effects = [*reversed(earlier), *effects][-MAX_BARS:]
    add_bars_and_events(timeline_window, session, effects, low)
    if timeline_window.older is not None or timeline_window.newer is not None:
        timeline_window.whole_us = session.created_at_us, now_us
    return timeline_window


def build_page_window(session: Session, page: effect_table.Timeline, now_us: int) -> TimelineWindow:
    """Return the window of the effects that a page of the effect table shows.

    Without gaps of sequence numbers. Three queries.
    """
    effects = [row.effect for row in reversed(page.rows)]
    clock = choose_clock("", [session], effects)
    window = TimelineWindow(clock, older=page.older, newer=page.newer, now_us=now_us)
    low = effects[0].opened_position if effects else 0
    add_bars_and_events(window, session, effects, low, with_gaps=False)
    if window.older is not None or window.newer is not None:
        window.whole_us = session.created_at_us, now_us
    return window


def open_effects_before(session: Session, low: int) -> "QuerySet[Effect]":
    """Return effects before `low` that are dispatched or waiting for approval."""
    waits = Q(state="dispatched") | Q(state="planned", permission="pending")
    return Effect.objects.filter(
        MAY_BE_OPEN, waits, session=session, state__in=OPEN_STATES, opened_position__lt=low
    )


def add_bars_and_events(
    timeline_window: TimelineWindow,
    session: Session,
    effects: Sequence[Any],
    low: int,
    *,
    with_gaps: bool = True,
) -> None:
    """Add the bars of the `annotate_bars` effects, oldest first, and session events.

    Events are read from the position `low` on.
    """
    entries = add_bars(timeline_window, effects)
    for effect in effects:
        if effect.task_id is not None:
            title = effect.task_title or effect.task_key or ""
            timeline_window.tasks[effect.task_id] = (
                f"t_{effect.task_position}",
                title,
                effect.task_worker or "",
            )
    high = (
        timeline_window.upto
        if timeline_window.is_newest
        else max((entry["position"] for entry in entries), default=timeline_window.upto)
    )
    within = Entry.objects.filter(
        session=session.id, position__gte=low if effects and timeline_window.older else 0
    )
    within = within.exclude(lane="claim")
    if high is not None:
        within = within.filter(position__lte=high)
    session_entries = within.filter(effect=None, kind__in=SESSION_EVENT_KINDS).exclude(
        lane="evidence", kind__in=GATEBOOK_ONLY_KINDS
    )
    event_rows = session_entries.order_by("-position").values(*ENTRY_COLUMNS)[:MAX_EVENTS]
    timeline_window.session_events = [
        session_event(entry, timeline_window.clock, timeline_window.skews.get(session.id))
        for entry in reversed(event_rows)
    ]
    if with_gaps:
        timeline_window.gaps = _load_gaps(session, within, timeline_window)
    if (
        session.fence is not None and timeline_window.upto is None
    ):  # heartbeats are not in the journal
        timeline_window.minutes = _load_heartbeat_minutes(session, timeline_window)


def add_bars(timeline_window: TimelineWindow, effects: Sequence[Any]) -> list[dict[str, Any]]:
    """Add bars for `annotate_bars` effects; return their entries. One query."""
    entries = _load_moving_entries([row.id for row in effects], timeline_window.upto)
    timeline_window.cut = len(entries) > MAX_ENTRIES
    by_effect: dict[UUID, list[dict[str, Any]]] = {}
    for entry in entries[:MAX_ENTRIES]:
        by_effect.setdefault(entry["effect"], []).append(entry)
    for effect in effects:
        bar = _build_bar(effect, by_effect.get(effect.id, []), timeline_window)
        if timeline_window.upto is None:  # rows of the present say nothing about a past moment
            bar.run = effect_runs.read_run_times(effect)
            timeline_window.reported_late += effect_runs.is_reported_late(effect)
        if bar.steps:
            timeline_window.bars.append(bar)
    return entries


def _load_heartbeat_minutes(
    session: Session, timeline_window: TimelineWindow
) -> list[tuple[int, int, int]]:
    """Return the heartbeats and progress reports per minute within the window."""
    moments = [step.server_us for bar in timeline_window.bars for step in bar.steps] + [
        event.at_us for event in timeline_window.session_events
    ]
    if not moments or timeline_window.clock != "server":
        return []
    rows = HeartbeatMinute.objects.filter(
        lease__session=session, lease__kind="session", minute__gte=min(moments) // MINUTE_US
    )
    if not timeline_window.is_newest:
        rows = rows.filter(minute__lte=max(moments) // MINUTE_US)
    counted = rows.order_by("-minute").values_list("minute", "heartbeats", "progresses")[
        :MAX_EVENTS
    ]
    return [
        (minute * MINUTE_US, heartbeats, progresses)
        for minute, heartbeats, progresses in reversed(counted)
    ]


def annotate_bars(rows: "QuerySet[Effect]") -> "QuerySet[Effect]":
    """Add the columns that name a bar and its lane."""
    return effect_runs.annotate_runs(rows).annotate(
        plan_head=summaries.select_plan_heads(),
        task_position=F("task__opened_position"),
        task_title=F("task__title"),
        task_key=F("task__key"),
        task_worker=F("task__worker"),
    )


def _load_moving_entries(effects: list[UUID], upto: int | None) -> list[dict[str, Any]]:
    """Return the entries that move bars, in journal order."""
    until_position = keyset_pagination.MAX_POSITION if upto is None else upto
    entries = Entry.objects.filter(
        effect__in=effects, kind__in=list(STEP_OF_KIND), position__lte=until_position
    )
    entries = entries.exclude(lane="claim")
    return list(entries.order_by("position").values(*ENTRY_COLUMNS)[: MAX_ENTRIES + 1])


def _entry_time_us(entry: Mapping[str, Any], clock: str, skew: Skew | None = None) -> int:
    agent_us: int | None = None if clock == "server" else entry["occurred_us"]
    agent_us = clock_skew.corrected_us(agent_us, skew) if clock == "corrected" else agent_us
    return _received_us(entry) if agent_us is None else agent_us


def _received_us(entry: Mapping[str, Any]) -> int:
    return imported_entries.original_received_us(
        entry["source"], entry["facts"], entry["received_us"]
    )


def _build_bar(
    effect: Any, entries: Iterable[Mapping[str, Any]], timeline_window: TimelineWindow
) -> Bar:
    steps = [
        Step(
            _entry_time_us(
                entry, timeline_window.clock, timeline_window.skews.get(effect.session_id)
            ),
            STEP_OF_KIND[entry["kind"]],
            entry["attempt"],
            entry["position"],
            _received_us(entry),
            entry["lane"],
            _answer_outcome(entry),
            entry["occurred_us"],
        )
        for entry in entries
    ]
    # Entries may arrive late. By the shown clock, an answer always follows its dispatch.
    steps.sort(
        key=lambda step: (
            step.attempt or 0 if step.what in _OF_ATTEMPTS else 0,
            step.at_us,
            step.position,
        )
    )
    steps.sort(key=lambda step: step.at_us)
    return Bar(
        effect,
        steps,
        display_state.derive_shown_state(effect, timeline_window.now_us),
        summaries.summarize_plan_head(effect.plan_head) or "",
    )


def _answer_outcome(entry: Mapping[str, Any]) -> str:
    """Return the outcome of an acknowledgement; empty for other entries."""
    if entry["kind"] != "effect.acknowledged":
        return ""
    return str(orjson.loads(entry["facts"]).get("outcome", ""))


_OF_ATTEMPTS: Final = frozenset({"dispatched", "acknowledged", "failed", "probed"})


def session_event(entry: Mapping[str, Any], clock: str, skew: Skew | None) -> SessionEvent:
    """Return the event of a session; `entry` has the columns of ENTRY_COLUMNS."""
    return SessionEvent(
        _entry_time_us(entry, clock, skew),
        entry["kind"],
        entry["position"],
        entry["facts"],
        entry["lease_epoch"],
    )


def _load_gaps(
    session: Session, within: "QuerySet[Entry]", timeline_window: TimelineWindow
) -> list[SequenceGap]:
    """Return sequence numbers missing between the first and last in this window.

    A producer counts over all of its sessions, so numbers found in another session are not missing.
    Gaps whose neighbors are too far apart in the journal are not reported.
    """
    by_source: dict[str, dict[int, tuple[int, int]]] = {}
    numbered = (
        within.filter(producer_seq__isnull=False).order_by("-position").values(*ENTRY_COLUMNS)
    )
    for entry in numbered[:MAX_ENTRIES]:
        by_source.setdefault(entry["source"], {})[entry["producer_seq"]] = (
            entry["position"],
            _entry_time_us(entry, timeline_window.clock),
        )
    gaps: list[SequenceGap] = []
    between = Q()
    for source, numbers in sorted(by_source.items()):
        for before, after in pairwise(sorted(numbers)):
            low, high = sorted((numbers[before][0], numbers[after][0]))
            if after - before > 1 and high - low <= _NEAR and len(gaps) < MAX_GAPS:
                gaps.append(SequenceGap(source, before + 1, after - 1, numbers[after][1]))
                hole = Q(producer_seq__gt=before, producer_seq__lt=after, source=source)
                between |= hole & Q(position__gt=low - _NEAR, position__lt=high + _NEAR)
    if not gaps:
        return []
    between &= Q(
        position__lte=keyset_pagination.MAX_POSITION
        if timeline_window.upto is None
        else timeline_window.upto
    )
    elsewhere = Entry.objects.filter(between, project=session.project_id).values_list(
        "source", "producer_seq"
    )
    return _subtract_numbers(gaps, set(elsewhere[:MAX_ENTRIES]))


_NEAR: Final = 5_000  # positions before and after a gap that are searched for late numbers


def _subtract_numbers(
    gaps: list[SequenceGap], numbers: set[tuple[str, int | None]]
) -> list[SequenceGap]:
    """Return the gaps that remain after numbers of other sessions are removed."""
    remaining: list[SequenceGap] = []
    for gap in gaps:
        filled = sorted(
            number for source, number in numbers if source == gap.source and number is not None
        )
        edges = [
            gap.first - 1,
            *(filled_number for filled_number in filled if gap.first <= filled_number <= gap.last),
            gap.last + 1,
        ]
        holes = [(low + 1, high - 1) for low, high in pairwise(edges) if high - low > 1]
        remaining += [SequenceGap(gap.source, first, last, gap.at_us) for first, last in holes]
    return remaining[:MAX_GAPS]
