"""The verdict table: one test for each of its rows."""

from dataclasses import replace
from typing import Any, Final

import pytest

from ledger import states
from ledger.verdicts.table import (
    ToolProperties,
    Verdict,
    VerdictInput,
    decide_verdict,
    is_safe_to_continue,
)

pytestmark = pytest.mark.once
NOW: Final = 1_000_000_000_000_000
S: Final = 1_000_000
HOUR: Final = 3600 * S


def doubtful(tool_class: str, **fields: Any) -> VerdictInput:
    """Return the input of an effect dispatched a minute ago by policy, without a further report."""
    of_tool = {
        name: fields.pop(name)
        for name in list(fields)
        if name in ToolProperties.__slots__ and name != "probe"
    }
    of_tool["probe"] = fields.pop("has_probe", False)
    values = {"first_us": NOW - 60 * S, "last_us": NOW - 60 * S, **fields}
    base = VerdictInput(
        state="dispatched", permission="used", permission_basis="policy", attempts=1
    )
    return replace(base, means=ToolProperties(tool_class=tool_class, **of_tool), **values)


def decide(case: VerdictInput, now_us: int = NOW) -> tuple[str, str, str]:
    verdict = decide_verdict(case, now_us)
    return verdict.row, verdict.answer, verdict.reason


def test_row_0_a_stop_comes_before_everything() -> None:
    assert decide(doubtful("read_only", is_stopped=True, lease_elsewhere=True)) == (
        "0",
        "wait",
        "STOPPED",
    )
    assert decide(VerdictInput(state="acknowledged", outcome="ok", is_stopped=True))[0] == "0"


def test_row_1_waits_while_another_worker_holds_the_lease() -> None:
    verdict = decide_verdict(doubtful("opaque", lease_elsewhere=True, lease_until_us=NOW + S), NOW)
    assert (verdict.row, verdict.answer, verdict.reason, verdict.until_us) == (
        "1",
        "wait",
        "LEASE_HELD",
        NOW + S,
    )


@pytest.mark.parametrize("basis", ["observe", "policy", "exemption"])
def test_row_2_an_effect_that_needs_no_ruling_is_run(basis: str) -> None:
    assert decide(VerdictInput(permission="granted", permission_basis=basis)) == (
        "2",
        "execute",
        "NOT_DISPATCHED",
    )


def test_row_3_waits_for_people_until_the_deadline() -> None:
    case = VerdictInput(permission="pending", permission_basis="ruling", permission_until_us=NOW)
    assert decide_verdict(case, NOW) == Verdict("wait", "GATE_PENDING", "3", NOW)
    assert decide(case, NOW + 1) == ("4", "skip", "GATE_EXPIRED")


@pytest.mark.parametrize(
    ("basis", "reason"), [("ruling", "GATE_DENIED"), ("expired", "GATE_EXPIRED")]
)
def test_row_4_a_denied_effect_is_skipped(basis: str, reason: str) -> None:
    assert decide(VerdictInput(permission="denied", permission_basis=basis)) == (
        "4",
        "skip",
        reason,
    )


def test_row_5_an_approved_effect_is_run_while_the_approval_is_valid() -> None:
    case = VerdictInput(permission="granted", permission_basis="ruling", permission_until_us=NOW)
    assert decide(case) == ("5", "execute", "APPROVED")
    assert decide(case, NOW + 1) == ("6b", "ask", "GATE_GONE")


@pytest.mark.parametrize("basis", ["ruling", "policy"])
def test_row_6_another_intent_is_never_run_under_any_permission(basis: str) -> None:
    case = VerdictInput(permission="granted", permission_basis=basis, same_intent=False)
    assert decide(case) == ("6", "escalate", "INTENT_MISMATCH")
    assert decide(VerdictInput(permission="used", permission_basis="ruling")) == (
        "6",
        "escalate",
        "INTENT_MISMATCH",
    )


@pytest.mark.parametrize("basis", ["cancelled", "revoked", "expired_unused", "changes_requested"])
def test_row_6b_permission_that_is_gone_is_requested_again(basis: str) -> None:
    assert decide(VerdictInput(permission="none", permission_basis=basis)) == (
        "6b",
        "ask",
        "GATE_GONE",
    )
    assert decide(VerdictInput(permission="none")) == ("6b", "ask", "NO_PERMISSION")


@pytest.mark.parametrize("outcome", ["ok", "error"])
def test_row_7_an_acknowledged_effect_is_skipped(outcome: str) -> None:
    assert decide(VerdictInput(state="acknowledged", outcome=outcome, attempts=1)) == (
        "7",
        "skip",
        "DONE",
    )


@pytest.mark.parametrize("state", ["compensated", "superseded"])
def test_row_8_a_closed_effect_is_skipped(state: str) -> None:
    assert decide(VerdictInput(state=state, outcome="unknown", attempts=1)) == (
        "8",
        "skip",
        "CLOSED",
    )


REJECTED: Final = VerdictInput(
    state="failed",
    outcome="error",
    failure_reason="rejected",
    permission="used",
    permission_basis="policy",
    attempts=1,
)


def test_row_9_a_clean_rejection_is_retried_with_new_permission_and_key() -> None:
    verdict = decide_verdict(REJECTED, NOW)
    assert verdict == Verdict(
        "replay", "REJECTED_CLEAN", "9", remote_key="new", needs_new_permission=True
    )


@pytest.mark.parametrize(
    ("permission", "basis", "row", "answer"),
    [
        ("pending", "ruling", "3", "wait"),
        ("granted", "ruling", "5", "execute"),
        ("granted", "policy", "2", "execute"),
        ("denied", "ruling", "4", "skip"),
        ("none", "changes_requested", "6b", "ask"),
    ],
)
def test_row_9_a_new_permission_request_decides(
    permission: str, basis: str, row: str, answer: str
) -> None:
    assert decide(replace(REJECTED, permission=permission, permission_basis=basis))[:2] == (
        row,
        answer,
    )


def test_row_9b_no_more_attempts_than_the_operator_allows() -> None:
    assert decide(replace(REJECTED, attempts=2))[0] == "9"
    assert decide(replace(REJECTED, attempts=3)) == ("9b", "skip", "ATTEMPTS_SPENT")
    assert decide(replace(REJECTED, attempts=2, means=ToolProperties(max_attempts=2)))[0] == "9b"


def test_row_9b_a_resolution_as_not_happened_allows_one_more_attempt() -> None:
    denied = replace(REJECTED, attempts=3, resolution="not_happened", resolved_attempt=3)
    assert decide(denied)[0] == "9"
    assert decide(replace(denied, attempts=4)) == ("9b", "skip", "ATTEMPTS_SPENT")


def test_row_9_a_rejection_does_not_settle_an_earlier_attempt_in_doubt() -> None:
    case = doubtful(
        "opaque",
        state="failed",
        outcome="error",
        failure_reason="rejected",
        earlier_in_doubt=True,
        attempts=2,
    )
    assert decide(case) == ("26", "escalate", "UNDECIDABLE")
    probed = replace(case, means=ToolProperties("probeable"))
    assert decide(probed)[:2] == ("21", "probe")
    keyed = replace(case, means=ToolProperties("idempotency_key", key_window_s=3600))
    assert decide(keyed)[:2] == ("17", "replay")
    assert decide(replace(keyed, attempts=3)) == ("9b", "escalate", "ATTEMPTS_SPENT")


@pytest.mark.parametrize("tool_class", states.TOOL_CLASSES)
def test_row_10_an_unknown_outcome_is_treated_as_no_answer(tool_class: str) -> None:
    case = doubtful(tool_class)
    for reason in ("timeout", "error"):
        assert decide(
            replace(case, state="failed", outcome="unknown", failure_reason=reason)
        ) == decide(case)
    assert decide(replace(case, state="acknowledged", outcome="unknown")) == decide(case)


def test_row_11_the_verdict_of_an_open_compensation_is_used() -> None:
    compensation = VerdictInput(
        permission="pending", permission_basis="ruling", permission_until_us=NOW + S
    )
    verdict = decide_verdict(
        doubtful("compensable", cancel_by="key", compensation=compensation), NOW
    )
    assert (verdict.row, verdict.answer, verdict.reason, verdict.beneath) == (
        "11",
        "wait",
        "COMP_RESUME",
        "GATE_PENDING",
    )
    assert not is_safe_to_continue(verdict)
    assert (
        decide(VerdictInput(state="acknowledged", outcome="ok", compensation=compensation))[0]
        == "7"
    )


def test_row_11b_a_requested_compensation_is_escalated_after_it_fails() -> None:
    case = doubtful("opaque", resolution="compensate", resolved_attempt=1)
    assert decide(case) == ("11b", "compensate", "RESOLVED")
    assert decide(replace(case, state="acknowledged", outcome="ok")) == (
        "11b",
        "compensate",
        "RESOLVED",
    )
    assert decide(replace(case, undoing_failed=True)) == ("11b", "escalate", "UNDO_FAILED")
    assert decide(replace(case, resolved_attempt=2))[0] == "26"


def test_row_12_late_evidence_stops_every_retry() -> None:
    assert decide(doubtful("read_only", late_evidence=True)) == ("12", "skip", "EVIDENCE")


def test_row_13_a_read_only_effect_runs_again() -> None:
    verdict = decide_verdict(doubtful("read_only", permission_basis="ruling"), NOW)
    assert verdict == Verdict("replay", "HARMLESS", "13", remote_key="same")


def test_row_14_a_conditional_put_is_replayed_unless_it_was_rejected_since() -> None:
    case = doubtful(
        "idempotent", precondition=True, later_on_resource=True, permission_basis="ruling"
    )
    assert decide_verdict(case, NOW) == Verdict(
        "replay", "CONDITIONAL_PUT", "14", remote_key="same"
    )
    refused = replace(
        case,
        state="failed",
        outcome="error",
        failure_reason="rejected",
        earlier_in_doubt=True,
        attempts=2,
    )
    assert decide(refused) == ("16", "escalate", "STALE_PUT")


def test_row_15_the_latest_put_on_a_resource_is_replayed() -> None:
    case = doubtful("idempotent")
    assert decide_verdict(case, NOW) == Verdict("replay", "PUT_LATEST", "15", remote_key="same")
    assert decide_verdict(replace(case, permission_basis="ruling"), NOW).needs_new_permission


def test_row_16_a_stale_put_is_probed_and_never_replayed() -> None:
    case = doubtful("idempotent", later_on_resource=True)
    assert decide(case) == ("16", "escalate", "STALE_PUT")
    seen = replace(case, means=ToolProperties("idempotent", probe=True, request_lifetime_s=10))
    assert decide(seen) == ("16", "probe", "STALE_PUT")
    assert decide(replace(seen, probe="hit", probed_us=NOW)) == ("16", "skip", "STALE_PUT")
    assert decide(replace(seen, probe="miss", probed_us=NOW)) == ("16", "escalate", "STALE_PUT")


def test_row_17_the_window_of_a_key_counts_from_its_first_use_less_a_margin() -> None:
    case = doubtful(
        "idempotency_key",
        key_window_s=3600,
        permission_basis="ruling",
        first_us=NOW - HOUR + 61 * S,
        last_us=NOW,
    )
    assert decide_verdict(case, NOW) == Verdict(
        "replay", "KEY_LIVE", "17", NOW + S, remote_key="same"
    )
    assert decide(case, NOW + S) == ("18", "escalate", "KEY_EXPIRED")
    assert decide(replace(case, first_us=None))[0] == "18"
    assert (
        decide(replace(case, means=ToolProperties("idempotency_key", key_window_s=60)))[0] == "18"
    )


def test_row_18_with_two_keys_in_doubt_no_replay_is_safe() -> None:
    assert decide(doubtful("idempotency_key", key_window_s=3600, keys_in_doubt=2)) == (
        "18",
        "escalate",
        "KEY_EXPIRED",
    )


def test_row_18_an_expired_key_is_probed_and_then_replaced() -> None:
    case = doubtful("idempotency_key", has_probe=True, request_lifetime_s=10)
    assert decide(case) == ("18", "probe", "KEY_EXPIRED")
    assert decide(replace(case, probe="miss"))[1] == "probe"  # a probe without a start time
    after = replace(case, probe="miss", probed_us=NOW)
    assert decide_verdict(after, NOW) == Verdict("replay", "KEY_EXPIRED", "18", remote_key="new")
    assert decide_verdict(replace(after, permission_basis="ruling"), NOW).needs_new_permission


def test_row_19_a_transactional_reference_decides() -> None:
    case = doubtful("transactional", request_lifetime_s=10)
    assert decide(case) == ("19", "probe", "REF_PROBE")
    assert decide(replace(case, probe="hit", probed_us=NOW)) == ("19", "skip", "REF_PROBE")
    verdict = decide_verdict(
        replace(case, probe="miss", probed_us=NOW, permission_basis="ruling"), NOW
    )
    assert verdict == Verdict(
        "replay", "REF_PROBE", "19", remote_key="same", needs_new_permission=True
    )
    assert decide(doubtful("probeable", reference=True)) == ("19", "probe", "REF_PROBE")


def test_row_20_a_miss_inside_the_window_is_no_answer() -> None:
    case = doubtful("probeable", request_lifetime_s=300, probe="miss", probed_us=NOW - S)
    window_end = NOW - 60 * S + 300 * S
    assert decide_verdict(case, NOW) == Verdict("wait", "IN_FLIGHT_WAIT", "20", window_end)
    assert decide(case, window_end) == (
        "21",
        "probe",
        "PROBED_ABSENT",
    )  # a probe that began inside the window proves nothing
    assert decide(replace(case, probed_us=window_end - 1), window_end)[1] == "probe"
    assert decide(replace(case, probed_us=window_end), window_end) == (
        "21",
        "replay",
        "PROBED_ABSENT",
    )
    assert decide(replace(case, last_us=None)) == ("21", "escalate", "IN_FLIGHT_UNKNOWN")


def test_row_21_a_miss_after_the_window_is_replayed_under_the_same_key() -> None:
    case = doubtful(
        "probeable", request_lifetime_s=30, probe="miss", probed_us=NOW, permission_basis="ruling"
    )
    assert decide_verdict(case, NOW) == Verdict("replay", "PROBED_ABSENT", "21", remote_key="same")
    assert decide(replace(case, probe="hit")) == ("21", "skip", "PROBED_ABSENT")
    assert decide(replace(case, probe="")) == ("21", "probe", "PROBED_ABSENT")


def test_row_22_failed_probes_back_off_and_are_then_escalated() -> None:
    case = doubtful("probeable", probe="error", probe_errors=1, probed_us=NOW)
    assert decide_verdict(case, NOW) == Verdict("wait", "PROBE_FAILED", "22", NOW + 15 * S)
    assert decide_verdict(replace(case, probe_errors=3), NOW).until_us == NOW + 60 * S
    assert decide(case, NOW + 15 * S)[1] == "probe"
    assert decide(replace(case, probe_errors=5)) == ("22", "escalate", "PROBE_FAILED")


def test_row_23_a_duplicate_is_compensated_or_escalated() -> None:
    case = doubtful("probeable", probe="several", probed_us=NOW)
    assert decide(case) == ("23", "escalate", "DUPLICATE_FOUND")
    undoable = replace(case, means=ToolProperties("probeable", cancel_by="reference"))
    assert decide(undoable) == ("23", "compensate", "DUPLICATE_FOUND")
    assert decide(replace(undoable, undoing_failed=True)) == ("23", "escalate", "DUPLICATE_FOUND")


def test_row_24_a_compensable_effect_is_compensated_and_then_run_again() -> None:
    assert decide(doubtful("compensable", cancel_by="key")) == (
        "24",
        "compensate",
        "CANCEL_THEN_REDO",
    )
    by_reference = doubtful("compensable", cancel_by="reference", reference=True)
    assert decide(by_reference) == ("24", "compensate", "CANCEL_THEN_REDO")
    assert decide(replace(by_reference, undoing_failed=True)) == ("24", "escalate", "UNDO_FAILED")


def test_row_25_without_the_reference_only_a_probe_helps() -> None:
    case = doubtful("compensable", cancel_by="reference")
    assert decide(case) == ("25", "escalate", "REF_LOST")
    assert decide(
        replace(case, means=ToolProperties("compensable", probe=True, cancel_by="reference"))
    )[:2] == ("21", "probe")


def test_row_26_an_undecidable_effect_is_escalated() -> None:
    assert decide(doubtful("opaque", cancel_by="key", key_window_s=3600)) == (
        "26",
        "escalate",
        "UNDECIDABLE",
    )
    assert decide(replace(doubtful("opaque"), means=ToolProperties())) == (
        "26",
        "escalate",
        "UNDECIDABLE",
    )


@pytest.mark.parametrize(
    ("permission", "basis", "row", "answer"),
    [
        ("pending", "ruling", "3", "wait"),
        ("denied", "ruling", "4", "escalate"),
        ("granted", "ruling", "15", "replay"),
        ("none", "revoked", "15", "replay"),
        ("observed", "observe", "15", "replay"),
    ],
)
def test_a_replay_that_needs_new_permission_waits_for_it(
    permission: str, basis: str, row: str, answer: str
) -> None:
    case = doubtful(
        "idempotent",
        state="failed",
        outcome="unknown",
        failure_reason="error",
        permission=permission,
        permission_basis=basis,
    )
    verdict = decide_verdict(case, NOW)
    assert (verdict.row, verdict.answer) == (row, answer)
    assert verdict.needs_new_permission is (permission in ("none", "observed"))
