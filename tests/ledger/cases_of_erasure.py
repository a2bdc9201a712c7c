"""Rows that violate the constraints of erasure requests and holds, and rows that satisfy them."""

from typing import Final

from erasure.models import ErasureRequest, LegalHold
from retention.models import RetentionSet
from tests.ledger.rows_by_hand import Row, World
from tests.ledger.schema_cases import Case, check_case, unique_case


def _confirm(world: World, **columns: object) -> Row:
    """Return columns of a request that another person than its asker confirmed."""
    return {"confirmed_by": world.reviewer, "confirmed_at_us": 6, **columns}


def _activate(position: int) -> Row:
    """Return columns of a retention set that is in force."""
    return {"counted_at_us": 6, "activated_at_us": 7, "activation_position": position}


EXECUTED: Final[Row] = {"state": "done", "words": [], "executed_at_us": 7, "executed_position": 7}
# The trigger that a request starts unconfirmed precedes these.
FOLLOW_A_TRIGGER: Final = (
    "erasure_request_state_is_known",
    "erasure_is_confirmed_by_a_second_person",
    "erasure_runs_after_it_was_confirmed",
    "erasure_that_ran_is_in_the_journal",
)
# The guard that a retention set becomes active later precedes these.
ACTIVE_FROM_THE_START: Final = (
    "retention_set_activation_is_unique",
    "retention_set_is_counted_before_active",
)
ERASURES: Final[dict[str, Case]] = {
    "erasure_request_state_is_known": check_case(
        ErasureRequest, {"state": "lost"}, {"state": "counting"}
    ),
    "erasure_request_has_one_subject": Case(
        ErasureRequest,
        wrong=lambda w: {"session": w.session},
        right=lambda w: {"subject_kind": "session", "session": w.session},
        also=lambda w: [{"subject_kind": "person"}, {"subject_kind": "mood"}],
    ),
    "erasure_request_has_a_reason": check_case(ErasureRequest, {"reason": ""}, {"reason": "x"}),
    "erasure_is_confirmed_by_a_second_person": Case(
        ErasureRequest,
        wrong=lambda w: _confirm(w, confirmed_by=w.user),
        right=_confirm,
    ),
    "erasure_runs_after_it_was_confirmed": Case(
        ErasureRequest,
        wrong=lambda _: {"state": "running"},
        right=lambda w: _confirm(w, state="running"),
    ),
    "erasure_that_ran_is_in_the_journal": Case(
        ErasureRequest,
        wrong=lambda w: {**_confirm(w, **EXECUTED), "executed_position": None},
        right=lambda w: _confirm(w, **EXECUTED),
    ),
    "retention_set_version_is_unique": unique_case(
        RetentionSet, lambda _: {"version": 7}, lambda _: {"name": "other"}
    ),
    "retention_set_has_a_name": check_case(RetentionSet, {"name": ""}, {"name": "x"}),
    "retention_set_versions_start_at_one": check_case(RetentionSet, {"version": 0}, {"version": 1}),
    "retention_set_activation_is_unique": unique_case(
        RetentionSet, lambda _: _activate(7), lambda _: _activate(8)
    ),
    "retention_set_is_counted_before_active": Case(
        RetentionSet,
        wrong=lambda _: {**_activate(7), "counted_at_us": None},
        right=lambda _: _activate(7),
    ),
    "legal_hold_has_one_subject": Case(
        LegalHold,
        wrong=lambda w: {"kind": "words"},
        right=lambda w: {"kind": "words", "session": None, "words": ["jane"]},
        also=lambda w: [{"session": None}],
    ),
    "legal_hold_has_a_reason": check_case(LegalHold, {"reason": ""}, {"reason": "x"}),
    "legal_hold_is_released_by_a_person": Case(
        LegalHold,
        wrong=lambda w: {"released_at_us": 7},
        right=lambda w: {"released_at_us": 7, "released_by": w.user},
        also=lambda w: [{"released_by": w.user}],
    ),
}
