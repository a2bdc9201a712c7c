"""Which retry is legal: the verdict table of the protocol, as one pure and total function.

`verdict(case, now_us)` reads nothing, changes nothing and always answers; the first row that fits wins. What it was
told (`Case.as_dict`) and `VERSION` are kept beside each verdict that was acted on, so that it can be judged again.
Where nobody can know, the answer is *escalate*: a person looks. It never guesses. docs/decisions/0015-verdicts.md says
where a row of the table was made more exact.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

VERSION: Final = 2
ANSWERS: Final = ("execute", "wait", "ask", "skip", "replay", "probe", "compensate", "escalate")
PROBES: Final = ("", "hit", "miss", "several", "error")
# before a remote forgets our key we stop relying on it: clocks differ, requests travel
MARGIN_S: Final = 60
_PROBE_PAUSE_S: Final = 15  # doubled after each failure, to an hour at most
_GONE: Final = ("cancelled", "revoked", "lapsed", "returned")
# Under leave that people gave for one attempt, only these rows may act again; everything else asks them again.
UNDER_USED_LEAVE: Final = ("13", "14", "17", "21")
# rows by which an attempt follows one that is in doubt
REPLAYS: Final = (
    "13",
    "14",
    "15",
    "17",
    "18",
    "19",
    "21",
)
_GIVEN_BY_PEOPLE: Final = ("ruling", "exemption")
CAN_BE_LOOKED_UP: Final = ("joint", "probeable")


@dataclass(frozen=True, slots=True)
class Means:
    """What the operator declared of a tool; times in seconds. The defaults are those of a tool nobody declared."""

    tool_class: str = "opaque"
    request_lifetime_s: int = 300
    key_window_s: int = 0  # how long the remote deduplicates our key; 0: it is not told
    probe: bool = False  # what happened can be looked up by our key or by the remote's reference
    # what undoing needs: "key" (ours), "reference" (the remote's), or nothing can undo it
    cancel_by: str = ""
    max_attempts: int = 3
    max_probes: int = 5


@dataclass(frozen=True, slots=True)
class Case:
    """All that a verdict depends on. Times are microseconds of the server's clock.

    An attempt is *in doubt* when it was released and neither it nor a person said whether it happened, no later look
    proved that it did not, and it was not undone.
    """

    state: str = "planned"
    outcome: str = ""
    failure_reason: str = ""
    leave: str = "held"
    leave_basis: str = ""
    leave_until_us: int | None = None
    same_intent: bool = True  # what is to run is what leave was given for
    attempts: int = 0
    earlier_in_doubt: bool = False  # an attempt before the last may have happened
    keys_in_doubt: int = 1  # under so many remote keys attempts may have happened
    # the key in doubt was not used before this: the remote's window counts from here
    first_us: int | None = None
    last_us: int | None = None  # nothing was sent after this: the fence counts from here
    reference: bool = False  # the remote's own name of it is known
    precondition: bool = False  # the plan says what must still be true
    # another effect on the same resource was released later, or may have been
    later_on_resource: bool = False
    resolution: str = ""  # what a person answered last, to an effect of which nobody could know
    resolved_attempt: int = 0  # … and about which attempt
    # somebody without a say (a fenced worker) reported that it happened
    late_evidence: bool = False
    probe: str = ""  # what the last look found
    probed_us: int | None = None  # that look did not begin before this; None: nobody knows
    probe_errors: int = 0  # failed looks in a row
    on_hold: bool = False
    lease_elsewhere: bool = False  # somebody else's lease on the work is alive
    lease_until_us: int | None = None
    means: Means = Means()
    compensation: "Case | None" = None  # its compensation, where one is open
    undoing_failed: bool = False  # a compensation was denied or refused for good, and none is open

    def as_dict(self) -> dict[str, Any]:
        """The inputs as they are kept beside the verdict; what is as nobody said it is left out."""
        inputs = _said(asdict(self))
        if self.compensation is not None:
            inputs["compensation"] = self.compensation.as_dict()
        return inputs


_NOBODY_SAID: Final = asdict(Case())


def _said(values: dict[str, Any]) -> dict[str, Any]:
    inputs = {name: value for name, value in values.items() if value != _NOBODY_SAID[name]}
    if "means" in inputs:
        plain = _NOBODY_SAID["means"]
        inputs["means"] = {
            name: value for name, value in inputs["means"].items() if value != plain[name]
        }
    return inputs


class Verdict(NamedTuple):
    """What may be done now. `until_us` says when a wait is worth asking again, or until when a replay is."""

    answer: str
    reason: str
    row: str
    until_us: int | None = None
    remote_key: str = ""  # of a replay: "same" or "new"
    asks_leave: bool = False  # the replay needs leave of its own first
    beneath: str = ""  # of row 11: the reason of the compensation's own verdict


def verdict(case: Case, now_us: int) -> Verdict:
    """The first row of the table that fits `case`. Total: every case has an answer."""
    if case.on_hold:
        return Verdict("wait", "HELD", "0")
    if case.lease_elsewhere:
        return Verdict("wait", "LEASE_HELD", "1", case.lease_until_us)
    if case.state == "planned":
        return _not_begun(case, now_us)
    to_be_undone = case.resolution == "compensate" and case.resolved_attempt == case.attempts
    if case.state == "acknowledged" and case.outcome != "unknown" and not to_be_undone:
        return Verdict("skip", "DONE", "7")
    if case.state in ("compensated", "superseded"):
        return Verdict("skip", "CLOSED", "8")
    if case.state == "failed" and case.failure_reason == "rejected" and not case.earlier_in_doubt:
        return _rejected(case, now_us)
    # Row 10: failed by timeout or error, or acknowledged with outcome unknown, is as good as nothing heard.
    if case.compensation is not None:
        own = verdict(case.compensation, now_us)
        return own._replace(reason="COMP_RESUME", row="11", beneath=own.beneath or own.reason)
    if to_be_undone:
        return Verdict("escalate", "UNDO_FAILED", "11b") if case.undoing_failed else _TO_BE_UNDONE
    if case.late_evidence:
        return Verdict("skip", "EVIDENCE", "12")
    decision = _in_doubt(case, now_us)
    if decision.answer != "replay":
        return decision
    if case.failure_reason == "rejected" and case.attempts >= case.means.max_attempts:
        # the last was refused, and one before may have happened
        return Verdict("escalate", "ATTEMPTS_SPENT", "9b")
    return _with_leave(decision, case, now_us)


_TO_BE_UNDONE: Final = Verdict("compensate", "RESOLVED", "11b")


def _not_begun(case: Case, now_us: int) -> Verdict:
    """Rows 2 to 6b: nothing has happened, and leave says what may."""
    over = _over(case, now_us)
    if case.leave == "pending":
        if over:  # nobody ruled in time, and that is a no
            return Verdict("skip", "GATE_EXPIRED", "4")
        return Verdict("wait", "GATE_PENDING", "3", case.leave_until_us)
    if case.leave == "refused":
        return Verdict(
            "skip", "GATE_EXPIRED" if case.leave_basis == "expired" else "GATE_DENIED", "4"
        )
    if case.leave == "granted":
        # also where rules gave leave: they gave it for the intent that was planned
        if not case.same_intent:
            return Verdict("escalate", "INTENT_MISMATCH", "6")
        if over:
            return Verdict("ask", "GATE_GONE", "6b")
        if case.leave_basis == "ruling":
            return Verdict("execute", "APPROVED", "5", case.leave_until_us)
        return Verdict("execute", "NOT_DISPATCHED", "2", case.leave_until_us)
    if case.leave == "held":
        return Verdict("ask", "GATE_GONE" if case.leave_basis in _GONE else "NO_LEAVE", "6b")
    return Verdict("escalate", "INTENT_MISMATCH", "6")  # leave was spent, and not on this


def _rejected(case: Case, now_us: int) -> Verdict:
    """Rows 9 and 9b: the remote said no, so nothing happened; asked again under leave of its own."""
    if not case.same_intent:
        return Verdict("escalate", "INTENT_MISMATCH", "6")
    # A person's word that it did not happen is good for one attempt more, and for no second.
    said_once = case.resolution == "not_happened"
    if case.attempts >= (case.resolved_attempt + 1 if said_once else case.means.max_attempts):
        return Verdict("skip", "ATTEMPTS_SPENT", "9b")
    if case.leave in ("pending", "granted", "refused") or case.leave_basis in _GONE:
        return _not_begun(case, now_us)  # leave for the next attempt was asked for
    return Verdict("replay", "REJECTED_CLEAN", "9", remote_key="new", asks_leave=True)


def _in_doubt(case: Case, now_us: int) -> Verdict:
    """Rows 13 to 26: it was released, and whether it happened nobody has said."""
    means = case.means
    if means.tool_class == "read_only":
        return Verdict("replay", "HARMLESS", "13", remote_key="same")
    if means.tool_class == "natural":
        # A guard that said no to a repetition may have met our own first writing: from then on one has to look.
        if case.precondition and case.failure_reason != "rejected":
            return Verdict("replay", "GUARDED_PUT", "14", remote_key="same")
        if not case.precondition and not case.later_on_resource:
            return Verdict("replay", "PUT_LATEST", "15", remote_key="same")
        return _looked(case, now_us, "STALE_PUT", "16")
    if means.tool_class == "keyed":
        live_until = _after(case.first_us, means.key_window_s - MARGIN_S)
        if case.keys_in_doubt == 1 and live_until is not None and now_us < live_until:
            return Verdict("replay", "KEY_LIVE", "17", live_until, remote_key="same")
        return _looked(case, now_us, "KEY_EXPIRED", "18")
    if means.tool_class == "joint" or (means.tool_class == "probeable" and case.reference):
        return _looked(case, now_us, "REF_PROBE", "19")
    if means.tool_class == "probeable":
        return _looked(case, now_us)
    if means.tool_class == "compensable":
        if means.cancel_by == "key" or (means.cancel_by == "reference" and case.reference):
            if case.undoing_failed:
                return Verdict("escalate", "UNDO_FAILED", "24")
            return Verdict("compensate", "CANCEL_THEN_REDO", "24")
        return _looked(case, now_us) if means.probe else Verdict("escalate", "REF_LOST", "25")
    return Verdict("escalate", "UNDECIDABLE", "26")


def _looked(case: Case, now_us: int, reason: str = "PROBED_ABSENT", row: str = "21") -> Verdict:
    """What a look says, and whether one is to be taken. Only what was begun after the fence proves an absence."""
    means = case.means
    if not (means.probe or means.tool_class in CAN_BE_LOOKED_UP):
        return Verdict("escalate", reason, row)
    if case.probe == "several":
        extras = bool(means.cancel_by) and not case.undoing_failed
        return Verdict("compensate" if extras else "escalate", "DUPLICATE_FOUND", "23")
    if case.probe == "hit":
        return Verdict("skip", reason, row)
    if case.probe == "error":
        if case.probe_errors >= means.max_probes:
            return Verdict("escalate", "PROBE_FAILED", "22")
        pause = min(_PROBE_PAUSE_S * 2 ** min(max(case.probe_errors - 1, 0), 10), 3600)
        again = _after(case.probed_us, pause)
        if again is not None and now_us < again:
            return Verdict("wait", "PROBE_FAILED", "22", again)
    if case.probe != "miss":
        return Verdict("probe", reason, row)
    fence = _after(case.last_us, means.request_lifetime_s)
    if fence is None:  # when it was released is not in the book: no fence can be drawn
        return Verdict("escalate", "FENCE_UNKNOWN", row)
    if case.probed_us is not None and case.probed_us >= fence:
        return _absent(case, reason, row)
    if now_us < fence:
        return Verdict("wait", "FENCE_WAIT", "20", fence)
    return Verdict("probe", reason, row)


def _absent(case: Case, reason: str, row: str) -> Verdict:
    """What follows when it is proven that nothing happened."""
    if row == "16":  # what came later on the resource must not be overwritten
        return Verdict("escalate", reason, row)
    if row == "18":  # the remote has forgotten our key: another one, whose window begins anew
        return Verdict("replay", reason, row, remote_key="new")
    if case.means.tool_class == "joint":
        return Verdict("replay", reason, row, remote_key="same")
    return Verdict("replay", "PROBED_ABSENT", "21", remote_key="same")


def _with_leave(decision: Verdict, case: Case, now_us: int) -> Verdict:
    """A replay, as far as leave allows it: what people gave for one attempt serves again by few rows only."""
    if not case.same_intent:
        return Verdict("escalate", "INTENT_MISMATCH", "6")
    over = _over(case, now_us)
    if case.leave == "pending" and not over:
        return Verdict("wait", "GATE_PENDING", "3", case.leave_until_us)
    # a no; but unlike what was not begun it may have happened
    if case.leave in (
        "pending",
        "refused",
    ):
        expired = case.leave == "pending" or case.leave_basis == "expired"
        return Verdict("escalate", "GATE_EXPIRED" if expired else "GATE_DENIED", "4")
    if case.leave == "granted" and not over:
        return decision
    serves = case.leave_basis not in _GIVEN_BY_PEOPLE or decision.row in UNDER_USED_LEAVE
    return decision if case.leave == "used" and serves else decision._replace(asks_leave=True)


def is_safe(decision: Verdict) -> bool:
    """True when the work may go on without a person: nothing escalates, no gate is open, nothing is held."""
    return decision.answer != "escalate" and (decision.beneath or decision.reason) not in (
        "GATE_PENDING",
        "HELD",
    )


def sentence(decision: Verdict, handle: str = "The effect") -> str:
    """The verdict for people and agents: what is known, and what to do."""
    if decision.row == "11":
        return (
            f"{handle} is being undone; settle its compensation first. {_WORDS[decision.beneath]}"
        )
    words = _WORDS[decision.reason]
    if decision.answer == "escalate":
        words += " A person must say what became of it." if decision.row != "6" else ""
    elif decision.answer == "replay":
        words += f" Dispatch it again with `replays`, under the {decision.remote_key} remote key"
        words += (
            ", after planning it again: this needs leave of its own."
            if decision.asks_leave
            else "."
        )
    elif decision.answer == "probe":
        words += " Look whether it happened, and report what you found."
    return f"{handle}: {words}"


_WORDS: Final = {
    "HELD": "a person has stopped this; wait until the stop is lifted.",
    "LEASE_HELD": "another worker holds the lease; leave it to them while it lasts.",
    "NOT_DISPATCHED": "nothing was dispatched; dispatch it, then act.",
    "GATE_PENDING": "people have not ruled yet; wait.",
    "GATE_DENIED": "leave was refused; do not act.",
    "GATE_EXPIRED": "nobody ruled in time, and that is a no; do not act.",
    "APPROVED": "people gave leave; dispatch it, then act.",
    "INTENT_MISMATCH": "leave was not given for this; plan it as a new effect.",
    "GATE_GONE": "its leave is gone; plan it again to ask, or withdraw it.",
    "NO_LEAVE": "it has no leave; plan it again to ask, or withdraw it.",
    "DONE": "it is done; do not do it again.",
    "CLOSED": "it is closed; do nothing.",
    "REJECTED_CLEAN": "it was refused, and nothing happened.",
    "ATTEMPTS_SPENT": "every attempt was refused, and no more are allowed; do not try again.",
    "RESOLVED": "a person decided that it is undone; compensate it.",
    "UNDO_FAILED": "it was to be undone, and that came to nothing.",
    "EVIDENCE": "a worker that had lost its lease reported that it happened; acknowledge it, and do not do it again.",
    "HARMLESS": "it changes nothing.",
    "GUARDED_PUT": "it is guarded by its precondition.",
    "PUT_LATEST": "it sets an absolute state, and nothing newer touched the same resource.",
    "STALE_PUT": "something newer touched the same resource, or may have.",
    "KEY_LIVE": "the remote still knows its key, and does nothing twice under it.",
    "KEY_EXPIRED": "the remote may have forgotten its key.",
    "REF_PROBE": "the remote keeps a record by which it can be found.",
    "FENCE_WAIT": "it was not found, but a request may still be under way; wait, then look again.",
    "PROBED_ABSENT": "whether it happened can be looked up.",
    "PROBE_FAILED": "looking failed.",
    "DUPLICATE_FOUND": "it was found more than once; undo what is too many.",
    "CANCEL_THEN_REDO": "nobody knows whether it happened; undo it, then do it anew.",
    "REF_LOST": "it could only be undone by a reference that nobody has.",
    "FENCE_UNKNOWN": "it was not found; but nobody told when it was released, so it may still be under way.",
    "UNDECIDABLE": "nobody can know whether it happened; do not do it again.",
}


def _over(case: Case, now_us: int) -> bool:
    return case.leave_until_us is not None and case.leave_until_us < now_us


def _after(start_us: int | None, seconds: int) -> int | None:
    return None if start_us is None or seconds <= 0 else start_us + seconds * 1_000_000
