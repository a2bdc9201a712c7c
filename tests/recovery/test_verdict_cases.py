"""Invariants of the verdict table over all cases."""

from dataclasses import replace
from itertools import islice, product
from typing import Any, Final

import pytest

from ledger import states
from ledger.verdicts import labels, table
from ledger.verdicts.table import (
    ToolProperties,
    Verdict,
    VerdictInput,
    decide_verdict,
    is_safe_to_continue,
)
from tests.matrices import keep_core
from tests.recovery.test_verdict_table import NOW, S, doubtful

pytestmark = pytest.mark.once


# Every value of every input that the table distinguishes.
STATES: Final = [
    ("planned", "", ""),
    ("dispatched", "", ""),
    ("failed", "error", "rejected"),
    ("failed", "unknown", "timeout"),
    ("failed", "unknown", "error"),
    *[("acknowledged", outcome, "") for outcome in states.REPORTED_OUTCOMES],
    ("compensated", "", ""),
    ("superseded", "", ""),
]
PERMISSIONS: Final = [
    *product(("granted", "used"), ("policy", "ruling", "exemption", "observe")),
    *[("pending", "ruling"), ("denied", "ruling"), ("denied", "expired"), ("observed", "import")],
    *[("none", ""), ("none", "changes_requested"), ("bypassed", "policy")],
]
PROBED: Final = [
    ("", None, 0),
    ("hit", NOW, 0),
    ("several", NOW, 0),
    ("error", NOW, 1),
    ("error", NOW, 9),
]
MISSED: Final = [("miss", NOW, 0), ("miss", NOW - 61 * S, 0), ("miss", None, 0)]
MEANS: Final = [
    ToolProperties(tool_class, lifetime, window, probe, cancel_by)
    for tool_class, (lifetime, window), probe, cancel_by in product(
        states.TOOL_CLASSES, ((30, 3600), (300, 0)), (False, True), states.UNDO_REFERENCES
    )
]
FLAGS: Final = (
    "reference",
    "precondition",
    "later_on_resource",
    "earlier_in_doubt",
    "late_evidence",
)
OTHERS: Final[list[dict[str, Any]]] = [
    {},
    {"is_stopped": True},
    {"lease_elsewhere": True},
    {"same_intent": False},
    {"permission_until_us": NOW - 1},
    {"permission_until_us": NOW + 1},
    {"attempts": 3},
    {"keys_in_doubt": 2},
    {"first_us": None, "last_us": None},
    {"undoing_failed": True},
    {"compensation": VerdictInput(permission="granted", permission_basis="policy")},
    {"resolution": "compensate", "resolved_attempt": 1},
    {"resolution": "not_happened", "resolved_attempt": 1},
    *[{name: True} for name in FLAGS],
]


def every_case() -> Any:
    """Yield every state under every permission, with all probes and one flag at a time."""
    for (state, outcome, reason), (permission, basis), other in product(
        STATES, PERMISSIONS, OTHERS
    ):
        some = (
            MEANS
            if state not in ("planned", "compensated", "superseded") and basis == "ruling"
            else MEANS[-1:]
        )
        for means, (probe, probed_us, errors) in product(some, [*PROBED, *MISSED]):
            fields: dict[str, Any] = {
                "attempts": 0 if state == "planned" else 1,
                "first_us": NOW - 60 * S,
                "last_us": NOW - 60 * S,
                "probe": probe,
                "probed_us": probed_us,
                "probe_errors": errors,
                **other,
            }
            yield VerdictInput(state, outcome, reason, permission, basis, means=means, **fields)


@pytest.mark.parametrize("one_in", keep_core([1, 7], [7]))
def test_every_case_has_one_answer_that_keeps_the_invariants(one_in: int) -> None:
    rows: set[str] = set()
    for case in islice(every_case(), 0, None, one_in):
        verdict = decide_verdict(case, NOW)
        assert verdict == decide_verdict(case, NOW)
        assert verdict.answer in table.VERDICT_ANSWERS
        assert verdict.reason in labels.ROW_BY_NUMBER[verdict.row].reasons, (verdict, case)
        assert table.describe_verdict(verdict)
        rows.add(verdict.row)
        _check_invariants(case, verdict)
    assert rows == {row.number for row in labels.VERDICT_ROWS} - {
        "10"
    }  # row 10 continues as if dispatched


def _check_invariants(case: VerdictInput, verdict: Verdict) -> None:
    inner = verdict.row == "11"
    acts = verdict.answer in ("execute", "replay") and not inner
    assert not (acts and (case.is_stopped or case.lease_elsewhere or not case.same_intent)), (
        case,
        verdict,
    )
    assert not (acts and case.permission == "denied"), (case, verdict)
    assert not (acts and case.permission == "pending"), (case, verdict)
    assert not (verdict.answer == "execute" and not inner and case.permission != "granted"), (
        case,
        verdict,
    )
    unknown = case.state in ("dispatched", "acknowledged") or case.outcome == "unknown"
    if verdict.answer == "replay" and unknown:
        assert verdict.row in table.REPLAY_ROWS
        assert case.means.tool_class != "opaque"
        if case.probe == "miss" and verdict.row in ("18", "19", "21"):
            assert (case.probed_us or 0) >= (
                case.last_us or NOW
            ) + case.means.request_lifetime_s * S
        if (
            case.permission == "used"
            and case.permission_basis in ("ruling", "exemption")
            and not verdict.needs_new_permission
        ):
            assert verdict.row in table.ROWS_UNDER_USED_PERMISSION
    assert (verdict.reason == "UNDECIDABLE") <= (case.means.tool_class == "opaque")
    needs_a_person = verdict.answer == "escalate" or (verdict.beneath or verdict.reason) in (
        "STOPPED",
        "GATE_PENDING",
    )
    assert is_safe_to_continue(verdict) is not needs_a_person


@pytest.mark.parametrize("tool_class", states.TOOL_CLASSES)
def test_more_evidence_of_danger_never_permits_a_retry(tool_class: str) -> None:
    """A stop, a lease elsewhere, late evidence, a denial or another intent never runs the effect."""
    stops: list[dict[str, Any]] = [
        {"is_stopped": True},
        {"lease_elsewhere": True},
        {"late_evidence": True},
        {"permission": "denied"},
        {"same_intent": False},
    ]
    for means in (properties for properties in MEANS if properties.tool_class == tool_class):
        for probe, probed_us, errors in [*PROBED, *MISSED]:
            case = replace(
                doubtful(tool_class),
                means=means,
                probe=probe,
                probed_us=probed_us,
                probe_errors=errors,
            )
            for stop in stops:
                assert decide_verdict(replace(case, **stop), NOW).answer not in (
                    "execute",
                    "replay",
                )


def test_the_stored_inputs_omit_default_values() -> None:
    assert VerdictInput().as_dict() == {}
    case = doubtful(
        "idempotency_key", key_window_s=60, compensation=VerdictInput(permission="pending")
    )
    assert case.as_dict()["means"] == {"tool_class": "idempotency_key", "key_window_s": 60}
    assert case.as_dict()["compensation"] == {"permission": "pending"}
