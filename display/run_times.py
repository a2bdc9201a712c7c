"""When an effect ran: its last attempt's dispatch, or the time that the agent reported.

Gatebook hears of a dispatch before the call runs, so its own clock counts. A report that arrives
later has only the time that the agent states. An attempt that was rejected before dispatch did not
run.
"""

from dataclasses import dataclass
from typing import Any, Final

from django.db.models import BigIntegerField, Case, F, OuterRef, Q, Subquery, When
from django.db.models.functions import Coalesce

from ledger.models import Attempt

SERVER: Final = "Gatebook's clock at the dispatch"
REPORTED: Final = "reported by the agent"
NOT_REPORTED: Final = "time not reported"
NOT_RUN: Final = "did not run"
_REJECTED: Final = Q(dispatched_mark="", acknowledged_mark="", failure_reason="rejected")


@dataclass(frozen=True, slots=True)
class RunTime:
    """The time in microseconds, None if it did not run or reported none, and its source."""

    us: int | None
    source: str


def derive_run_time(attempt: Attempt | None) -> RunTime:
    """Return when an effect ran, by its last attempt."""
    if attempt is None:
        return RunTime(None, NOT_RUN)
    if attempt.lane == "command" and attempt.received_us is not None:
        return RunTime(attempt.received_us, SERVER)
    rejected = attempt.failure_reason == "rejected"
    if rejected and not attempt.dispatched_mark and not attempt.acknowledged_mark:
        return RunTime(None, NOT_RUN)
    times = (attempt.dispatched_at_us, attempt.acknowledged_at_us, attempt.failed_at_us)
    us = next((time for time in times if time is not None), None)
    return RunTime(us, NOT_REPORTED if us is None else REPORTED)


def run_time_expression(effect: str = "pk") -> Any:
    """Return the same time as an expression on effects; `effect` is the column of their id."""
    times = Coalesce("dispatched_at_us", "acknowledged_at_us", "failed_at_us")
    ran = Case(
        When(lane="command", received_us__isnull=False, then=F("received_us")),
        When(_REJECTED, then=None),
        default=times,
        output_field=BigIntegerField(),
    )
    last = Attempt.objects.filter(effect=OuterRef(effect)).order_by("-number")
    return Subquery(last.annotate(ran_us=ran).values("ran_us")[:1])
