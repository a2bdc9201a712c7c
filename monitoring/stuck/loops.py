"""Detection of loops (S5) and of writers with a stale epoch (S8), from journal and effects.

Reads are bounded: the newest few effects of a session, and in a sweep only the sessions that the
journal named since the last sweep. Imported effects are never evaluated.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db.models import BooleanField, F, Func, Q, Sum

from db import long_numbers
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from monitoring.stuck.rule_inputs import FencedWrites, Loop
from monitoring.stuck.rules import DEFAULT_LIMITS, US, RuleLimits
from sessions.models import HeartbeatMinute, Lease

MAX_EFFECTS_READ: Final = 12  # effects read of a session
AT_ONCE: Final = 200  # sessions checked in one sweep
MAX_ENTRIES_READ: Final = 20_000  # entries read in one sweep
MINUTES: Final = 15
MIN_HEARTBEATS: Final = 30  # in MINUTES, with one token
FENCED_KIND: Final = "integrity.fenced"
_BETWEEN: Final = 500  # entries searched for progress
# Entry kinds that show progress. Effects are excluded: repeating effects are the loop itself.
PROGRESS: Final = frozenset(
    {
        "checkpoint.written",
        "decision.recorded",
        "decision.concluded",
        "fact.observed",
        "artifact.recorded",
        "handoff.written",
        "handoff.accepted",
        "task.created",
        "task.changed",
        "task.done",
        "item.done",
        "item.failed",
    }
)
_MOVED_ON: Final = PROGRESS | {"effect.acknowledged"}
_OPEN: Final = Func(
    F("state"),
    template="%(expressions)s IN ('planned', 'dispatched', 'failed')",
    output_field=BooleanField(),
)


@dataclass(frozen=True, slots=True)
class LoopCall:
    """The fields of an effect that decide whether it repeats another."""

    id: UUID
    position: int
    tool: str
    intent: str
    settled: bool
    ending: tuple[str, str, str]  # outcome, reason, reference
    at_us: int


def repeated_run(calls: Sequence[LoopCall]) -> list[LoopCall]:
    """Return the newest consecutive calls with equal intent and ending. Skips calls in flight."""
    settled = [call for call in calls if call.settled]
    if not settled or any(call.intent != settled[0].intent for call in calls if not call.settled):
        return []
    first, same = settled[0], []
    for call in settled:
        if (call.tool, call.intent, call.ending) != (
            first.tool,
            first.intent,
            first.ending,
        ) or not call.intent:
            break
        same.append(call)
    return same


class JournalWindow(NamedTuple):
    """The (project, session) pairs that dispatched or were fenced in a range of positions."""

    until: int
    acting: list[tuple[UUID, UUID]]
    fenced: list[tuple[UUID, UUID]]


def read_window(after: int, until: int) -> JournalWindow:
    """Read at most MAX_ENTRIES_READ entries after position `after`, up to `until`.

    One query by primary key.
    """
    last = min(until, after + MAX_ENTRIES_READ)
    rows = Entry.objects.filter(position__gt=after, position__lte=last, session__isnull=False)
    telling = (Q(kind="effect.dispatched") & ~Q(lane="claim")) | Q(kind=FENCED_KIND, lane="system")
    named = rows.filter(telling).values_list("project", "session", "kind").distinct()
    acting: list[tuple[UUID, UUID]] = []
    stale: list[tuple[UUID, UUID]] = []
    for project, session, kind in named:
        if session is not None:
            (stale if kind == FENCED_KIND else acting).append((project, session))
    return JournalWindow(last, acting, stale)


def find_loops(sessions: Collection[UUID], limits: RuleLimits = DEFAULT_LIMITS) -> dict[UUID, Loop]:
    """Find the sessions that loop. One query, one for each session, a few more for suspects."""
    loops: dict[UUID, Loop] = {}
    tried = Effect.objects.filter(
        _OPEN, session__in=sessions, attempt_count__gte=limits.loop_attempts
    )
    # The latest effect decides: a session that left it has also left the earlier ones.
    latest = {
        row.session_id: row
        for row in tried.exclude(permission_basis="import").order_by("changed_us")
    }
    for session, row in latest.items():
        if not _has_moved_on(row):
            since_us = row.dispatched_at_us or row.received_us
            loops[session] = Loop(
                row.id, str(row), row.tool, attempts=row.attempt_count, since_us=since_us
            )
    for session in sessions:
        if session not in loops:
            repeated = _find_repeated_calls(session, limits)
            if repeated:
                loops[session] = repeated
    return loops


def find_fenced_writers(
    sessions: Collection[UUID], now_us: int, limits: RuleLimits = DEFAULT_LIMITS
) -> dict[UUID, FencedWrites]:
    """Find recent writes under a stale epoch. One query per session, of its newest entries."""
    by_session: dict[UUID, FencedWrites] = {}
    since = now_us - limits.zombie_s * US
    for session in sessions:
        newest = Entry.objects.filter(session=session).order_by("-position")[:_BETWEEN]
        rows = newest.values_list("kind", "lane", "received_us", "lease_epoch")
        # A writer without an epoch is misconfigured, not a former holder. Only Gatebook's own
        # entries count: agents may report any kind.
        stale_writes = [
            (at_us, epoch)
            for kind, lane, at_us, epoch in rows
            if (kind, lane) == (FENCED_KIND, "system") and at_us >= since and epoch is not None
        ]
        if stale_writes:
            by_session[session] = FencedWrites(
                stale_writes[0][1], len(stale_writes), stale_writes[0][0]
            )
    return by_session


# Claims of other agents are neither progress nor reports of the session's worker.
_OWN_ENTRIES: Final = Entry.objects.exclude(lane="claim")


def _find_repeated_calls(session: UUID, limits: RuleLimits) -> Loop | None:
    newest = (
        Effect.objects.filter(session=session)
        .exclude(permission_basis="import")
        .order_by("-opened_position")
    )
    calls = [_to_call(row) for row in newest[: max(MAX_EFFECTS_READ, limits.loop_calls + 2)]]
    same = repeated_run(calls)
    if len(same) < limits.loop_calls:
        return None
    same = _with_equal_results(same)
    if len(same) < limits.loop_calls or _has_progressed(
        session, same[-1].position, same[0].position
    ):
        return None
    outcome, failure_reason, _reference = same[0].ending
    return Loop(
        same[0].id,
        f"e_{same[0].position}",
        same[0].tool,
        calls=len(same),
        ending=failure_reason or outcome,
        since_us=same[-1].at_us,
    )


def _to_call(row: Effect) -> LoopCall:
    settled = row.state in ("acknowledged", "failed")
    ending = (row.outcome, row.failure_reason, row.external_reference)
    return LoopCall(
        row.id, row.opened_position, row.tool, row.intent_digest, settled, ending, row.received_us
    )


def _with_equal_results(calls: list[LoopCall]) -> list[LoopCall]:
    """Return the leading calls with equal results. An erased result counts as different."""
    answers = Attempt.objects.filter(
        effect__in=[call.id for call in calls], answer_position__isnull=False
    )
    # By number, so that the latest attempt's answer wins.
    at = dict(answers.order_by("number").values_list("effect", "answer_position"))
    texts = dict(Body.objects.filter(entry__in=at.values()).values_list("entry", "text"))
    results = [_result_digest(texts.get(at.get(call.id) or 0)) for call in calls]
    same: list[LoopCall] = []
    for call, result in zip(calls, results, strict=True):
        if result is None or result != results[0]:
            break
        same.append(call)
    return same


def _result_digest(text: str | None) -> str | None:
    if text is None:
        return None
    body: Any = long_numbers.parse_json(text)
    outcome_fields = {
        name: body.get(name) for name in ("result", "error", "reason", "detail", "outcome")
    }
    return long_numbers.to_json_bytes(outcome_fields, orjson.OPT_SORT_KEYS).decode()


def _has_moved_on(effect: Effect) -> bool:
    """Return whether the session made progress after the last entry of an effect."""
    of_effect = _OWN_ENTRIES.filter(effect=effect.id).order_by("-position")
    last_position = of_effect.values_list("position", flat=True).first()
    since = _OWN_ENTRIES.filter(
        session=effect.session_id, position__gt=last_position or 0
    ).order_by("-position")
    kinds = since.exclude(effect=effect.id).values_list("kind", flat=True)[:_BETWEEN]
    return not _MOVED_ON.isdisjoint(kinds)


def _has_progressed(session: UUID, first: int, last: int) -> bool:
    between = _OWN_ENTRIES.filter(session=session, position__gt=first, position__lt=last).order_by(
        "-position"
    )
    return not PROGRESS.isdisjoint(between.values_list("kind", flat=True)[:_BETWEEN])


def find_constant_tokens(sessions: Collection[UUID], now_us: int) -> dict[UUID, Loop]:
    """Find sessions whose heartbeats kept one progress token for MINUTES. Two queries."""
    open_leases = Lease.objects.filter(
        session__in=sessions, kind="session", released_at_us__isnull=True
    )
    suspects = open_leases.filter(wedged_at_us__lt=now_us).exclude(progress_token="")
    leases = {suspect.id: suspect for suspect in suspects}
    if not leases:
        return {}
    minutes = HeartbeatMinute.objects.filter(
        lease__in=leases, minute__gt=now_us // (60 * US) - MINUTES
    )
    sums = (
        minutes.values("lease")
        .annotate(received=Sum("heartbeats"), moved=Sum("progresses"))
        .order_by()
    )
    loops = {}
    for row in sums:
        lease = leases[row["lease"]]
        if lease.session_id is not None and row["received"] >= MIN_HEARTBEATS and not row["moved"]:
            loops[lease.session_id] = Loop(
                heartbeats=row["received"], since_us=lease.progress_at_us
            )
    return loops
