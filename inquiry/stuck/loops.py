"""Rule S5 and S8 look at what is said, not at a deadline: whether calls repeat themselves, and who writes when fenced.

Bounded reads: of a session the newest few effects; of a sweep the sessions that the journal has named since the last.
What was imported is a record of long ago and is never judged.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db.models import BooleanField, F, Func, Q, Sum

from inquiry.stuck.rules import DEFAULT, US, Limits
from inquiry.stuck.seen import Fenced, Loop
from journal import exact
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from sessions.models_leases import BeatMinute, Lease

TAIL: Final = 12  # effects looked at
AT_ONCE: Final = 200  # sessions looked at in one sweep
READ: Final = 20_000  # entries read in one sweep
MINUTES: Final = 15
BEATS: Final = 30  # in MINUTES, with one token
FENCED: Final = "integrity.fenced"
_BETWEEN: Final = 500  # entries looked through for a sign of progress
# What an agent writes when something has moved. Effects are not among them: they are what repeats itself.
PROGRESS: Final = frozenset(
    {
        *("checkpoint.written", "decision.recorded", "decision.concluded", "fact.observed", "artifact.recorded"),
        *(
            "handoff.written",
            "handoff.accepted",
            "task.created",
            "task.changed",
            "task.done",
            "item.done",
            "item.failed",
        ),
    }
)
_MOVED_ON: Final = PROGRESS | {"effect.acknowledged"}
_OPEN: Final = Func(
    F("state"), template="%(expressions)s IN ('planned', 'dispatched', 'failed')", output_field=BooleanField()
)


@dataclass(frozen=True, slots=True)
class Call:
    """An effect as far as its repetition goes; the newest of a session first."""

    id: UUID
    position: int
    tool: str
    intent: str
    settled: bool
    ending: tuple[str, str, str]  # outcome, reason, reference
    at_us: int


def run(calls: Sequence[Call]) -> list[Call]:
    """The newest calls in a row that ask for the same and ended in the same way; what is under way is passed over."""
    settled = [one for one in calls if one.settled]
    if not settled or any(one.intent != settled[0].intent for one in calls if not one.settled):
        return []
    first, found = settled[0], []
    for one in settled:
        if (one.tool, one.intent, one.ending) != (first.tool, first.intent, first.ending) or not one.intent:
            break
        found.append(one)
    return found


class Window(NamedTuple):
    """What the journal says of a stretch of positions: (project, session) that act, and where somebody was fenced."""

    until: int
    acting: list[tuple[UUID, UUID]]
    fenced: list[tuple[UUID, UUID]]


def window(after: int, until: int) -> Window:
    """Read at most READ entries behind `after`, up to `until`. One query by primary key."""
    last = min(until, after + READ)
    rows = Entry.objects.filter(position__gt=after, position__lte=last, session__isnull=False)
    telling = (Q(kind="effect.dispatched") & ~Q(lane="claim")) | Q(kind=FENCED, lane="system")
    named = rows.filter(telling).values_list("project", "session", "kind").distinct()
    acting: list[tuple[UUID, UUID]] = []
    stale: list[tuple[UUID, UUID]] = []
    for project, session, kind in named:
        if session is not None:
            (stale if kind == FENCED else acting).append((project, session))
    return Window(last, acting, stale)


def found(sessions: Collection[UUID], limits: Limits = DEFAULT) -> dict[UUID, Loop]:
    """Which of these sessions loop, and in what. One query, one for each session, and a few more for a suspect."""
    loops: dict[UUID, Loop] = {}
    tried = Effect.objects.filter(_OPEN, session__in=sessions, attempt_count__gte=limits.loop_attempts)
    # What a session moved on from since it spoke last of one effect, it moved on from also where it spoke earlier.
    latest = {row.session_id: row for row in tried.exclude(leave_basis="import").order_by("changed_us")}
    for session, row in latest.items():
        if not _left(row):
            since_us = row.dispatched_at_us or row.received_us
            loops[session] = Loop(row.id, str(row), row.tool, attempts=row.attempt_count, since_us=since_us)
    for session in sessions:
        if session not in loops:
            repeated = _repeated(session, limits)
            if repeated:
                loops[session] = repeated
    return loops


def fenced(sessions: Collection[UUID], now_us: int, limits: Limits = DEFAULT) -> dict[UUID, Fenced]:
    """What was written under stale epochs of these sessions lately. One query for each, of its newest entries."""
    told: dict[UUID, Fenced] = {}
    since = now_us - limits.zombie_s * US
    for session in sessions:
        newest = Entry.objects.filter(session=session).order_by("-position")[:_BETWEEN]
        rows = newest.values_list("kind", "lane", "received_us", "lease_epoch")
        # Who named no epoch at all is no holder of long ago, but somebody who has to learn to name one. And that
        # somebody was fenced is ours to say: what an agent reports under that kind is its own word.
        late = [
            (at_us, epoch)
            for kind, lane, at_us, epoch in rows
            if (kind, lane) == (FENCED, "system") and at_us >= since and epoch is not None
        ]
        if late:
            told[session] = Fenced(late[0][1], len(late), late[0][0])
    return told


# What other agents claim is no progress of a session, and no word of its worker.
_COUNTING: Final = Entry.objects.exclude(lane="claim")


def _repeated(session: UUID, limits: Limits) -> Loop | None:
    newest = Effect.objects.filter(session=session).exclude(leave_basis="import").order_by("-opened_position")
    calls = [_call(row) for row in newest[: max(TAIL, limits.loop_calls + 2)]]
    same = run(calls)
    if len(same) < limits.loop_calls:
        return None
    same = _with_equal_results(same)
    if len(same) < limits.loop_calls or _progressed(session, same[-1].position, same[0].position):
        return None
    return Loop(same[0].id, f"e_{same[0].position}", same[0].tool, calls=len(same), since_us=same[-1].at_us)


def _call(row: Effect) -> Call:
    settled = row.state in ("acknowledged", "failed")
    ending = (row.outcome, row.failure_reason, row.external_reference)
    return Call(row.id, row.opened_position, row.tool, row.intent_digest, settled, ending, row.received_us)


def _with_equal_results(calls: list[Call]) -> list[Call]:
    """The first of `calls` whose answers say the same. What was erased is not compared, and counts as another."""
    answers = Attempt.objects.filter(effect__in=[one.id for one in calls], answer_position__isnull=False)
    at = dict(answers.order_by("number").values_list("effect", "answer_position"))  # the latest attempt's
    texts = dict(Body.objects.filter(entry__in=at.values()).values_list("entry", "text"))
    results = [_result(texts.get(at.get(one.id) or 0)) for one in calls]
    same: list[Call] = []
    for one, result in zip(calls, results, strict=True):
        if result is None or result != results[0]:
            break
        same.append(one)
    return same


def _result(text: str | None) -> str | None:
    if text is None:
        return None
    body: Any = exact.loads(text)
    said = {name: body.get(name) for name in ("result", "error", "reason", "detail", "outcome")}
    return exact.dumps(said, orjson.OPT_SORT_KEYS).decode()


def _left(effect: Effect) -> bool:
    """True when the session has moved on since the last that was said of an effect: it is not tried any more."""
    of_effect = _COUNTING.filter(effect=effect.id).order_by("-position")
    said = of_effect.values_list("position", flat=True).first()
    since = _COUNTING.filter(session=effect.session_id, position__gt=said or 0).order_by("-position")
    kinds = since.exclude(effect=effect.id).values_list("kind", flat=True)[:_BETWEEN]
    return not _MOVED_ON.isdisjoint(kinds)


def _progressed(session: UUID, first: int, last: int) -> bool:
    between = _COUNTING.filter(session=session, position__gt=first, position__lt=last).order_by("-position")
    return not PROGRESS.isdisjoint(between.values_list("kind", flat=True)[:_BETWEEN])


def constant(sessions: Collection[UUID], now_us: int) -> dict[UUID, Loop]:
    """Of these sessions those whose holder has beaten with one and the same progress token for MINUTES. Two queries."""
    held = Lease.objects.filter(session__in=sessions, kind="session", released_at_us__isnull=True)
    told = {one.id: one for one in held.filter(wedged_at_us__lt=now_us).exclude(progress_token="")}
    if not told:
        return {}
    minutes = BeatMinute.objects.filter(lease__in=told, minute__gt=now_us // (60 * US) - MINUTES)
    sums = minutes.values("lease").annotate(heard=Sum("beats"), moved=Sum("progresses")).order_by()
    found = {}
    for row in sums:
        lease = told[row["lease"]]
        if lease.session_id is not None and row["heard"] >= BEATS and not row["moved"]:
            found[lease.session_id] = Loop(beats=row["heard"], since_us=lease.progress_at_us)
    return found
