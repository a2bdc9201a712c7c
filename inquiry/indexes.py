"""The conditions of ledger.Effect's partial indexes, spelt as the schema spells them.

SQLite uses a partial index only when its condition stands in the query word for word, constants included; a bound
parameter will not do. PostgreSQL reads them as the redundancy they are. A test asks both planners.
"""

from typing import Final

from django.db.models import BooleanField, F, Func


def _condition(column: str, template: str) -> Func:
    return Func(F(column), template=template, output_field=BooleanField())


IS_NOT_ACKNOWLEDGED: Final = _condition("state", "NOT (%(expressions)s = 'acknowledged')")  # effect_by_state
HAS_BAD_OUTCOME: Final = _condition("outcome", "%(expressions)s IN ('error', 'unknown')")  # effect_by_bad_outcome
HAS_REFERENCE: Final = _condition("external_reference", "NOT (%(expressions)s = '')")  # effect_by_reference
HAS_RESOURCE: Final = _condition("resource", "NOT (%(expressions)s = '')")  # effect_by_resource
HAS_GUARDED_REF: Final = _condition(
    "ref_class", "%(expressions)s IN ('production', 'protected')"
)  # effect_by_ref_class
NEEDS_LEAVE: Final = _condition("judged", "%(expressions)s IN ('ask', 'deny')")  # effect_judged_to_need_leave
IS_OF_A_CONTROL: Final = _condition("kind", "%(expressions)s = 'control.fired'")  # journal's entry_of_control
IS_A_CLAIM: Final = _condition("lane", "%(expressions)s = 'claim'")  # journal's entry_of_claim
IS_OF_A_RARE_KIND: Final = _condition(
    "kind", "NOT (%(expressions)s IN ('effect.planned', 'effect.dispatched', 'effect.acknowledged', 'effect.failed'))"
)  # journal's entry_by_kind
IS_OF_A_PERSON: Final = _condition("actor", "(%(expressions)s >= 'p_' AND %(expressions)s < 'q')")  # entry_by_person
IS_REPEATED: Final = _condition("nth", "%(expressions)s > 1")  # repeated_by_count
IS_TRIED_AGAIN: Final = _condition("attempt_count", "%(expressions)s > 1")  # effect_tried_again
RAN_WITHOUT_LEAVE: Final = _condition("leave", "%(expressions)s = 'bypassed'")  # effect_without_leave
HAS_FAILED: Final = _condition("state", "%(expressions)s = 'failed'")  # effect_failed_by_tool
WAS_ASKED_ABOUT: Final = _condition("leave_ref", "NOT (%(expressions)s = '')")  # effect_asked_about
