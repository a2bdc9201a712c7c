"""Rules S1 to S8 for stuck sessions, as pure functions over plain rows.

`judge(seen, now_us, limits)` returns every rule that applies to the session, each with its terms,
current values and thresholds. A rule is true when all of its terms are. The same function
therefore lists what is stuck (`status`) and explains what is not (`inquiry/stuck/why.py`).

A session that has ended is never stuck, whatever arrives later. The liveness rules (S1, S2, S3, S7)
apply only to sessions in mode *leased*: other modes have no heartbeat.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Final, Literal, NamedTuple
from uuid import UUID

from inquiry.sentences import Moment, Part, Sentence
from inquiry.stuck.seen import EffectSeen, Fenced, GateSeen, HandoffSeen, LeaseSeen, Loop, Seen
from journal.templatetags.gatebook import elapsed
from sessions.models import ENDED

VERSION: Final = 1
US: Final = 1_000_000
RULES: Final[dict[str, str]] = {
    "S1": "Never started",
    "S2": "Worker gone: lease expired",
    "S3": "Alive, no progress",
    "S4": "Outcome unknown",
    "S5": "Looping: retrying without progress",
    "S6": "Waiting for approval: over half of its time has passed",
    "S7": "No worker took over",
    "S8": "Old worker still writing",
    "S10": "No reports from an active agent",
}
LIVENESS: Final = ("S1", "S2", "S3", "S7")


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds in seconds, except two counts. Agents may have own values (stuck/limits.py)."""

    start_s: int = 300  # S1: from opening to the first lease
    dead_s: int = 0  # S2: added to the three heartbeats that every lease may miss
    progress_s: int = 900  # S3: without progress
    orphan_s: int = 600  # S7: from losing the lease, or from the handoff
    zombie_s: int = 3600  # S8: how long one stale write counts
    loop_calls: int = 5  # S5: equal calls with equal results in a row
    loop_attempts: int = 5  # S5: attempts at one effect


DEFAULT: Final = Limits()
LIMITS: Final = tuple(limit.name for limit in fields(Limits))


class Term(NamedTuple):
    """One condition of a rule: its name, current value, threshold in words, and whether met."""

    name: str
    value: Part
    threshold: Part
    holds: bool


@dataclass(slots=True)
class Reason:
    """A rule and its terms for one subject: the session, or an effect, gate or handoff of it.

    `since_us` is when the rule first applied; `says` is the evidence in words; `grade` is red once
    the deadline itself has passed.
    """

    rule: str
    subject: UUID
    kind: str
    epoch: int
    since_us: int
    terms: list[Term]
    says: Sentence = field(default_factory=list)
    name: str = ""
    grade: Literal["amber", "red"] = "red"

    @property
    def holds(self) -> bool:
        """Whether every term is met."""
        return all(term.holds for term in self.terms)


def status(seen: Seen, now_us: int, limits: Limits = DEFAULT) -> list[Reason]:
    """Return the rules that are true at `now_us`; empty if the session is not stuck."""
    return [reason for reason in judge(seen, now_us, limits) if reason.holds]


def judge(seen: Seen, now_us: int, limits: Limits = DEFAULT) -> list[Reason]:
    """Evaluate every rule that applies to the session, true or not. Empty for an ended session."""
    if seen.status in ENDED:
        return []
    reasons = [*_liveness(seen, now_us, limits)] if seen.mode == "leased" else []
    reasons += [_unknown(seen, effect, now_us) for effect in seen.effects]
    if seen.loop is not None:
        reasons.append(_looping(seen, seen.loop, now_us, limits))
    reasons += [_waiting(seen, gate, now_us) for gate in seen.gates]
    if seen.fenced is not None:
        reasons.append(_zombie(seen, seen.fenced, now_us, limits))
    return sorted(reasons, key=lambda reason: int(reason.rule[1:]))


def _liveness(seen: Seen, now: int, limits: Limits) -> Iterable[Reason]:
    lease = seen.lease
    if seen.handoff is not None:
        yield _not_accepted(seen, seen.handoff, now, limits)
    if lease is None:
        yield _never_started(seen, now, limits)
    elif lease.released_at_us is not None:
        yield _orphan(seen, lease.released_at_us, lease.released_at_us, now, limits)
    else:
        yield _dead(seen, lease, now, limits)
        yield _wedged(seen, lease, now, limits)
        yield _orphan(seen, lease.expires_at_us, _dead_at(lease, limits), now, limits)


def _never_started(seen: Seen, now: int, limits: Limits) -> Reason:
    due = (
        None
        if seen.start_by_us is None
        else seen.start_by_us + (limits.start_s - DEFAULT.start_s) * US
    )
    terms = [
        _is_at_work(seen, "running"),
        Term("lease", "none yet", "none ever taken", True),
        Term("opened", Moment(seen.created_at_us), f"no lease within {_s(limits.start_s)}", True),
        _no_helper(seen),
        _passed("start is due", due, now),
    ]
    says: Sentence = [
        "opened ",
        Moment(seen.created_at_us),
        f", no lease within {_s(limits.start_s)}",
    ]
    return Reason("S1", seen.id, "session", 0, due or seen.created_at_us, terms, says)


def _dead(seen: Seen, lease: LeaseSeen, now: int, limits: Limits) -> Reason:
    due = _dead_at(lease, limits)
    terms = [
        _is_at_work(seen, "running", "waiting"),
        _passed("lease runs until", lease.expires_at_us, now),
        Term("last heartbeat", Moment(lease.beat_at_us), "three heartbeats overdue", due < now),
        _passed("dead from", due, now),
        _not_quiet(lease, now),
        _no_gate(seen),
    ]
    says: Sentence = ["no heartbeat since ", Moment(lease.beat_at_us), ", lease expired "]
    says += [Moment(lease.expires_at_us), "; any worker can take over"]
    return Reason("S2", seen.id, "session", lease.epoch, due, terms, says)


def _wedged(seen: Seen, lease: LeaseSeen, now: int, limits: Limits) -> Reason:
    due = lease.wedged_at_us + (limits.progress_s - DEFAULT.progress_s) * US
    running = sum(
        1 for effect in seen.effects if effect.deadline_us is not None and effect.deadline_us >= now
    )
    terms = [
        _is_at_work(seen, "running"),
        Term(
            "lease runs until",
            Moment(lease.expires_at_us),
            "not passed",
            lease.expires_at_us >= now,
        ),
        Term(
            "last progress",
            Moment(lease.progress_at_us),
            f"none within {_s(limits.progress_s)}",
            due < now,
        ),
        _not_quiet(lease, now),
        _no_gate(seen),
        Term("effects before their deadline", str(running), "0", running == 0),
        Term("stopped by a person", "yes" if seen.stopped else "no", "no", not seen.stopped),
    ]
    says: Sentence = [
        "heartbeats arrive, the last ",
        Moment(lease.beat_at_us),
        "; no progress since ",
    ]
    says += [Moment(lease.progress_at_us), f", threshold {_s(limits.progress_s)}"]
    return Reason("S3", seen.id, "session", lease.epoch, due, terms, says)


def _orphan(seen: Seen, lost_us: int, dead_us: int, now: int, limits: Limits) -> Reason:
    due = max(lost_us + limits.orphan_s * US, dead_us)
    given_up = seen.lease is not None and seen.lease.released_at_us is not None
    terms = [
        _is_at_work(seen, *(("running",) if given_up else ("running", "waiting"))),
        Term(
            "lease released" if given_up else "lease expired",
            Moment(lost_us),
            "no new holder since",
            lost_us < now,
        ),
        _passed("takeover due", due, now),
        _no_gate(seen),
        _no_helper(seen),
    ]
    if seen.lease is not None and not given_up:
        terms.append(_not_quiet(seen.lease, now))
    says: Sentence = ["lease released " if given_up else "lease expired ", Moment(lost_us)]
    says.append(f", no worker took over within {_s(limits.orphan_s)}")
    return Reason("S7", seen.id, "session", seen.epoch, due, terms, says)


def _not_accepted(seen: Seen, handoff: HandoffSeen, now: int, limits: Limits) -> Reason:
    due = handoff.accept_by_us + (limits.orphan_s - DEFAULT.orphan_s) * US
    terms = [
        _is_at_work(seen, "running"),
        Term("handoff written", Moment(handoff.written_at_us), "not accepted", True),
        _passed("acceptance due", due, now),
        _no_gate(seen),
    ]
    lease = seen.lease
    if lease is not None and lease.released_at_us is None:  # its writer may have continued
        goes_on = lease.expires_at_us >= now and lease.progress_at_us > due
        terms.append(Term("progress", Moment(lease.progress_at_us), "none since then", not goes_on))
    says: Sentence = ["handoff written ", Moment(handoff.written_at_us)]
    says += (
        [f", not accepted within {_s(limits.orphan_s)}"]
        if due < now
        else [", acceptance due ", Moment(due)]
    )
    return Reason("S7", handoff.id, "handoff", seen.epoch, due, terms, says, handoff.name)


def _unknown(seen: Seen, effect: EffectSeen, now: int) -> Reason:
    since = effect.deadline_us or effect.dispatched_us or 0
    if effect.answered_unknown:
        terms = [Term("answer", "outcome unknown", "no outcome", True)]
        says: Sentence = [
            "dispatched ",
            *_at(effect.dispatched_us),
            "; reported as unknown ",
            *_at(effect.deadline_us),
        ]

    else:
        passed = effect.deadline_us is not None and effect.deadline_us < now
        terms = [
            Term("answer", "none", "none before the tool's deadline", True),
            Term("tool's deadline", Moment(since) if passed or since else "none", "passed", passed),
        ]
        says = ["no result, dispatched ", *_at(effect.dispatched_us)]
        says += ["; deadline passed " if passed else "; deadline ", *_at(effect.deadline_us)]
    return Reason(
        "S4", effect.id, "effect", seen.epoch, since, terms, says, f"{effect.name} {effect.tool}"
    )


def _looping(seen: Seen, loop: Loop, now: int, limits: Limits) -> Reason:
    terms = [_is_at_work(seen, "running", "waiting")]
    if loop.attempts >= limits.loop_attempts:
        term = Term(
            "attempts at one effect", str(loop.attempts), f"at least {limits.loop_attempts}", True
        )
        says: Sentence = [f"{loop.attempts} attempts at ", loop.name]
    elif loop.beats:
        term = Term("heartbeats with one progress token", str(loop.beats), "no other token", True)
        says = [
            f"{loop.beats} heartbeats in 15 minutes, progress token constant since ",
            Moment(loop.since_us),
        ]
        if seen.lease is not None:  # waiting or one long call also keeps the token
            terms = _wedged(seen, seen.lease, now, limits).terms
    else:
        many = loop.calls >= limits.loop_calls
        term = Term(
            "equal calls with equal results in a row",
            str(loop.calls),
            f"at least {limits.loop_calls}",
            many,
        )
        says = [f"{loop.calls} equal calls with equal results, the first ", Moment(loop.since_us)]
    return Reason(
        "S5", seen.id, "session", seen.epoch, loop.since_us, [*terms, term], says, loop.tool
    )


def _waiting(seen: Seen, gate: GateSeen, now: int) -> Reason:
    half = (gate.requested_at_us + gate.decide_by_us) // 2
    terms = [
        Term("request", gate.name, "not answered", True),
        Term("requested", Moment(gate.requested_at_us), "no answer after half of the time", True),
        _passed("half of the time", half, now),
        Term("decision due", Moment(gate.decide_by_us), "red from then on", True),
    ]
    says: Sentence = [
        "requested ",
        Moment(gate.requested_at_us),
        f", waiting for {gate.whose}" if gate.whose else "",
    ]
    over = gate.decide_by_us < now
    says += [", expired " if over else ", decision due ", Moment(gate.decide_by_us)]
    words = f"{gate.name} {gate.tool}"
    return Reason(
        "S6", gate.id, "gate", seen.epoch, half, terms, says, words, "red" if over else "amber"
    )


def _zombie(seen: Seen, fenced: Fenced, now: int, limits: Limits) -> Reason:
    until = fenced.last_us + limits.zombie_s * US
    terms = [
        Term("writes under a stale epoch", str(fenced.count), "at least 1", fenced.count > 0),
        Term(
            "last stale write",
            Moment(fenced.last_us),
            f"within the last {_s(limits.zombie_s)}",
            until >= now,
        ),
    ]
    says: Sentence = [f"a worker of epoch {fenced.epoch} wrote ", Moment(fenced.last_us)]
    says.append(f"; the current epoch is {seen.epoch}, so its reports are kept separately")
    return Reason("S8", seen.id, "session", fenced.epoch, fenced.last_us, terms, says)


def _dead_at(lease: LeaseSeen, limits: Limits) -> int:
    return lease.dead_at_us + limits.dead_s * US


def _is_at_work(seen: Seen, *statuses: str) -> Term:
    return Term("status", seen.status, " or ".join(statuses), seen.status in statuses)


def _passed(name: str, due: int | None, now: int) -> Term:
    return Term(
        name, "no time" if due is None else Moment(due), "passed", due is not None and due < now
    )


def _not_quiet(lease: LeaseSeen, now: int) -> Term:
    until = lease.quiet_until_us
    quiet = until is not None and until >= now
    return Term(
        "announced quiet period", "none" if until is None else Moment(until), "over", not quiet
    )


def _no_helper(seen: Seen) -> Term:
    return Term("worker on a task", "yes" if seen.helped else "no", "no", not seen.helped)


def _no_gate(seen: Seen) -> Term:
    return Term("pending requests", str(len(seen.gates)), "0", not seen.gates)


def _at(us: int | None) -> Sentence:
    return [Moment(us)] if us is not None else ["at a time not reported"]


def _s(seconds: int) -> str:
    return elapsed(seconds * US).replace(".0 s", " s")
