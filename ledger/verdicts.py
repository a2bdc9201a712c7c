"""Which retry is legal: the verdict table of the protocol, as one pure and total function.

`verdict(case, now_us)` reads nothing, changes nothing and always answers; the first row that fits wins. What it was
told (`Case.as_dict`) and `VERSION` are kept beside each verdict that was acted on, so that it can be judged again.
Where nobody can know, the answer is *escalate*: a person looks. It never guesses.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

VERSION: Final = 1
ANSWERS: Final = ("execute", "wait", "ask", "skip", "replay", "probe", "compensate", "escalate")
PROBES: Final = ("", "hit", "miss", "several", "error")
_MARGIN_S: Final = 60  # before a remote forgets our key we stop relying on it: clocks differ, requests travel
_PROBE_PAUSE_S: Final = 15  # doubled after each failure, to an hour at most
_GONE: Final = ("cancelled", "revoked", "lapsed", "returned")
# Under leave that one ruling gave, only these rows may act again; everything else is new to the person who ruled.
_UNDER_USED_LEAVE: Final = ("13", "14", "17", "21")


@dataclass(frozen=True, slots=True)
class Means:
    """What the operator declared of a tool; times in seconds. The defaults are those of a tool nobody declared."""

    tool_class: str = "opaque"
    request_lifetime_s: int = 300
    key_window_s: int = 0  # how long the remote deduplicates our key; 0: it is not told
    probe: bool = False  # what happened can be looked up by our key or by the remote's reference
    cancel_by: str = ""  # what undoing needs: "key" (ours), "reference" (the remote's), or nothing can undo it
    max_attempts: int = 3
    max_probes: int = 5


@dataclass(frozen=True, slots=True)
class Case:
    """All that a verdict depends on. Times are microseconds of the server's clock."""

    state: str = "planned"
    outcome: str = ""
    failure_reason: str = ""
    leave: str = "held"
    leave_basis: str = ""
    leave_until_us: int | None = None
    same_intent: bool = True  # what is to run is what leave was given for
    attempts: int = 0
    dispatched_us: int | None = None  # when the last attempt was released
    reference: bool = False  # the remote's own name of it is known
    precondition: bool = False  # the plan says what must still be true
    later_on_resource: bool = False  # another effect on the same resource was released later
    resolution: str = ""  # what a person answered last, to an effect of which nobody could know
    resolved_attempt: int = 0  # … and about which attempt
    late_evidence: bool = False  # somebody without a say (a fenced worker) reported that it happened
    probe: str = ""  # what the last look found
    probed_us: int | None = None  # when that look began
    probe_errors: int = 0  # failed looks in a row
    on_hold: bool = False
    lease_elsewhere: bool = False  # somebody else's lease on the work is alive
    lease_until_us: int | None = None
    means: Means = Means()
    compensation: "Case | None" = None  # its compensation, where one is open

    def as_dict(self) -> dict[str, Any]:
        """The inputs as they are kept beside the verdict; what is as nobody said it is left out."""
        plain = _NOBODY_SAID
        said = {name: value for name, value in asdict(self).items() if value != plain[name]}
        if "means" in said:
            said["means"] = {name: value for name, value in said["means"].items() if value != plain["means"][name]}
        return said


_NOBODY_SAID: Final = asdict(Case())


class Verdict(NamedTuple):
    """What may be done now. `until_us` says when a wait is worth asking again."""

    answer: str
    reason: str
    row: str
    until_us: int | None = None
    remote_key: str = ""  # of a replay: "same" or "new"
    asks_leave: bool = False  # the replay needs leave of its own first


def verdict(case: Case, now_us: int) -> Verdict:
    """The first row of the table that fits `case`. Total: every case has an answer."""
    if case.on_hold:
        return Verdict("wait", "HELD", "0")
    if case.lease_elsewhere:
        return Verdict("wait", "LEASE_HELD", "1", case.lease_until_us)
    if case.state == "planned":
        return _not_begun(case, now_us)
    if case.state in ("compensated", "superseded"):
        return Verdict("skip", "CLOSED", "8")
    to_be_undone = case.resolution == "compensate" and case.resolved_attempt == case.attempts
    if case.state == "acknowledged" and case.outcome != "unknown" and not to_be_undone:
        return Verdict("skip", "DONE", "7")
    if case.state == "failed" and case.failure_reason == "rejected":
        return _rejected(case, now_us)
    if case.compensation is not None:
        own = verdict(case.compensation, now_us)
        return own._replace(reason="COMP_RESUME", row="11")
    if to_be_undone:
        return Verdict("compensate", "RESOLVED", "11b")
    if case.late_evidence:
        return Verdict("skip", "EVIDENCE", "12")
    found = _unknown(case, now_us)
    if found.answer == "replay" and case.leave_basis == "ruling" and found.row not in _UNDER_USED_LEAVE:
        return found._replace(asks_leave=True)
    return found


def _not_begun(case: Case, now_us: int) -> Verdict:
    """Rows 2 to 6b: nothing has happened, and leave says what may."""
    over = case.leave_until_us is not None and case.leave_until_us < now_us
    if case.leave == "pending":
        if over:  # nobody ruled in time, and that is a no
            return Verdict("skip", "GATE_EXPIRED", "4")
        return Verdict("wait", "GATE_PENDING", "3", case.leave_until_us)
    if case.leave == "refused":
        return Verdict("skip", "GATE_EXPIRED" if case.leave_basis == "expired" else "GATE_DENIED", "4")
    if case.leave == "granted":
        if not case.same_intent:
            return Verdict("escalate", "INTENT_MISMATCH", "6")
        if over:
            return Verdict("ask", "GATE_GONE", "6b")
        if case.leave_basis == "ruling":
            return Verdict("execute", "APPROVED", "5")
        return Verdict("execute", "NOT_DISPATCHED", "2")
    if case.leave == "held":
        return Verdict("ask", "GATE_GONE" if case.leave_basis in _GONE else "NO_LEAVE", "6b")
    return Verdict("escalate", "INTENT_MISMATCH", "6")  # leave was spent, and not on this


def _rejected(case: Case, now_us: int) -> Verdict:
    """Rows 9 and 9b: the remote said no, so nothing happened; asked again under leave of its own."""
    # A person's word that it did not happen is good for one attempt more, and for no second.
    said_once = case.resolution == "not_happened"
    if case.attempts >= (case.resolved_attempt + 1 if said_once else case.means.max_attempts):
        return Verdict("skip", "ATTEMPTS_SPENT", "9b")
    if case.leave in ("pending", "granted", "refused") or case.leave_basis in _GONE:
        return _not_begun(case, now_us)  # leave for the next attempt was asked for
    return Verdict("replay", "REJECTED_CLEAN", "9", remote_key="new", asks_leave=True)


def _unknown(case: Case, now_us: int) -> Verdict:
    """Rows 13 to 26: it was released, and whether it happened nobody has said."""
    means = case.means
    if means.tool_class == "read_only":
        return Verdict("replay", "HARMLESS", "13", remote_key="same")
    if means.tool_class == "natural":
        if case.precondition:
            return Verdict("replay", "GUARDED_PUT", "14", remote_key="same")
        if not case.later_on_resource:
            return Verdict("replay", "PUT_LATEST", "15", remote_key="same")
        return _looked(case, now_us, "STALE_PUT", "16")
    if means.tool_class == "keyed":
        live_until = _after(case.dispatched_us, means.key_window_s - _MARGIN_S)
        if live_until is not None and now_us < live_until:
            return Verdict("replay", "KEY_LIVE", "17", live_until, remote_key="same")
        return _looked(case, now_us, "KEY_EXPIRED", "18")
    if means.tool_class == "joint":
        return _looked(case, now_us, "REF_PROBE", "19")
    if means.tool_class == "probeable":
        return _looked(case, now_us, "REF_PROBE", "19") if case.reference else _looked(case, now_us)
    if means.tool_class == "compensable":
        if means.cancel_by == "key" or (means.cancel_by == "reference" and case.reference):
            return Verdict("compensate", "CANCEL_THEN_REDO", "24")
        return _looked(case, now_us, "REF_LOST", "25")
    return Verdict("escalate", "UNDECIDABLE", "26")


def _looked(case: Case, now_us: int, reason: str = "PROBED_ABSENT", row: str = "21") -> Verdict:
    """What a look says, and whether one is to be taken. Only what was begun after the fence proves an absence."""
    means = case.means
    can_look = means.probe or means.tool_class in ("joint", "probeable")
    if not can_look:
        return Verdict("escalate", reason, row)
    if case.probe == "several":
        return Verdict("compensate" if means.cancel_by else "escalate", "DUPLICATE_FOUND", "23")
    if case.probe == "hit":
        return Verdict("skip", reason, row)
    if case.probe == "error":
        if case.probe_errors >= means.max_probes:
            return Verdict("escalate", "PROBE_FAILED", "22")
        pause = min(_PROBE_PAUSE_S * 2 ** max(case.probe_errors - 1, 0), 3600)
        again = _after(case.probed_us, pause)
        if again is not None and now_us < again:
            return Verdict("wait", "PROBE_FAILED", "22", again)
        return Verdict("probe", reason, row)
    if case.probe != "miss":
        return Verdict("probe", reason, row)
    fence = _after(case.dispatched_us, means.request_lifetime_s)
    if fence is None or case.probed_us is None:  # when it was released is not in the book: no fence can be drawn
        return Verdict("escalate", "UNDECIDABLE", "26")
    if case.probed_us >= fence:
        if row == "16":  # it did not happen, and what came later on the resource must not be overwritten
            return Verdict("escalate", reason, row)
        # The remote has forgotten our key (18), so it would not know the old one again.
        return Verdict("replay", reason, row, remote_key="new" if row == "18" else "same")
    if now_us < fence:
        return Verdict("wait", "FENCE_WAIT", "20", fence)
    return Verdict("probe", reason, row)


def is_safe(found: Verdict) -> bool:
    """True when the work may go on without a person: nothing escalates, no gate is open, nothing is held."""
    return found.answer != "escalate" and found.reason not in ("GATE_PENDING", "HELD", "NO_LEAVE")


def _after(start_us: int | None, seconds: int) -> int | None:
    return None if start_us is None or seconds <= 0 else start_us + seconds * 1_000_000
