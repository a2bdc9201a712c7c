"""The states people see, derived on read from what is stored: right however late a sweeper is.

*awaiting approval* is planned with leave pending. *unknown* is a dispatch whose deadline passed without an answer, or
an answer that says itself that nobody knows. *no end told* is a session that was merely reported and of which no end
was: whether it still runs, nobody here knows. Everything else is shown as it is stored.
"""

import re
from typing import Any, Final

from django.db.models import Q

from inquiry.indexes import HAS_BAD_OUTCOME, HAS_FAILED, IS_NOT_ACKNOWLEDGED
from journal.templatetags.gatebook import shown_state
from sessions.models import Session

__all__ = ["AWAITING", "NO_END", "STATES", "UNKNOWN", "arms", "no_end_told", "problems"]
__all__ += ["short_process", "shown_state", "shown_status"]

AWAITING: Final = "awaiting"
UNKNOWN: Final = "unknown"
# The value in a query string -> the word on the page; in the order of an effect's life.
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
NO_END: Final = "no end told"
_CLOSED: Final = ("compensated", "superseded")


def arms(state: str, now_us: int) -> list[Q]:
    """Return disjoint conditions whose union is the shown `state` at `now_us`; each can be served by one index."""
    if state == "acknowledged":
        return [Q(state=state) & ~Q(outcome=UNKNOWN)]
    if state == UNKNOWN:
        unheard = Q(HAS_BAD_OUTCOME, outcome=UNKNOWN) & ~Q(state__in=_CLOSED)
        return [unheard, _stored("dispatched", deadline_us__lt=now_us)]
    if state == AWAITING:
        return [_stored("planned", leave="pending")]
    if state == "planned":
        return [_stored("planned") & ~Q(leave="pending")]
    if state == "dispatched":
        return [_stored("dispatched") & (Q(deadline_us__isnull=True) | Q(deadline_us__gte=now_us))]
    if state == "failed":  # by the condition alone: together with a parameter, planners think it rarer than it is
        return [Q(IS_NOT_ACKNOWLEDGED, HAS_FAILED) & ~Q(outcome=UNKNOWN)]
    return [_stored(state)]


def no_end_told() -> Q:
    """The condition of sessions that are shown as *no end told* and not as running."""
    return Q(mode="reported", status="running")


def shown_status(session: Session) -> str:
    """The word for a session's status."""
    return NO_END if session.mode == "reported" and session.status == "running" else session.status


def any_of(conditions: list[Q]) -> Q:
    """Their union as one condition; of none, no condition at all."""
    union = Q()
    for condition in conditions:
        union |= condition
    return union


def problems(now_us: int) -> list[Q]:
    """Return disjoint conditions for what deserves a look: bad outcomes, answers that never came, breaches of leave."""
    closed = Q(state__in=_CLOSED)
    late = _stored("dispatched", deadline_us__lt=now_us)
    breach = Q(violates=True) & (Q(outcome__in=["", "ok"]) | closed) & ~late
    return [
        Q(HAS_BAD_OUTCOME, outcome="error") & ~closed,
        Q(HAS_BAD_OUTCOME, outcome=UNKNOWN) & ~closed,
        late,
        breach,
    ]


def _stored(state: str, **more: Any) -> Q:
    return Q(IS_NOT_ACKNOWLEDGED, state=state, **more)


def short_process(process: str) -> str:
    """The name of a process for people: of long random parts the first eight characters tell it apart from the next."""
    return _RANDOM.sub(r"\1…", process)


_RANDOM: Final = re.compile(
    r"(?<![0-9A-Za-z])([0-9a-f]{8})(?:[0-9a-f]{5,}|(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE
)
