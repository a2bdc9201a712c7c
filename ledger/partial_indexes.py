"""Conditions of partial indexes, spelled exactly as in the schema.

SQLite uses a partial index only if its condition is in the query literally, constants included; a
bound parameter does not work. For PostgreSQL they are redundant. A test checks both planners.
"""

from typing import Final

from django.db.models import BooleanField, F, Func


def _condition(column: str, template: str) -> Func:
    return Func(F(column), template=template, output_field=BooleanField())


# effect_by_state
IS_NOT_ACKNOWLEDGED: Final = _condition("state", "NOT (%(expressions)s = 'acknowledged')")
# effect_by_bad_outcome
HAS_BAD_OUTCOME: Final = _condition("outcome", "%(expressions)s IN ('error', 'unknown')")
# effect_by_reference
HAS_REFERENCE: Final = _condition("external_reference", "NOT (%(expressions)s = '')")
# effect_by_call
HAS_CALL_ID: Final = _condition("call_id", "NOT (%(expressions)s = '')")
# effect_by_resource
HAS_RESOURCE: Final = _condition("resource", "NOT (%(expressions)s = '')")
# effect_by_ref_class
HAS_PROTECTED_REF: Final = _condition("ref_class", "%(expressions)s IN ('production', 'protected')")
# effect_needing_permission
NEEDS_PERMISSION: Final = _condition("policy_outcome", "%(expressions)s IN ('ask', 'deny')")
# entry_of_control
IS_OF_A_CONTROL: Final = _condition("kind", "%(expressions)s = 'control.fired'")
# entry_of_claim
IS_A_CLAIM: Final = _condition("lane", "%(expressions)s = 'claim'")
# entry_by_kind
IS_OF_A_RARE_KIND: Final = _condition(
    "kind",
    "NOT (%(expressions)s IN ('effect.planned', 'effect.dispatched',"
    " 'effect.acknowledged', 'effect.failed'))",
)
# entry_by_person
IS_OF_A_PERSON: Final = _condition("actor", "(%(expressions)s >= 'p_' AND %(expressions)s < 'q')")
# repeated_by_count
IS_REPEATED: Final = _condition("nth", "%(expressions)s > 1")
# effect_tried_again
IS_RETRIED: Final = _condition("attempt_count", "%(expressions)s > 1")
# effect_without_permission
RAN_WITHOUT_PERMISSION: Final = _condition("permission", "%(expressions)s = 'bypassed'")
# effect_by_confirmation
IS_CONFIRMED: Final = _condition("confirmed_by", "NOT (%(expressions)s = '')")
# effect_error_by_agent
HAS_ERROR: Final = _condition("outcome", "%(expressions)s = 'error'")
# effect_failed_by_tool
HAS_FAILED: Final = _condition("state", "%(expressions)s = 'failed'")
# effect_asked_about
HAS_GATE_REFERENCE: Final = _condition("permission_ref", "NOT (%(expressions)s = '')")
