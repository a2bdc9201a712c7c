"""Shown states, derived from stored columns at read time.

*awaiting approval* is planned with permission pending. *unknown* is a dispatch whose deadline
passed without an answer, or an answer with outcome unknown. *end not reported* is a reported
session without a reported end. Other states are shown as stored.
"""

import re
from typing import Any, Final

from django.db.models import Q

from ledger.partial_indexes import HAS_BAD_OUTCOME, HAS_ERROR, HAS_FAILED, IS_NOT_ACKNOWLEDGED
from sessions.models import Session
from web.templatetags.gatebook import derive_shown_state

__all__ = [
    "AWAITING",
    "ENDED_IN_ERROR",
    "END_NOT_REPORTED",
    "STATES",
    "UNKNOWN",
    "end_not_reported_condition",
    "error_condition",
    "problem_conditions",
    "shown_state_conditions",
]
__all__ += ["derive_shown_state", "derive_shown_status", "short_process"]

AWAITING: Final = "awaiting"
UNKNOWN: Final = "unknown"
# Value in a query string -> word on the page, in the order of an effect's life.
STATES: Final[dict[str, str]] = {
    "planned": "planned",
    AWAITING: "awaiting approval",
    "dispatched": "dispatched",
    "acknowledged": "acknowledged",
    "failed": "failed",
    UNKNOWN: "unknown",
    "compensated": "compensated",
    "superseded": "superseded",
}
END_NOT_REPORTED: Final = "end not reported"
_CLOSED: Final = ("compensated", "superseded")


def shown_state_conditions(state: str, now_us: int) -> list[Q]:
    """Return disjoint conditions of the shown `state`, each for one index."""
    if state == "acknowledged":
        return [Q(state=state) & ~Q(outcome=UNKNOWN)]
    if state == UNKNOWN:
        unheard = Q(HAS_BAD_OUTCOME, outcome=UNKNOWN) & ~Q(state__in=_CLOSED)
        return [unheard, _stored_state("dispatched", deadline_us__lt=now_us)]
    if state == AWAITING:
        return [_stored_state("planned", permission="pending")]
    if state == "planned":
        return [_stored_state("planned") & ~Q(permission="pending")]
    if state == "dispatched":
        return [
            _stored_state("dispatched") & (Q(deadline_us__isnull=True) | Q(deadline_us__gte=now_us))
        ]
    if (
        state == "failed"
    ):  # Without a parameter: with one, planners underestimate the number of rows.
        return [Q(IS_NOT_ACKNOWLEDGED, HAS_FAILED) & ~Q(outcome=UNKNOWN)]
    return [_stored_state(state)]


# Finds the effects of `error_condition`: what did not happen, and what happened with an error.
ENDED_IN_ERROR: Final = "outcome:error state:[failed,acknowledged]"


def error_condition() -> Q:
    """Return the condition of effects that ended in an error, whether they happened or not."""
    return Q(HAS_BAD_OUTCOME, HAS_ERROR, state__in=("failed", "acknowledged"))


def end_not_reported_condition() -> Q:
    """Return the condition of sessions shown as *end not reported* instead of running."""
    return Q(mode="reported", status="running")


def derive_shown_status(session: Session) -> str:
    """Return the displayed word for a session's status."""
    return (
        END_NOT_REPORTED
        if session.mode == "reported" and session.status == "running"
        else session.status
    )


def union_of_conditions(conditions: list[Q]) -> Q:
    """Return the union of the conditions; no condition for an empty list."""
    union = Q()
    for condition in conditions:
        union |= condition
    return union


def problem_conditions(now_us: int) -> list[Q]:
    """Return disjoint conditions: bad outcome, no answer, permission violation."""
    closed = Q(state__in=_CLOSED)
    late = _stored_state("dispatched", deadline_us__lt=now_us)
    violation = Q(violates=True) & (Q(outcome__in=["", "ok"]) | closed) & ~late
    return [
        Q(HAS_BAD_OUTCOME, outcome="error") & ~closed,
        Q(HAS_BAD_OUTCOME, outcome=UNKNOWN) & ~closed,
        late,
        violation,
    ]


def _stored_state(state: str, **conditions: Any) -> Q:
    return Q(IS_NOT_ACKNOWLEDGED, state=state, **conditions)


def short_process(process: str) -> str:
    """Return a process name with long random parts cut to eight characters."""
    return _RANDOM.sub(r"\1…", process)


_RANDOM: Final = re.compile(
    r"(?<![0-9A-Za-z])([0-9a-f]{8})(?:[0-9a-f]{5,}|(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE
)
