"""What the timeline in lanes reads: the effects of a window with each fact that moved them, and what stood beside them.

A window is a stretch of at most `MOST` effects of one session, found by their positions, so every view of it costs the
same however long the session is: six queries.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import F, Q, QuerySet

from inquiry import clocks, keyset, shown, timeline
from inquiry.bars import MINUTE_US, USUAL, Bar, Beside, Gap, Lanes, Step
from inquiry.beside import OF_SESSION, OURS
from inquiry.clocks import CLOCKS, Skew
from inquiry.timeline import Filters
from journal import brought, gists
from journal.models import Entry
from ledger.models import Effect
from ledger.settling import MAY_BE_OPEN
from ledger.states import OPEN
from sessions.models import Session
from sessions.models_leases import BeatMinute

MOST: Final = 500  # bars in one view
SIZES: Final = (30, 60, 120, 250, MOST)  # effects in a window, from the closest look to the widest
STILL_OPEN: Final = 50  # effects that were opened before the window and are open yet
FACTS: Final = 6_000
BESIDE: Final = 2_000
GAPS: Final = 10

# What a fact does to the bar of its effect.
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
}
ENTRY: Final = (
    *("position", "kind", "effect", "attempt", "received_us", "occurred_us", "producer_seq", "source", "facts"),
    *("lease_epoch", "lane"),
)


def size_of(query: Mapping[str, str]) -> int:
    """How many effects the window shall hold: the nearest known size to what the query string asks for."""
    asked = query.get("size", "")
    if not (asked.isascii() and asked.isdigit() and len(asked) < 6):
        return USUAL
    return min(SIZES, key=lambda size: abs(size - int(asked)))


def clock_of(query: Mapping[str, str], session: Session | None = None) -> str:
    """Whose clock the axis shows: what the query asks for, else the server's where work was recorded as it happened.

    What was merely reported may have arrived all at once, long after: there the agent's clock tells more.
    """
    if query.get("clock") in CLOCKS:
        return query["clock"]
    return "agent" if session is not None and session.mode == "reported" else "server"


def read(session: Session, filters: Filters, window: keyset.Window, now_us: int, *, size: int, clock: str) -> Lanes:
    """The window of `session` (fetched through the wall) that `window` names, at most `size` effects of it."""
    page = keyset.page(annotated(timeline.narrowed(session, filters, now_us)), size, window)
    found = Lanes(clock, older=page.older, newer=page.newer, size=size, now_us=now_us)
    found.skews = clocks.skews([session], wanted=clock == "corrected")
    effects = list(reversed(page.rows))
    low = effects[0].opened_position if effects else 0
    if effects and found.is_newest and not filters:
        earlier = list(annotated(still_open(session, low)).order_by("-opened_position")[:STILL_OPEN])
        effects = [*reversed(earlier), *effects][-MOST:]
    add_all(found, session, effects, low)
    return found


def still_open(session: Session, low: int) -> "QuerySet[Effect]":
    """The session's effects that were opened before the position `low` and are open yet, or wait for people."""
    waits = Q(state="dispatched") | Q(state="planned", leave="pending")
    return Effect.objects.filter(MAY_BE_OPEN, waits, session=session, state__in=OPEN, opened_position__lt=low)


def add_all(found: Lanes, session: Session, effects: Sequence[Any], low: int) -> None:
    """Add the bars of the `annotated` effects, oldest first, and all that stands beside them from `low` on."""
    entries = add_bars(found, effects)
    for effect in effects:
        if effect.task_id is not None:
            title = effect.task_title or effect.task_key or ""
            found.tasks[effect.task_id] = (f"t_{effect.task_position}", title, effect.task_worker or "")
    high = found.upto if found.is_newest else max((entry["position"] for entry in entries), default=found.upto)
    within = Entry.objects.filter(session=session.id, position__gte=low if effects and found.older else 0)
    within = within.exclude(lane="claim")
    if high is not None:
        within = within.filter(position__lte=high)
    told = within.filter(effect=None, kind__in=OF_SESSION).exclude(lane="evidence", kind__in=OURS)
    beside = told.order_by("-position").values(*ENTRY)[:BESIDE]
    found.beside = [of_session(entry, found.clock, found.skews.get(session.id)) for entry in reversed(beside)]
    found.gaps = _gaps(session, within, found)
    if session.fence is not None and found.upto is None:  # heartbeats are not in the journal
        found.minutes = _minutes(session, found)


def add_bars(found: Lanes, effects: Sequence[Any]) -> list[dict[str, Any]]:
    """Add a bar for each of the `annotated` effects of which there are facts, and return the facts. One query."""
    entries = _facts([one.id for one in effects], found.upto)
    found.cut = len(entries) > FACTS
    by_effect: dict[UUID, list[dict[str, Any]]] = {}
    for entry in entries[:FACTS]:
        by_effect.setdefault(entry["effect"], []).append(entry)
    for effect in effects:
        bar = _bar(effect, by_effect.get(effect.id, []), found)
        if bar.steps:
            found.bars.append(bar)
    return entries


def _minutes(session: Session, found: Lanes) -> list[tuple[int, int, int]]:
    """How often the session's holders were heard, and how often work moved, minute by minute within the window."""
    moments = [step.server_us for bar in found.bars for step in bar.steps] + [one.at_us for one in found.beside]
    if not moments or found.clock != "server":
        return []
    rows = BeatMinute.objects.filter(
        lease__session=session, lease__kind="session", minute__gte=min(moments) // MINUTE_US
    )
    if not found.is_newest:
        rows = rows.filter(minute__lte=max(moments) // MINUTE_US)
    counted = rows.order_by("-minute").values_list("minute", "beats", "progresses")[:BESIDE]
    return [(minute * MINUTE_US, beats, progresses) for minute, beats, progresses in reversed(counted)]


def annotated(rows: "QuerySet[Effect]") -> "QuerySet[Effect]":
    """With what a bar and its lane are called by."""
    return rows.annotate(
        plan_head=gists.plan_heads(),
        task_position=F("task__opened_position"),
        task_title=F("task__title"),
        task_key=F("task__key"),
        task_worker=F("task__worker"),
    )


def _facts(effects: list[UUID], upto: int | None) -> list[dict[str, Any]]:
    """The facts of these effects that move a bar, in the order of the book."""
    until = keyset.MAX_POSITION if upto is None else upto
    moving = Entry.objects.filter(effect__in=effects, kind__in=list(STEP_OF_KIND), position__lte=until)
    moving = moving.exclude(lane="claim")
    return list(moving.order_by("position").values(*ENTRY)[: FACTS + 1])


def _time(entry: Mapping[str, Any], clock: str, skew: Skew | None = None) -> int:
    told: int | None = None if clock == "server" else entry["occurred_us"]
    told = clocks.corrected(told, skew) if clock == "corrected" else told
    return _received_us(entry) if told is None else told


def _received_us(entry: Mapping[str, Any]) -> int:
    return brought.received_us(entry["source"], entry["facts"], entry["received_us"])


def _bar(effect: Any, entries: Iterable[Mapping[str, Any]], found: Lanes) -> Bar:
    steps = [
        Step(
            _time(entry, found.clock, found.skews.get(effect.session_id)),
            STEP_OF_KIND[entry["kind"]],
            entry["attempt"],
            entry["position"],
            _received_us(entry),
            entry["lane"],
            _outcome(entry),
            entry["occurred_us"],
        )
        for entry in entries
    ]
    # Facts may be told late: by the clock that is shown, an answer follows its dispatch in any case.
    steps.sort(key=lambda step: (step.attempt or 0 if step.what in _OF_ATTEMPTS else 0, step.at_us, step.position))
    steps.sort(key=lambda step: step.at_us)
    return Bar(effect, steps, shown.shown_state(effect, found.now_us), gists.gist_of(effect.plan_head) or "")


def _outcome(entry: Mapping[str, Any]) -> str:
    """What an answer said came of it; "" for every other fact."""
    if entry["kind"] != "effect.acknowledged":
        return ""
    return str(orjson.loads(entry["facts"]).get("outcome", ""))


_OF_ATTEMPTS: Final = frozenset({"dispatched", "acknowledged", "failed", "probed"})


def of_session(entry: Mapping[str, Any], clock: str, skew: Skew | None) -> Beside:
    """The fact of a session as it stands beside the effects; `entry` has the columns of ENTRY."""
    return Beside(_time(entry, clock, skew), entry["kind"], entry["position"], entry["facts"], entry["lease_epoch"])


def _gaps(session: Session, within: "QuerySet[Entry]", found: Lanes) -> list[Gap]:
    """Producers' numbers missing between the first and the last that this window holds.

    A producer counts over all of its sessions: what another one holds is not missing. Where the neighbours of a hole
    stand too far apart in the book to look between them, nothing is said.
    """
    told: dict[str, dict[int, tuple[int, int]]] = {}
    numbered = within.filter(producer_seq__isnull=False).order_by("-position").values(*ENTRY)
    for entry in numbered[:FACTS]:
        told.setdefault(entry["source"], {})[entry["producer_seq"]] = (entry["position"], _time(entry, found.clock))
    gaps: list[Gap] = []
    between = Q()
    for source, numbers in sorted(told.items()):
        for before, after in pairwise(sorted(numbers)):
            low, high = sorted((numbers[before][0], numbers[after][0]))
            if after - before > 1 and high - low <= _NEAR and len(gaps) < GAPS:
                gaps.append(Gap(source, before + 1, after - 1, numbers[after][1]))
                hole = Q(producer_seq__gt=before, producer_seq__lt=after, source=source)
                between |= hole & Q(position__gt=low - _NEAR, position__lt=high + _NEAR)
    if not gaps:
        return []
    between &= Q(position__lte=keyset.MAX_POSITION if found.upto is None else found.upto)
    elsewhere = Entry.objects.filter(between, project=session.project_id).values_list("source", "producer_seq")
    return _without(gaps, set(elsewhere[:FACTS]))


_NEAR: Final = 5_000  # positions before and behind a hole where its numbers are looked for, late ones among them


def _without(gaps: list[Gap], known: set[tuple[str, int | None]]) -> list[Gap]:
    """The holes that remain when what another session holds is filled in."""
    found: list[Gap] = []
    for gap in gaps:
        filled = sorted(number for source, number in known if source == gap.source and number is not None)
        edges = [gap.first - 1, *(one for one in filled if gap.first <= one <= gap.last), gap.last + 1]
        holes = [(low + 1, high - 1) for low, high in pairwise(edges) if high - low > 1]
        found += [Gap(gap.source, first, last, gap.at_us) for first, last in holes]
    return found[:GAPS]
