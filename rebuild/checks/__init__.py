"""The checks of the tables that follow from the journal, one module per subject."""

from functools import cache

from rebuild.checks import (
    account_checks,
    code_host_checks,
    decision_checks,
    effect_checks,
    erased_body_checks,
    erasure_checks,
    event_match_checks,
    gate_checks,
    lease_checks,
    message_checks,
    outbox_checks,
    project_checks,
    relation_checks,
    search_word_checks,
    session_checks,
    setting_checks,
    working_state_checks,
)


@cache
def register_row_checks() -> None:
    """Register every check, the tables that others refer to first."""
    project_checks.register_project_checks()
    account_checks.register_account_checks()
    setting_checks.register_setting_checks()
    session_checks.register_session_checks()
    erasure_checks.register_erasure_checks()
    erased_body_checks.register_erased_body_checks()
    working_state_checks.register_working_state_checks()
    decision_checks.register_decision_checks()
    effect_checks.register_effect_checks()
    search_word_checks.register_search_word_checks()
    gate_checks.register_gate_checks()
    code_host_checks.register_code_host_checks()
    event_match_checks.register_event_match_checks()
    outbox_checks.register_outbox_checks()
    lease_checks.register_lease_checks()
    message_checks.register_message_checks()
    relation_checks.register_relation_checks()
