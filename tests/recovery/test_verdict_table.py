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
    """An effect dispatched a minute ago under permission that rules gave, of which nothing was heard."""
    of_tool = {
        name: fields.pop(name)
        for name in list(fields)
        if name in ToolProperties.__slots__ and name != "probe"
    }
    of_tool["probe"] = fields.pop("looks", False)
    said = {"first_us": NOW - 60 * S, "last_us": NOW - 60 * S, **fields}
    base = VerdictInput(
        state="dispatched", permission="used", permission_basis="policy", attempts=1
    )
    return replace(base, means=ToolProperties(tool_class=tool_class, **of_tool), **said)


def asked(case: VerdictInput, now_us: int = NOW) -> tuple[str, str, str]:
    found = decide_verdict(case, now_us)
    return found.row, found.answer, found.reason


def test_row_0_a_stop_goes_before_everything() -> None:
    assert asked(doubtful("read_only", is_stopped=True, lease_elsewhere=True)) == (
        "0",
        "wait",
        "STOPPED",
    )
    assert asked(VerdictInput(state="acknowledged", outcome="ok", is_stopped=True))[0] == "0"


def test_row_1_another_worker_that_is_alive_is_left_to_its_work() -> None:
    found = decide_verdict(doubtful("opaque", lease_elsewhere=True, lease_until_us=NOW + S), NOW)
    assert (found.row, found.answer, found.reason, found.until_us) == (
        "1",
        "wait",
        "LEASE_HELD",
        NOW + S,
    )


@pytest.mark.parametrize("basis", ["observe", "policy", "exemption"])
def test_row_2_what_needs_no_ruling_is_run(basis: str) -> None:
    assert asked(VerdictInput(permission="granted", permission_basis=basis)) == (
        "2",
        "execute",
        "NOT_DISPATCHED",
    )


def test_row_3_people_are_waited_for_until_their_time_is_over() -> None:
    case = VerdictInput(permission="pending", permission_basis="ruling", permission_until_us=NOW)
    assert decide_verdict(case, NOW) == Verdict("wait", "GATE_PENDING", "3", NOW)
    assert asked(case, NOW + 1) == ("4", "skip", "GATE_EXPIRED")


@pytest.mark.parametrize(
    ("basis", "reason"), [("ruling", "GATE_DENIED"), ("expired", "GATE_EXPIRED")]
)
def test_row_4_what_was_refused_is_skipped(basis: str, reason: str) -> None:
    assert asked(VerdictInput(permission="denied", permission_basis=basis)) == ("4", "skip", reason)


def test_row_5_what_people_approved_is_run_while_their_permission_lasts() -> None:
    case = VerdictInput(permission="granted", permission_basis="ruling", permission_until_us=NOW)
    assert asked(case) == ("5", "execute", "APPROVED")
    assert asked(case, NOW + 1) == ("6b", "ask", "GATE_GONE")


@pytest.mark.parametrize("basis", ["ruling", "policy"])
def test_row_6_another_intent_is_never_run_also_where_rules_gave_permission(basis: str) -> None:
    case = VerdictInput(permission="granted", permission_basis=basis, same_intent=False)
    assert asked(case) == ("6", "escalate", "INTENT_MISMATCH")
    assert asked(VerdictInput(permission="used", permission_basis="ruling")) == (
        "6",
        "escalate",
        "INTENT_MISMATCH",
    )


@pytest.mark.parametrize("basis", ["cancelled", "revoked", "expired_unused", "changes_requested"])
def test_row_6b_permission_that_is_gone_is_requested_again(basis: str) -> None:
    assert asked(VerdictInput(permission="none", permission_basis=basis)) == (
        "6b",
        "ask",
        "GATE_GONE",
    )
    assert asked(VerdictInput(permission="none")) == ("6b", "ask", "NO_PERMISSION")


@pytest.mark.parametrize("outcome", ["ok", "error"])
def test_row_7_what_is_done_is_done(outcome: str) -> None:
    assert asked(VerdictInput(state="acknowledged", outcome=outcome, attempts=1)) == (
        "7",
        "skip",
        "DONE",
    )


@pytest.mark.parametrize("state", ["compensated", "superseded"])
def test_row_8_what_is_closed_is_left(state: str) -> None:
    assert asked(VerdictInput(state=state, outcome="unknown", attempts=1)) == (
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


def test_row_9_a_clean_rejection_is_tried_again_under_permission_and_a_key_of_its_own() -> None:
    found = decide_verdict(REJECTED, NOW)
    assert found == Verdict(
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
def test_row_9_where_permission_was_asked_for_anew_that_permission_decides(
    permission: str, basis: str, row: str, answer: str
) -> None:
    assert asked(replace(REJECTED, permission=permission, permission_basis=basis))[:2] == (
        row,
        answer,
    )


def test_row_9b_no_more_attempts_than_the_operator_allows() -> None:
    assert asked(replace(REJECTED, attempts=2))[0] == "9"
    assert asked(replace(REJECTED, attempts=3)) == ("9b", "skip", "ATTEMPTS_SPENT")
    assert asked(replace(REJECTED, attempts=2, means=ToolProperties(max_attempts=2)))[0] == "9b"


def test_row_9b_a_person_who_says_that_it_did_not_happen_allows_one_more() -> None:
    denied = replace(REJECTED, attempts=3, resolution="not_happened", resolved_attempt=3)
    assert asked(denied)[0] == "9"
    assert asked(replace(denied, attempts=4)) == ("9b", "skip", "ATTEMPTS_SPENT")


def test_row_9_a_rejection_says_nothing_of_an_earlier_attempt_that_may_have_happened() -> None:
    case = doubtful(
        "opaque",
        state="failed",
        outcome="error",
        failure_reason="rejected",
        earlier_in_doubt=True,
        attempts=2,
    )
    assert asked(case) == ("26", "escalate", "UNDECIDABLE")
    probed = replace(case, means=ToolProperties("probeable"))
    assert asked(probed)[:2] == ("21", "probe")
    keyed = replace(case, means=ToolProperties("idempotency_key", key_window_s=3600))
    assert asked(keyed)[:2] == ("17", "replay")
    assert asked(replace(keyed, attempts=3)) == ("9b", "escalate", "ATTEMPTS_SPENT")


@pytest.mark.parametrize("tool_class", states.TOOL_CLASSES)
def test_row_10_an_unknown_end_is_as_good_as_none(tool_class: str) -> None:
    case = doubtful(tool_class)
    for reason in ("timeout", "error"):
        assert asked(
            replace(case, state="failed", outcome="unknown", failure_reason=reason)
        ) == asked(case)
    assert asked(replace(case, state="acknowledged", outcome="unknown")) == asked(case)


def test_row_11_an_open_compensation_speaks_for_what_it_undoes() -> None:
    undoing = VerdictInput(
        permission="pending", permission_basis="ruling", permission_until_us=NOW + S
    )
    found = decide_verdict(doubtful("compensable", cancel_by="key", compensation=undoing), NOW)
    assert (found.row, found.answer, found.reason, found.beneath) == (
        "11",
        "wait",
        "COMP_RESUME",
        "GATE_PENDING",
    )
    assert not is_safe_to_continue(found)
    assert asked(VerdictInput(state="acknowledged", outcome="ok", compensation=undoing))[0] == "7"


def test_row_11b_what_a_person_wants_undone_is_compensated_and_after_that_fails_a_person_is_asked() -> (
    None
):
    case = doubtful("opaque", resolution="compensate", resolved_attempt=1)
    assert asked(case) == ("11b", "compensate", "RESOLVED")
    assert asked(replace(case, state="acknowledged", outcome="ok")) == (
        "11b",
        "compensate",
        "RESOLVED",
    )
    assert asked(replace(case, undoing_failed=True)) == ("11b", "escalate", "UNDO_FAILED")
    assert asked(replace(case, resolved_attempt=2))[0] == "26"


def test_row_12_late_evidence_stops_every_retry() -> None:
    assert asked(doubtful("read_only", late_evidence=True)) == ("12", "skip", "EVIDENCE")


def test_row_13_what_changes_nothing_runs_again() -> None:
    found = decide_verdict(doubtful("read_only", permission_basis="ruling"), NOW)
    assert found == Verdict("replay", "HARMLESS", "13", remote_key="same")


def test_row_14_a_guarded_state_is_set_again_unless_its_guard_said_no_since() -> None:
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
    assert asked(refused) == ("16", "escalate", "STALE_PUT")


def test_row_15_a_state_is_set_again_where_nothing_newer_touched_it() -> None:
    case = doubtful("idempotent")
    assert decide_verdict(case, NOW) == Verdict("replay", "PUT_LATEST", "15", remote_key="same")
    assert decide_verdict(replace(case, permission_basis="ruling"), NOW).needs_new_permission


def test_row_16_a_state_that_something_newer_touched_is_looked_at_and_never_set_again() -> None:
    case = doubtful("idempotent", later_on_resource=True)
    assert asked(case) == ("16", "escalate", "STALE_PUT")
    seen = replace(case, means=ToolProperties("idempotent", probe=True, request_lifetime_s=10))
    assert asked(seen) == ("16", "probe", "STALE_PUT")
    assert asked(replace(seen, probe="hit", probed_us=NOW)) == ("16", "skip", "STALE_PUT")
    assert asked(replace(seen, probe="miss", probed_us=NOW)) == ("16", "escalate", "STALE_PUT")


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
    assert asked(case, NOW + S) == ("18", "escalate", "KEY_EXPIRED")
    assert asked(replace(case, first_us=None))[0] == "18"
    assert asked(replace(case, means=ToolProperties("idempotency_key", key_window_s=60)))[0] == "18"


def test_row_18_with_two_keys_in_doubt_the_newer_one_guards_nothing() -> None:
    assert asked(doubtful("idempotency_key", key_window_s=3600, keys_in_doubt=2)) == (
        "18",
        "escalate",
        "KEY_EXPIRED",
    )


def test_row_18_a_forgotten_key_is_looked_for_and_another_one_used() -> None:
    case = doubtful("idempotency_key", looks=True, request_lifetime_s=10)
    assert asked(case) == ("18", "probe", "KEY_EXPIRED")
    assert asked(replace(case, probe="miss"))[1] == "probe"  # nobody knows when that look began
    after = replace(case, probe="miss", probed_us=NOW)
    assert decide_verdict(after, NOW) == Verdict("replay", "KEY_EXPIRED", "18", remote_key="new")
    assert decide_verdict(replace(after, permission_basis="ruling"), NOW).needs_new_permission


def test_row_19_a_record_beside_the_effect_decides() -> None:
    case = doubtful("transactional", request_lifetime_s=10)
    assert asked(case) == ("19", "probe", "REF_PROBE")
    assert asked(replace(case, probe="hit", probed_us=NOW)) == ("19", "skip", "REF_PROBE")
    found = decide_verdict(
        replace(case, probe="miss", probed_us=NOW, permission_basis="ruling"), NOW
    )
    assert found == Verdict(
        "replay", "REF_PROBE", "19", remote_key="same", needs_new_permission=True
    )
    assert asked(doubtful("probeable", reference=True)) == ("19", "probe", "REF_PROBE")


def test_row_20_not_found_inside_the_window_is_no_answer() -> None:
    case = doubtful("probeable", request_lifetime_s=300, probe="miss", probed_us=NOW - S)
    fence = NOW - 60 * S + 300 * S
    assert decide_verdict(case, NOW) == Verdict("wait", "IN_FLIGHT_WAIT", "20", fence)
    assert asked(case, fence) == (
        "21",
        "probe",
        "PROBED_ABSENT",
    )  # begun before the fence it proves nothing for good
    assert asked(replace(case, probed_us=fence - 1), fence)[1] == "probe"
    assert asked(replace(case, probed_us=fence), fence) == ("21", "replay", "PROBED_ABSENT")
    assert asked(replace(case, last_us=None)) == ("21", "escalate", "IN_FLIGHT_UNKNOWN")


def test_row_21_absent_after_the_window_is_replayed_under_key_and_permission() -> None:
    case = doubtful(
        "probeable", request_lifetime_s=30, probe="miss", probed_us=NOW, permission_basis="ruling"
    )
    assert decide_verdict(case, NOW) == Verdict("replay", "PROBED_ABSENT", "21", remote_key="same")
    assert asked(replace(case, probe="hit")) == ("21", "skip", "PROBED_ABSENT")
    assert asked(replace(case, probe="")) == ("21", "probe", "PROBED_ABSENT")


def test_row_22_a_failed_probe_is_repeated_more_slowly_and_then_a_person_is_asked() -> None:
    case = doubtful("probeable", probe="error", probe_errors=1, probed_us=NOW)
    assert decide_verdict(case, NOW) == Verdict("wait", "PROBE_FAILED", "22", NOW + 15 * S)
    assert decide_verdict(replace(case, probe_errors=3), NOW).until_us == NOW + 60 * S
    assert asked(case, NOW + 15 * S)[1] == "probe"
    assert asked(replace(case, probe_errors=5)) == ("22", "escalate", "PROBE_FAILED")


def test_row_23_what_was_found_twice_is_undone_or_shown_to_a_person() -> None:
    case = doubtful("probeable", probe="several", probed_us=NOW)
    assert asked(case) == ("23", "escalate", "DUPLICATE_FOUND")
    undoable = replace(case, means=ToolProperties("probeable", cancel_by="reference"))
    assert asked(undoable) == ("23", "compensate", "DUPLICATE_FOUND")
    assert asked(replace(undoable, undoing_failed=True)) == ("23", "escalate", "DUPLICATE_FOUND")


def test_row_24_what_can_be_undone_is_undone_and_then_done_anew() -> None:
    assert asked(doubtful("compensable", cancel_by="key")) == (
        "24",
        "compensate",
        "CANCEL_THEN_REDO",
    )
    by_reference = doubtful("compensable", cancel_by="reference", reference=True)
    assert asked(by_reference) == ("24", "compensate", "CANCEL_THEN_REDO")
    assert asked(replace(by_reference, undoing_failed=True)) == ("24", "escalate", "UNDO_FAILED")


def test_row_25_without_the_reference_only_a_probe_helps() -> None:
    case = doubtful("compensable", cancel_by="reference")
    assert asked(case) == ("25", "escalate", "REF_LOST")
    assert asked(
        replace(case, means=ToolProperties("compensable", probe=True, cancel_by="reference"))
    )[:2] == ("21", "probe")


def test_row_26_where_nobody_can_know_a_person_is_asked() -> None:
    assert asked(doubtful("opaque", cancel_by="key", key_window_s=3600)) == (
        "26",
        "escalate",
        "UNDECIDABLE",
    )
    assert asked(replace(doubtful("opaque"), means=ToolProperties())) == (
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
def test_a_replay_that_needs_permission_of_its_own_waits_for_it(
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
    found = decide_verdict(case, NOW)
    assert (found.row, found.answer) == (row, answer)
    assert found.needs_new_permission is (permission in ("none", "observed"))
