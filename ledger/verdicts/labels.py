"""Labels and sentences of the verdict table, for the pages. Reads no database.

`VERDICT_ROWS` lists the table of ledger/verdicts/table.py row by row; a test checks that every
possible verdict is listed.
"""

from typing import Final, NamedTuple

from ledger.verdicts.table import Verdict


class VerdictRow(NamedTuple):
    """One row of the table. `changes` says what would change the verdict."""

    number: str
    when: str
    reasons: tuple[str, ...]
    then: str
    changes: str


_LATE: Final = "Late evidence is still accepted."
_PERSON: Final = f"Resolution by a person. {_LATE}"
_LOOK: Final = "A probe that finds it, or finds nothing after the in-flight window."

VERDICT_ROWS: Final = (
    VerdictRow(
        "0",
        "Its effect, session, agent, tool or project is stopped",
        ("STOPPED",),
        "wait",
        "Someone lifts the stop.",
    ),
    VerdictRow(
        "1",
        "Another worker holds a lease on the work",
        ("LEASE_HELD",),
        "wait",
        "The worker reports, or its lease ends.",
    ),
    VerdictRow(
        "2", "Planned, and permitted without approval", ("NOT_DISPATCHED",), "run", "Its dispatch."
    ),
    VerdictRow(
        "3",
        "Planned, and waiting for approval",
        ("GATE_PENDING",),
        "wait",
        "Someone decides, or the request expires.",
    ),
    VerdictRow(
        "4",
        "Approval was denied, or the request expired",
        ("GATE_DENIED", "GATE_EXPIRED"),
        "skip, and supersede it; if it may have happened, a person decides",
        "Nothing. A new effect may be planned.",
    ),
    VerdictRow(
        "5",
        "Planned, and exactly this was approved",
        ("APPROVED",),
        "run, and use the permission",
        "Its dispatch.",
    ),
    VerdictRow(
        "6",
        "The permission is for another intent, or used",
        ("INTENT_MISMATCH",),
        "a person decides",
        "A new effect with its own permission, or a person who abandons this one.",
    ),
    VerdictRow(
        "6b",
        "Planned, and permission was revoked, expired unused, or never requested",
        ("GATE_GONE", "NO_PERMISSION"),
        "request permission again",
        "Planning it again.",
    ),
    VerdictRow(
        "7",
        "Acknowledged, and its outcome is known",
        ("DONE",),
        "skip, and use the stored reference",
        "Nothing.",
    ),
    VerdictRow("8", "Compensated or superseded", ("CLOSED",), "skip", "Nothing."),
    VerdictRow(
        "9",
        "Failed: rejected by the remote service, or resolved as not happened",
        ("REJECTED_CLEAN",),
        "replay with its own permission and a new remote key",
        "Planning it again.",
    ),
    VerdictRow(
        "9b",
        "Failed, and no attempts remain",
        ("ATTEMPTS_SPENT",),
        "skip; if an earlier attempt may have happened, a person decides",
        "Nothing. A new effect may be planned.",
    ),
    VerdictRow(
        "10",
        "Failed by timeout or error, or acknowledged as unknown",
        (),
        "treated as dispatched: rows 11b to 26",
        "",
    ),
    VerdictRow(
        "11",
        "Its compensation is open",
        ("COMP_RESUME",),
        "the compensation's own verdict",
        "The outcome of the compensation.",
    ),
    VerdictRow(
        "11b",
        "A person requested its compensation",
        ("RESOLVED", "UNDO_FAILED"),
        "compensate; if that failed, a person decides",
        "An acknowledged compensation, or another resolution by a person.",
    ),
    VerdictRow(
        "12",
        "A worker without a valid lease reported that it happened",
        ("EVIDENCE",),
        "skip",
        "Nothing.",
    ),
    VerdictRow(
        "13", "Dispatched, and the tool changes nothing", ("HARMLESS",), "replay", "Its answer."
    ),
    VerdictRow(
        "14",
        "Dispatched, and it sets a state under a precondition",
        ("CONDITIONAL_PUT",),
        "replay with the precondition",
        "Its answer.",
    ),
    VerdictRow(
        "15",
        "Dispatched, it sets a state, and nothing later touched the resource",
        ("PUT_LATEST",),
        "replay",
        "Its answer, or a later effect on the resource.",
    ),
    VerdictRow(
        "16",
        "As row 15, but a later effect on the resource exists",
        ("STALE_PUT", "IN_FLIGHT_UNKNOWN"),
        "probe, otherwise a person decides",
        _LOOK,
    ),
    VerdictRow(
        "17",
        "Dispatched, and the remote service still knows the remote key",
        ("KEY_LIVE",),
        "replay with the same remote key",
        "The end of the remote service's key window.",
    ),
    VerdictRow(
        "18",
        "Dispatched, and the remote service has forgotten the remote key",
        ("KEY_EXPIRED", "IN_FLIGHT_UNKNOWN"),
        "probe, otherwise a person decides",
        _LOOK,
    ),
    VerdictRow(
        "19",
        "Dispatched, and the remote service's record decides",
        ("REF_PROBE", "IN_FLIGHT_UNKNOWN"),
        "probe: if found, skip; if absent after the in-flight window, replay",
        _LOOK,
    ),
    VerdictRow(
        "20",
        "Dispatched, not found by a probe, and a request may still be in flight",
        ("IN_FLIGHT_WAIT",),
        "wait",
        "The end of the in-flight window: before it, an earlier request may still arrive.",
    ),
    VerdictRow(
        "21",
        "Dispatched, and it can be probed by the remote key",
        ("PROBED_ABSENT", "IN_FLIGHT_UNKNOWN"),
        "probe: if found, skip; if absent after the in-flight window, replay with the same"
        " remote key",
        _LOOK,
    ),
    VerdictRow(
        "22",
        "The probe fails",
        ("PROBE_FAILED",),
        "wait and probe again; after the last probe a person decides",
        f"A successful probe, or resolution by a person. {_LATE}",
    ),
    VerdictRow(
        "23",
        "A probe found two or more",
        ("DUPLICATE_FOUND",),
        "compensate the extras, otherwise a person decides",
        _PERSON,
    ),
    VerdictRow(
        "24",
        "Dispatched, and the remote key or the known reference can undo it",
        ("CANCEL_THEN_REDO", "UNDO_FAILED"),
        "compensate, then a new attempt with a new remote key; if that failed, a person decides",
        "An acknowledged compensation.",
    ),
    VerdictRow(
        "25",
        "Dispatched, and only an unknown reference can undo it",
        ("REF_LOST",),
        "probe where possible, otherwise a person decides",
        _PERSON,
    ),
    VerdictRow(
        "26",
        "Anything else: an opaque or undeclared tool, or missing facts",
        ("UNDECIDABLE",),
        "a person decides",
        _PERSON,
    ),
)
ROW_BY_NUMBER: Final = {row.number: row for row in VERDICT_ROWS}

# The answer -> the text of its chip, and the class that colours it.
ANSWER_LABELS: Final = {
    "execute": ("RUN", "is-dispatched"),
    "wait": ("WAIT", "is-awaiting"),
    "ask": ("ASK", "is-awaiting"),
    "skip": ("SKIP", "is-ack"),
    "replay": ("REPLAY", "is-dispatched"),
    "probe": ("PROBE", "is-unknown"),
    "compensate": ("COMPENSATE", "is-compensated"),
    "escalate": ("NEEDS A PERSON", "is-unknown"),
}
# The reason -> a short label, and the reason in one sentence.
_REASONS: Final = {
    "STOPPED": ("stopped", "A person has stopped it."),
    "LEASE_HELD": ("lease held", "Another worker holds a lease on the work."),
    "NOT_DISPATCHED": (
        "not dispatched",
        "It was planned, is permitted without approval, and was not dispatched.",
    ),
    "GATE_PENDING": ("approval pending", "It waits for approval."),
    "GATE_DENIED": ("denied", "Approval was denied."),
    "GATE_EXPIRED": ("expired", "The approval request expired without an answer."),
    "APPROVED": ("approved", "Exactly this was approved, and it was not dispatched."),
    "INTENT_MISMATCH": (
        "other permission",
        "Its permission was given for something else, or is used.",
    ),
    "GATE_GONE": ("permission gone", "Its permission or its request no longer applies."),
    "NO_PERMISSION": ("no permission", "It has no permission."),
    "DONE": ("done", "It happened, and its outcome is known."),
    "CLOSED": ("closed", "It was undone or withdrawn."),
    "REJECTED_CLEAN": ("did not happen", "Its last attempt did not happen."),
    "ATTEMPTS_SPENT": ("no attempts left", "Its last attempt did not happen, and none is left."),
    "COMP_RESUME": (
        "its compensation",
        "Its compensation is open, and the compensation's verdict applies.",
    ),
    "RESOLVED": ("a person asked", "A person requested its compensation."),
    "EVIDENCE": ("late evidence", "A worker that had lost its lease reported that it happened."),
    "HARMLESS": ("changes nothing", "Its tool changes nothing, so it may run again."),
    "CONDITIONAL_PUT": ("precondition", "It sets a state, and its plan has a precondition."),
    "PUT_LATEST": ("nothing newer", "It sets a state, and nothing later touched the resource."),
    "STALE_PUT": ("overtaken", "It sets a state, and a later effect on the same resource exists."),
    "KEY_LIVE": (
        "remote knows the key",
        "The remote service still knows the remote key, and does nothing twice under it.",
    ),
    "KEY_EXPIRED": ("key forgotten", "The remote service has forgotten the remote key."),
    "REF_PROBE": ("probe it", "The remote service's record decides."),
    "IN_FLIGHT_WAIT": ("in flight", "It was not found, and an earlier request may still arrive."),
    "PROBED_ABSENT": ("probe it", "It can be probed by the remote key."),
    "PROBE_FAILED": ("probes fail", "The probe failed."),
    "DUPLICATE_FOUND": ("found twice", "A probe found more than one."),
    "CANCEL_THEN_REDO": ("undo, then again", "The remote key or its known reference can undo it."),
    "REF_LOST": ("reference unknown", "Only a reference could undo it, and none was reported."),
    "UNDO_FAILED": ("undo failed", "Its compensation failed, and none is open."),
    "IN_FLIGHT_UNKNOWN": (
        "time unknown",
        "It was not found, and its dispatch time is unknown: it may still arrive.",
    ),
    "UNDECIDABLE": ("undecidable", "Nothing can show whether it happened."),
}
_PROBE_REASONS: Final = ("STALE_PUT", "KEY_EXPIRED", "REF_PROBE", "PROBED_ABSENT", "REF_LOST")
_UNDECIDABLE: Final = {
    "opaque": (
        "Its tool takes no key, cannot be probed and cannot be undone,"
        " so Gatebook cannot tell whether it happened."
    ),
    "": "Its tool is not declared, so Gatebook cannot tell whether it happened.",
}


def short_reason(verdict: Verdict) -> str:
    """Return the label of a chip: done, in flight, undecidable."""
    if verdict.reason in _PROBE_REASONS and verdict.answer == "skip":
        return "found"
    if verdict.reason in _PROBE_REASONS and verdict.answer == "replay":
        return "probed, absent"
    if verdict.reason == "PROBE_FAILED" and verdict.answer == "probe":
        return "probe again"
    return _REASONS[verdict.reason][0]


def explain_verdict(verdict: Verdict, tool_class: str = "opaque") -> str:
    """Return the reason in one sentence; `tool_class` is empty for an undeclared tool."""
    if verdict.reason in _PROBE_REASONS and verdict.answer == "skip":
        return "A probe found it: it happened."
    if verdict.reason in _PROBE_REASONS and verdict.answer == "replay":
        return "A probe after the in-flight window did not find it."
    if verdict.reason in _PROBE_REASONS and verdict.answer == "escalate":
        reason = _REASONS[verdict.reason][1].removesuffix(".")
        return f"{reason}, and it cannot be probed."
    if verdict.row == "11" and verdict.beneath:
        return f"Its compensation is open: {_REASONS[verdict.beneath][1]}"
    if verdict.row == "26" and tool_class in _UNDECIDABLE:
        return _UNDECIDABLE[tool_class]
    return _REASONS[verdict.reason][1]


def describe_changes(verdict: Verdict) -> str:
    """Return what would change the verdict."""
    if verdict.answer == "escalate" and verdict.reason != "INTENT_MISMATCH":
        return _PERSON
    return ROW_BY_NUMBER[verdict.row].changes
