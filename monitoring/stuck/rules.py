"""Rules S1 to S8 and S10 for stuck sessions, as pure functions over plain rows.

`evaluate_rules(seen, now_us, limits)` returns every rule that applies to the session, each with its
terms, current values and thresholds. A rule is true when all of its terms are. The same function
therefore lists what is stuck (`status`) and explains what is not (`monitoring/stuck/explain.py`).

A session that has ended is never stuck, whatever arrives later. The liveness rules (S1, S2, S3, S7)
apply only to sessions in mode *leased*: other modes have no heartbeat.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Final, Literal, NamedTuple
from uuid import UUID

from display.effect_headline import Moment, Part, Sentence
from monitoring.stuck.rule_inputs import (
    EffectInput,
    FencedWrites,
    GateInput,
    HandoffInput,
    LeaseInput,
    Loop,
    RuleInput,
)
from sessions.models import ENDED
from web.templatetags.gatebook import elapsed

RULES_VERSION: Final = 1
US: Final = 1_000_000
# The headings of S4 on the board, by who settles the effects.
UNKNOWN_HEADINGS: Final[dict[str, str]] = {
    "unknown": "Outcome unknown, needs a person",
    "unattended": "Outcome unknown, and no worker to check it",
    "settling": "Outcome unknown, a worker checks it",
}


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """Thresholds in seconds, except two counts. Agents may have own values (rule_limits.py)."""

    start_s: int = 300  # S1: from opening to the first lease
    dead_s: int = 0  # S2: added to the three heartbeats that every lease may miss
    progress_s: int = 900  # S3: without progress
    orphan_s: int = 600  # S7: from losing the lease, or from the handoff
    zombie_s: int = 3600  # S8: how long one stale write counts
    loop_calls: int = 5  # S5: equal calls with equal results in a row
    loop_attempts: int = 5  # S5: attempts at one effect


DEFAULT_LIMITS: Final = RuleLimits()
LIMIT_NAMES: Final = tuple(limit.name for limit in fields(RuleLimits))


class RuleTerm(NamedTuple):
    """One condition of a rule: its name, current value, threshold in words, and whether met."""

    name: str
    value: Part
    threshold: Part
    holds: bool


@dataclass(slots=True)
class RuleResult:
    """A rule and its terms for one subject: the session, or an effect, gate or handoff of it.

    `since_us` is when the rule first applied, `began_us` when what it waits for began (0: the
    rule has no threshold); `says` is the evidence in words; `grade` is red once the deadline
    itself has passed.
    """

    rule: str
    subject: UUID
    kind: str
    epoch: int
    since_us: int
    terms: list[RuleTerm]
    says: Sentence = field(default_factory=list)
    name: str = ""
    grade: Literal["amber", "red"] = "red"
    began_us: int = 0

    @property
    def threshold_us(self) -> int:
        """The time from the beginning until the rule applied; 0 without a threshold."""
        return max(0, self.since_us - self.began_us) if self.began_us else 0

    def measure_age(self, now: int) -> int:
        """Return how long the case lasts, from its beginning."""
        return max(0, now - (self.began_us or self.since_us))

    @property
    def holds(self) -> bool:
        """Whether every term is met."""
        return all(term.holds for term in self.terms)


def stuck_reasons(
    seen: RuleInput, now_us: int, limits: RuleLimits = DEFAULT_LIMITS
) -> list[RuleResult]:
    """Return the rules that are true at `now_us`; empty if the session is not stuck."""
    return [reason for reason in evaluate_stuck_rules(seen, now_us, limits) if reason.holds]


def evaluate_stuck_rules(
    seen: RuleInput, now_us: int, limits: RuleLimits = DEFAULT_LIMITS
) -> list[RuleResult]:
    """Evaluate every rule that applies to the session, true or not. Empty for an ended session."""
    if seen.status in ENDED:
        return []
    reasons = [*_evaluate_liveness(seen, now_us, limits)] if seen.mode == "leased" else []
    reasons += [_unknown_outcome(seen, effect, now_us) for effect in seen.effects]
    if seen.loop is not None:
        reasons.append(_looping(seen, seen.loop, now_us, limits))
    reasons += [_waiting_gate(seen, gate, now_us) for gate in seen.gates]
    if seen.fenced is not None:
        reasons.append(_stale_writer(seen, seen.fenced, now_us, limits))
    return sorted(reasons, key=lambda reason: int(reason.rule[1:]))


def _evaluate_liveness(seen: RuleInput, now: int, limits: RuleLimits) -> Iterable[RuleResult]:
    lease = seen.lease
    if seen.handoff is not None:
        yield _not_accepted(seen, seen.handoff, now, limits)
    if lease is None:
        yield _never_started(seen, now, limits)
    elif lease.released_at_us is not None:
        yield _not_taken_over(seen, lease.released_at_us, lease.released_at_us, now, limits)
    else:
        yield _worker_gone(seen, lease, now, limits)
        yield _no_progress(seen, lease, now, limits)
        yield _not_taken_over(seen, lease.expires_at_us, _dead_at_us(lease, limits), now, limits)


def _never_started(seen: RuleInput, now: int, limits: RuleLimits) -> RuleResult:
    due = (
        None
        if seen.start_by_us is None
        else seen.start_by_us + (limits.start_s - DEFAULT_LIMITS.start_s) * US
    )
    terms = [
        _status_term(seen, "running"),
        RuleTerm("lease", "none yet", "none ever taken", True),
        RuleTerm(
            "opened",
            Moment(seen.created_at_us),
            f"no lease within {_format_seconds(limits.start_s)}",
            True,
        ),
        _helper_term(seen),
        _deadline_term("start is due", due, now),
    ]
    says: Sentence = [
        "opened ",
        Moment(seen.created_at_us),
        f", no lease within {_format_seconds(limits.start_s)}",
    ]
    began = seen.created_at_us
    return RuleResult("S1", seen.id, "session", 0, due or began, terms, says, began_us=began)


def _worker_gone(seen: RuleInput, lease: LeaseInput, now: int, limits: RuleLimits) -> RuleResult:
    due = _dead_at_us(lease, limits)
    terms = [
        _status_term(seen, "running", "waiting"),
        _deadline_term("lease runs until", lease.expires_at_us, now),
        RuleTerm(
            "last heartbeat", Moment(lease.heartbeat_at_us), "three heartbeats overdue", due < now
        ),
        _deadline_term("dead from", due, now),
        _quiet_term(lease, now),
        _pending_term(seen),
    ]
    says: Sentence = ["no heartbeat since ", Moment(lease.heartbeat_at_us), ", lease expired "]
    says += [Moment(lease.expires_at_us), "; any worker can take over"]
    began = lease.heartbeat_at_us
    return RuleResult("S2", seen.id, "session", lease.epoch, due, terms, says, began_us=began)


def _no_progress(seen: RuleInput, lease: LeaseInput, now: int, limits: RuleLimits) -> RuleResult:
    due = lease.wedged_at_us + (limits.progress_s - DEFAULT_LIMITS.progress_s) * US
    running = sum(
        1 for effect in seen.effects if effect.deadline_us is not None and effect.deadline_us >= now
    )
    terms = [
        _status_term(seen, "running"),
        RuleTerm(
            "lease runs until",
            Moment(lease.expires_at_us),
            "not passed",
            lease.expires_at_us >= now,
        ),
        RuleTerm(
            "last progress",
            Moment(lease.progress_at_us),
            f"none within {_format_seconds(limits.progress_s)}",
            due < now,
        ),
        _quiet_term(lease, now),
        _pending_term(seen),
        RuleTerm("effects before their deadline", str(running), "0", running == 0),
        RuleTerm("stopped by a person", "yes" if seen.stopped else "no", "no", not seen.stopped),
    ]
    says: Sentence = [
        "heartbeats arrive, the last ",
        Moment(lease.heartbeat_at_us),
        "; no progress since ",
    ]
    says += [Moment(lease.progress_at_us), f", threshold {_format_seconds(limits.progress_s)}"]
    began = lease.progress_at_us
    return RuleResult("S3", seen.id, "session", lease.epoch, due, terms, says, began_us=began)


def _not_taken_over(
    seen: RuleInput, lost_us: int, dead_us: int, now: int, limits: RuleLimits
) -> RuleResult:
    due = max(lost_us + limits.orphan_s * US, dead_us)
    given_up = seen.lease is not None and seen.lease.released_at_us is not None
    terms = [
        _status_term(seen, *(("running",) if given_up else ("running", "waiting"))),
        RuleTerm(
            "lease released" if given_up else "lease expired",
            Moment(lost_us),
            "no new holder since",
            lost_us < now,
        ),
        _deadline_term("takeover due", due, now),
        _pending_term(seen),
        _helper_term(seen),
    ]
    if seen.lease is not None and not given_up:
        terms.append(_quiet_term(seen.lease, now))
    says: Sentence = ["lease released " if given_up else "lease expired ", Moment(lost_us)]
    says.append(f", no worker took over within {_format_seconds(limits.orphan_s)}")
    return RuleResult("S7", seen.id, "session", seen.epoch, due, terms, says, began_us=lost_us)


def _not_accepted(
    seen: RuleInput, handoff: HandoffInput, now: int, limits: RuleLimits
) -> RuleResult:
    due = handoff.accept_by_us + (limits.orphan_s - DEFAULT_LIMITS.orphan_s) * US
    terms = [
        _status_term(seen, "running"),
        RuleTerm("handoff written", Moment(handoff.written_at_us), "not accepted", True),
        _deadline_term("acceptance due", due, now),
        _pending_term(seen),
    ]
    lease = seen.lease
    if lease is not None and lease.released_at_us is None:  # its writer may have continued
        goes_on = lease.expires_at_us >= now and lease.progress_at_us > due
        terms.append(
            RuleTerm("progress", Moment(lease.progress_at_us), "none since then", not goes_on)
        )
    says: Sentence = ["handoff written ", Moment(handoff.written_at_us)]
    says += (
        [f", not accepted within {_format_seconds(limits.orphan_s)}"]
        if due < now
        else [", acceptance due ", Moment(due)]
    )
    name, began = handoff.name, handoff.written_at_us
    return RuleResult(
        "S7", handoff.id, "handoff", seen.epoch, due, terms, says, name, began_us=began
    )


def _unknown_outcome(seen: RuleInput, effect: EffectInput, now: int) -> RuleResult:
    since = effect.deadline_us or effect.dispatched_us or 0
    if effect.answered_unknown:
        terms = [RuleTerm("answer", "outcome unknown", "no outcome", True)]
        says: Sentence = [
            "dispatched ",
            *_format_time(effect.dispatched_us),
            "; reported as unknown ",
            *_format_time(effect.deadline_us),
        ]

    else:
        passed = effect.deadline_us is not None and effect.deadline_us < now
        terms = [
            RuleTerm("answer", "none", "none before the tool's deadline", True),
            RuleTerm(
                "tool's deadline", Moment(since) if passed or since else "none", "passed", passed
            ),
        ]
        says = ["no result, dispatched ", *_format_time(effect.dispatched_us)]
        says += [
            "; deadline passed " if passed else "; deadline ",
            *_format_time(effect.deadline_us),
        ]
    name, began = f"{effect.name} {effect.tool}", effect.dispatched_us or 0
    return RuleResult(
        "S4", effect.id, "effect", seen.epoch, since, terms, says, name, began_us=began
    )


_LOOP_ENDINGS: Final = {
    "ok": ", each ended well",
    "error": ", each ended with an error",
    "timeout": ", each ran out of time",
    "rejected": ", each was rejected",
    "unknown": ", each with an unknown outcome",
}


def _looping(seen: RuleInput, loop: Loop, now: int, limits: RuleLimits) -> RuleResult:
    terms = [_status_term(seen, "running", "waiting")]
    if loop.attempts >= limits.loop_attempts:
        term = RuleTerm(
            "attempts at one effect", str(loop.attempts), f"at least {limits.loop_attempts}", True
        )
        says: Sentence = [f"{loop.attempts} attempts at ", loop.name]
    elif loop.heartbeats:
        term = RuleTerm(
            "heartbeats with one progress token", str(loop.heartbeats), "no other token", True
        )
        says = [
            f"{loop.heartbeats} heartbeats in 15 minutes, progress token constant since ",
            Moment(loop.since_us),
        ]
        if seen.lease is not None:  # waiting or one long call also keeps the token
            terms = _no_progress(seen, seen.lease, now, limits).terms
    else:
        many = loop.calls >= limits.loop_calls
        term = RuleTerm(
            "equal calls with equal results in a row",
            str(loop.calls),
            f"at least {limits.loop_calls}",
            many,
        )
        # The newest call by its handle only: its arguments stay in its plan, which can be erased.
        ending = _LOOP_ENDINGS.get(loop.ending, "")
        says = [f"{loop.calls} equal calls with equal results{ending}; newest: ", loop.name]
    return RuleResult(
        "S5", seen.id, "session", seen.epoch, loop.since_us, [*terms, term], says, loop.tool
    )


def _waiting_gate(seen: RuleInput, gate: GateInput, now: int) -> RuleResult:
    half = (gate.requested_at_us + gate.decide_by_us) // 2
    terms = [
        RuleTerm("request", gate.name, "not answered", True),
        RuleTerm(
            "requested", Moment(gate.requested_at_us), "no answer after half of the time", True
        ),
        _deadline_term("half of the time", half, now),
        RuleTerm("decision due", Moment(gate.decide_by_us), "red from then on", True),
    ]
    says: Sentence = [
        "requested ",
        Moment(gate.requested_at_us),
        f", waiting for {gate.whose}" if gate.whose else "",
    ]
    over = gate.decide_by_us < now
    says += [", expired " if over else ", decision due ", Moment(gate.decide_by_us)]
    words = f"{gate.name} {gate.tool}"
    grade: Literal["amber", "red"] = "red" if over else "amber"
    began = gate.requested_at_us
    return RuleResult(
        "S6", gate.id, "gate", seen.epoch, half, terms, says, words, grade, began_us=began
    )


def _stale_writer(
    seen: RuleInput, fenced: FencedWrites, now: int, limits: RuleLimits
) -> RuleResult:
    until = fenced.last_us + limits.zombie_s * US
    terms = [
        RuleTerm("writes under a stale epoch", str(fenced.count), "at least 1", fenced.count > 0),
        RuleTerm(
            "last stale write",
            Moment(fenced.last_us),
            f"within the last {_format_seconds(limits.zombie_s)}",
            until >= now,
        ),
    ]
    says: Sentence = [f"a worker of epoch {fenced.epoch} wrote ", Moment(fenced.last_us)]
    says.append(f"; the current epoch is {seen.epoch}, so its reports are kept separately")
    return RuleResult("S8", seen.id, "session", fenced.epoch, fenced.last_us, terms, says)


def _dead_at_us(lease: LeaseInput, limits: RuleLimits) -> int:
    return lease.dead_at_us + limits.dead_s * US


def _status_term(seen: RuleInput, *statuses: str) -> RuleTerm:
    return RuleTerm("status", seen.status, " or ".join(statuses), seen.status in statuses)


def _deadline_term(name: str, due: int | None, now: int) -> RuleTerm:
    return RuleTerm(
        name, "no time" if due is None else Moment(due), "passed", due is not None and due < now
    )


def _quiet_term(lease: LeaseInput, now: int) -> RuleTerm:
    until = lease.quiet_until_us
    quiet = until is not None and until >= now
    return RuleTerm(
        "announced quiet period", "none" if until is None else Moment(until), "over", not quiet
    )


def _helper_term(seen: RuleInput) -> RuleTerm:
    return RuleTerm("worker on a task", "yes" if seen.helped else "no", "no", not seen.helped)


def _pending_term(seen: RuleInput) -> RuleTerm:
    return RuleTerm("pending requests", str(len(seen.gates)), "0", not seen.gates)


def _format_time(us: int | None) -> Sentence:
    return [Moment(us)] if us is not None else ["at a time not reported"]


def _format_seconds(seconds: int) -> str:
    return elapsed(seconds * US).replace(".0 s", " s")
