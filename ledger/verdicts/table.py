"""Verdict table: the allowed next step of an effect, as one pure function.

`decide_verdict(case, now_us)` reads nothing, changes nothing and always answers; the first row
that matches decides. Its inputs (`VerdictInput.as_dict`) and `TABLE_VERSION` are stored with each
verdict that was acted on, so that the verdict can be computed again. An outcome that no check can
settle is *escalated* to a person; the table never guesses. docs/decisions/0015-verdicts.md lists
where a row was made more exact.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

TABLE_VERSION: Final = 2
VERDICT_ANSWERS: Final = (
    "execute",
    "wait",
    "ask",
    "skip",
    "replay",
    "probe",
    "compensate",
    "escalate",
)
# The key is not used in the last minute of the remote's window: clocks differ, requests travel.
MARGIN_S: Final = 60
_PROBE_PAUSE_S: Final = 15  # doubled after each failure, at most one hour
_GONE: Final = ("cancelled", "revoked", "expired_unused", "changes_requested")
# A permission that people gave for one attempt covers a second one by these rows only.
ROWS_UNDER_USED_PERMISSION: Final = ("13", "14", "17", "21")
# The rows that allow an attempt in place of one whose outcome is unknown.
REPLAY_ROWS: Final = ("13", "14", "15", "17", "18", "19", "21")
_GIVEN_BY_PEOPLE: Final = ("ruling", "exemption")
PROBEABLE_CLASSES: Final = ("transactional", "probeable")


@dataclass(frozen=True, slots=True)
class ToolProperties:
    """Declared properties of a tool, times in seconds; defaults if undeclared."""

    tool_class: str = "opaque"
    request_lifetime_s: int = 300
    key_window_s: int = 0  # how long the remote deduplicates our key; 0: not declared
    probe: bool = False  # the outcome can be checked by our key or the remote's reference
    # What a compensation needs: "key" (ours), "reference" (the remote's), or "" (none possible).
    cancel_by: str = ""
    max_attempts: int = 3
    max_probes: int = 5


@dataclass(frozen=True, slots=True)
class VerdictInput:
    """The inputs of a verdict. Times are microseconds of the server's clock.

    An attempt is *in doubt* if it was dispatched, neither a report nor a person settled its
    outcome, no later probe proved its absence, and it was not undone.
    """

    state: str = "planned"
    outcome: str = ""
    failure_reason: str = ""
    permission: str = "none"
    permission_basis: str = ""
    permission_until_us: int | None = None
    same_intent: bool = True  # the permission covers the intent that is to run
    attempts: int = 0
    earlier_in_doubt: bool = False  # an attempt before the last may have happened
    keys_in_doubt: int = 1  # the number of remote keys of attempts in doubt
    # The key in doubt was not used before this moment: the remote's key window starts here.
    first_us: int | None = None
    last_us: int | None = None  # nothing was sent after this: the in-flight window starts here
    reference: bool = False  # the remote's reference is known
    precondition: bool = False  # the plan has preconditions
    # Another effect on the same resource was dispatched later, or may have been.
    later_on_resource: bool = False
    resolution: str = ""  # the last answer of a person about an unknown outcome
    resolved_attempt: int = 0  # … and the attempt it is about
    # A worker without a valid lease reported that it happened.
    late_evidence: bool = False
    probe: str = ""  # the result of the last probe
    probed_us: int | None = None  # that probe began at this time or later; None: unknown
    probe_errors: int = 0  # consecutive failed probes
    is_stopped: bool = False
    lease_elsewhere: bool = False  # another worker's lease on the work is live
    lease_until_us: int | None = None
    means: ToolProperties = ToolProperties()
    compensation: "VerdictInput | None" = None  # its open compensation, if any
    undoing_failed: bool = False  # a compensation was denied or failed, and none is open

    def as_dict(self) -> dict[str, Any]:
        """Return the inputs as stored with the verdict, without default values."""
        inputs = _without_defaults(asdict(self))
        if self.compensation is not None:
            inputs["compensation"] = self.compensation.as_dict()
        return inputs


_DEFAULTS: Final = asdict(VerdictInput())


def _without_defaults(values: dict[str, Any]) -> dict[str, Any]:
    inputs = {name: value for name, value in values.items() if value != _DEFAULTS[name]}
    if "means" in inputs:
        plain = _DEFAULTS["means"]
        inputs["means"] = {
            name: value for name, value in inputs["means"].items() if value != plain[name]
        }
    return inputs


class Verdict(NamedTuple):
    """The allowed next step. `until_us`: when to ask again, or a replay's end."""

    answer: str
    reason: str
    row: str
    until_us: int | None = None
    remote_key: str = ""  # of a replay: "same" or "new"
    needs_new_permission: bool = False  # the replay needs its own permission first
    beneath: str = ""  # row 11: the reason of the compensation's verdict


def decide_verdict(case: VerdictInput, now_us: int) -> Verdict:
    """Return the first matching row of the table; every case has a verdict."""
    if case.is_stopped:
        return Verdict("wait", "STOPPED", "0")
    if case.lease_elsewhere:
        return Verdict("wait", "LEASE_HELD", "1", case.lease_until_us)
    if case.state == "planned":
        return _decide_undispatched(case, now_us)
    to_be_undone = case.resolution == "compensate" and case.resolved_attempt == case.attempts
    if case.state == "acknowledged" and case.outcome != "unknown" and not to_be_undone:
        return Verdict("skip", "DONE", "7")
    if case.state in ("compensated", "superseded"):
        return Verdict("skip", "CLOSED", "8")
    if case.state == "failed" and case.failure_reason == "rejected" and not case.earlier_in_doubt:
        return _decide_rejected(case, now_us)
    # Row 10: a timeout, an error or an unknown outcome counts as no report at all.
    if case.compensation is not None:
        own = decide_verdict(case.compensation, now_us)
        return own._replace(reason="COMP_RESUME", row="11", beneath=own.beneath or own.reason)
    if to_be_undone:
        return Verdict("escalate", "UNDO_FAILED", "11b") if case.undoing_failed else _COMPENSATE
    if case.late_evidence:
        return Verdict("skip", "EVIDENCE", "12")
    decision = _decide_uncertain(case, now_us)
    if decision.answer != "replay":
        return decision
    if case.failure_reason == "rejected" and case.attempts >= case.means.max_attempts:
        # The last attempt was rejected, and an earlier one may have happened.
        return Verdict("escalate", "ATTEMPTS_SPENT", "9b")
    return _apply_permission(decision, case, now_us)


_COMPENSATE: Final = Verdict("compensate", "RESOLVED", "11b")


def _decide_undispatched(case: VerdictInput, now_us: int) -> Verdict:
    """Rows 2 to 6b: nothing has happened, and the permission decides."""
    expired = _is_expired(case, now_us)
    if case.permission == "pending":
        if expired:
            return Verdict("skip", "GATE_EXPIRED", "4")
        return Verdict("wait", "GATE_PENDING", "3", case.permission_until_us)
    if case.permission == "denied":
        return Verdict(
            "skip", "GATE_EXPIRED" if case.permission_basis == "expired" else "GATE_DENIED", "4"
        )
    if case.permission == "granted":
        # A permission of a policy rule also covers only the planned intent.
        if not case.same_intent:
            return Verdict("escalate", "INTENT_MISMATCH", "6")
        if expired:
            return Verdict("ask", "GATE_GONE", "6b")
        if case.permission_basis == "ruling":
            return Verdict("execute", "APPROVED", "5", case.permission_until_us)
        return Verdict("execute", "NOT_DISPATCHED", "2", case.permission_until_us)
    if case.permission == "none":
        return Verdict(
            "ask", "GATE_GONE" if case.permission_basis in _GONE else "NO_PERMISSION", "6b"
        )
    return Verdict("escalate", "INTENT_MISMATCH", "6")  # the permission was used for another effect


def _decide_rejected(case: VerdictInput, now_us: int) -> Verdict:
    """Rows 9 and 9b: rejected by the remote, so a retry needs permission."""
    if not case.same_intent:
        return Verdict("escalate", "INTENT_MISMATCH", "6")
    # A person's "it did not happen" allows exactly one more attempt.
    is_resolved = case.resolution == "not_happened"
    if case.attempts >= (case.resolved_attempt + 1 if is_resolved else case.means.max_attempts):
        return Verdict("skip", "ATTEMPTS_SPENT", "9b")
    if case.permission in ("pending", "granted", "denied") or case.permission_basis in _GONE:
        return _decide_undispatched(case, now_us)  # permission for the next attempt was requested
    return Verdict("replay", "REJECTED_CLEAN", "9", remote_key="new", needs_new_permission=True)


def _decide_uncertain(case: VerdictInput, now_us: int) -> Verdict:
    """Rows 13 to 26: it was dispatched, and its outcome is unknown."""
    means = case.means
    if means.tool_class == "read_only":
        return Verdict("replay", "HARMLESS", "13", remote_key="same")
    if means.tool_class == "idempotent":
        # A precondition that rejects a repetition may have met our own first write: probe first.
        if case.precondition and case.failure_reason != "rejected":
            return Verdict("replay", "CONDITIONAL_PUT", "14", remote_key="same")
        if not case.precondition and not case.later_on_resource:
            return Verdict("replay", "PUT_LATEST", "15", remote_key="same")
        return _decide_by_probe(case, now_us, "STALE_PUT", "16")
    if means.tool_class == "idempotency_key":
        live_until = _moment_after(case.first_us, means.key_window_s - MARGIN_S)
        if case.keys_in_doubt == 1 and live_until is not None and now_us < live_until:
            return Verdict("replay", "KEY_LIVE", "17", live_until, remote_key="same")
        return _decide_by_probe(case, now_us, "KEY_EXPIRED", "18")
    if means.tool_class == "transactional" or (means.tool_class == "probeable" and case.reference):
        return _decide_by_probe(case, now_us, "REF_PROBE", "19")
    if means.tool_class == "probeable":
        return _decide_by_probe(case, now_us)
    if means.tool_class == "compensable":
        if means.cancel_by == "key" or (means.cancel_by == "reference" and case.reference):
            if case.undoing_failed:
                return Verdict("escalate", "UNDO_FAILED", "24")
            return Verdict("compensate", "CANCEL_THEN_REDO", "24")
        return (
            _decide_by_probe(case, now_us) if means.probe else Verdict("escalate", "REF_LOST", "25")
        )
    return Verdict("escalate", "UNDECIDABLE", "26")


def _decide_by_probe(
    case: VerdictInput, now_us: int, reason: str = "PROBED_ABSENT", row: str = "21"
) -> Verdict:
    """Apply or request a probe; only one after the window proves an absence."""
    means = case.means
    if not (means.probe or means.tool_class in PROBEABLE_CLASSES):
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
        again = _moment_after(case.probed_us, pause)
        if again is not None and now_us < again:
            return Verdict("wait", "PROBE_FAILED", "22", again)
    if case.probe != "miss":
        return Verdict("probe", reason, row)
    window_end = _moment_after(case.last_us, means.request_lifetime_s)
    if window_end is None:  # the dispatch time is unknown, so the in-flight window has no end
        return Verdict("escalate", "IN_FLIGHT_UNKNOWN", row)
    if case.probed_us is not None and case.probed_us >= window_end:
        return _decide_after_absence(case, reason, row)
    if now_us < window_end:
        return Verdict("wait", "IN_FLIGHT_WAIT", "20", window_end)
    return Verdict("probe", reason, row)


def _decide_after_absence(case: VerdictInput, reason: str, row: str) -> Verdict:
    """Return the next step after a proven absence."""
    if row == "16":  # later effects on the resource must not be overwritten
        return Verdict("escalate", reason, row)
    if row == "18":  # the remote has forgotten our key: use another, with a window of its own
        return Verdict("replay", reason, row, remote_key="new")
    if case.means.tool_class == "transactional":
        return Verdict("replay", reason, row, remote_key="same")
    return Verdict("replay", "PROBED_ABSENT", "21", remote_key="same")


def _apply_permission(decision: Verdict, case: VerdictInput, now_us: int) -> Verdict:
    """Apply permission to a replay: one given by people covers few rows a second time."""
    if not case.same_intent:
        return Verdict("escalate", "INTENT_MISMATCH", "6")
    expired = _is_expired(case, now_us)
    if case.permission == "pending" and not expired:
        return Verdict("wait", "GATE_PENDING", "3", case.permission_until_us)
    # A denial or an expired request. The effect may have happened, unlike one not yet begun.
    if case.permission in ("pending", "denied"):
        was_expired = case.permission == "pending" or case.permission_basis == "expired"
        return Verdict("escalate", "GATE_EXPIRED" if was_expired else "GATE_DENIED", "4")
    if case.permission == "granted" and not expired:
        return decision
    serves = (
        case.permission_basis not in _GIVEN_BY_PEOPLE or decision.row in ROWS_UNDER_USED_PERMISSION
    )
    return (
        decision
        if case.permission == "used" and serves
        else decision._replace(needs_new_permission=True)
    )


def is_safe_to_continue(decision: Verdict) -> bool:
    """True if work can continue without a person: no escalation, gate or stop."""
    return decision.answer != "escalate" and (decision.beneath or decision.reason) not in (
        "GATE_PENDING",
        "STOPPED",
    )


def describe_verdict(decision: Verdict, handle: str = "The effect") -> str:
    """Return the verdict for people and agents: what is known, and what to do."""
    if decision.row == "11":
        words = _SENTENCES[decision.beneath]
        return f"{handle} is being undone; settle its compensation first. {words}"
    words = _SENTENCES[decision.reason]
    if decision.answer == "escalate":
        words += " A person must resolve it." if decision.row != "6" else ""
    elif decision.answer == "replay":
        words += f" Dispatch it again with `replays` and the {decision.remote_key} remote key"
        words += (
            ", after planning it again to get permission." if decision.needs_new_permission else "."
        )
    elif decision.answer == "probe":
        words += " Check the remote service, and report what you found."
    return f"{handle}: {words}"


_SENTENCES: Final = {
    "STOPPED": "stopped by a person; wait until the stop is lifted.",
    "LEASE_HELD": (
        "another worker holds the lease; do not act; wait until that lease ends, then acquire it."
    ),
    "NOT_DISPATCHED": "not dispatched yet; dispatch it, then act.",
    "GATE_PENDING": "waiting for approval; wait.",
    "GATE_DENIED": "approval was denied; do not act.",
    "GATE_EXPIRED": "the approval request expired; do not act.",
    "APPROVED": "approved; dispatch it, then act.",
    "INTENT_MISMATCH": "the permission is for another intent; plan a new effect.",
    "GATE_GONE": "its permission no longer applies; plan it again, or withdraw it.",
    "NO_PERMISSION": "it has no permission; plan it again, or withdraw it.",
    "DONE": "it is done; do not do it again.",
    "CLOSED": "it is closed; do nothing.",
    "REJECTED_CLEAN": "it was rejected, and nothing happened.",
    "ATTEMPTS_SPENT": "it was rejected, and no attempts remain; do not try again.",
    "RESOLVED": "a person requested its compensation; compensate it.",
    "UNDO_FAILED": "its compensation failed.",
    "EVIDENCE": (
        "a worker that had lost its lease reported that it happened;"
        " acknowledge it, and do not do it again."
    ),
    "HARMLESS": "it changes nothing.",
    "CONDITIONAL_PUT": "its precondition protects it.",
    "PUT_LATEST": "it sets an absolute state, and nothing newer touched the same resource.",
    "STALE_PUT": "something newer touched the same resource, or may have.",
    "KEY_LIVE": "the remote service still knows the remote key, and does nothing twice under it.",
    "KEY_EXPIRED": "the remote service may have forgotten the remote key.",
    "REF_PROBE": "the remote service keeps a record by which you can find it.",
    "IN_FLIGHT_WAIT": "not found, but a request may still be in flight; wait, then check again.",
    "PROBED_ABSENT": "you can check whether it happened.",
    "PROBE_FAILED": "the probe failed.",
    "DUPLICATE_FOUND": "found more than once; compensate the extra ones.",
    "CANCEL_THEN_REDO": "its outcome is unknown; compensate it, then do it again.",
    "REF_LOST": "only a reference could undo it, and that reference is unknown.",
    "IN_FLIGHT_UNKNOWN": (
        "not found, but its dispatch time is unknown, so it may still be in flight."
    ),
    "UNDECIDABLE": "its outcome is unknown and cannot be checked; do not do it again.",
}


def _is_expired(case: VerdictInput, now_us: int) -> bool:
    return case.permission_until_us is not None and case.permission_until_us < now_us


def _moment_after(start_us: int | None, seconds: int) -> int | None:
    return None if start_us is None or seconds <= 0 else start_us + seconds * 1_000_000
