"""When effects were planned, ran and were answered, and how late after their permission.

A dispatch by command has the server's clock. What an agent reported afterwards has the time that
the agent gave, and a word for it. All is read with the effects themselves.
"""

from dataclasses import dataclass
from typing import Any, Final

from django.db.models import F, FilteredRelation, OuterRef, Q, QuerySet, Subquery

from approvals.models import Gate
from ledger.models import Effect
from web.templatetags.gatebook import elapsed

GAP_US: Final = 1_800_000_000  # from permission to run; more is stated in words
# Source of a run's time -> its words.
RUN_SOURCES: Final = {
    "dispatch": "dispatched by command, server clock",
    "agent": "reported by the agent, by its clock",
    "answer": "start not reported; this is its answer",
    "heard": "time not reported; Gatebook received the report then",
}


@dataclass(slots=True)
class RunTimes:
    """Times of an effect's last attempt, microseconds; None if it has none.

    `ran_source` is a key of RUN_SOURCES or empty. `permitted_us`: when people or rules allowed it.
    `permission_end_us`: when that permission ended. `decide_by_us`: of a pending request.
    """

    planned_us: int | None = None
    ran_us: int | None = None
    ran_source: str = ""
    answered_us: int | None = None
    process: str = ""
    lease_epoch: int | None = None
    permitted_us: int | None = None
    permitted_by: str = ""  # approval, exemption or plan
    permission_end_us: int | None = None
    decide_by_us: int | None = None
    is_bypassed: bool = False

    @property
    def late_us(self) -> int:
        """Return how long after the end of its permission it ran; 0 if it did not."""
        if self.ran_us is None or self.permission_end_us is None:
            return 0
        return max(self.ran_us - self.permission_end_us, 0)

    @property
    def is_late(self) -> bool:
        """Return True if it ran after its permission ended, or without any."""
        return self.ran_us is not None and (self.is_bypassed or self.late_us > 0)

    @property
    def took_us(self) -> int | None:
        """Return the time from its run to its answer, None if one is not known."""
        is_timed = self.ran_source in ("dispatch", "agent") and self.answered_us is not None
        return max(self.answered_us - self.ran_us, 0) if is_timed else None  # type: ignore[operator]

    @property
    def gap_words(self) -> str:
        """Return the distance from permission to run in words; empty if it is short."""
        if self.ran_us is None:
            return ""
        if self.late_us:
            what = "its exemption" if self.permitted_by == "exemption" else "permission"
            return f"{elapsed(self.late_us)} after {what} ended"
        if self.is_bypassed:
            return "without permission"
        if self.permitted_us is not None and self.ran_us - self.permitted_us > GAP_US:
            what = {"plan": "the plan", "exemption": "its exemption"}.get(
                self.permitted_by, "approval"
            )
            return f"{elapsed(self.ran_us - self.permitted_us)} after {what}"
        return ""


def is_reported_late(effect: Any) -> bool:
    """Return True if an agent reported an effect more than GAP_US after it ran. No queries.

    The effect was loaded with `annotate_runs`.
    """
    times = read_run_times(effect)
    if times.ran_us is None or times.ran_source not in ("agent", "answer"):
        return False
    return effect.run_heard_us is not None and effect.run_heard_us - times.ran_us > GAP_US


# Columns of the last attempt, and of the requests for the effect; read with the effect itself.
_ATTEMPT_COLUMNS: Final = (
    "lane",
    "process",
    "lease_epoch",
    "received_us",
    "heard_us",
    "dispatched_at_us",
    "acknowledged_at_us",
    "failed_at_us",
)


def annotate_runs(effects: "QuerySet[Effect]") -> "QuerySet[Effect]":
    """Add what `read_run_times` needs: the last attempt, and times of the effect's requests."""
    last = FilteredRelation("attempts", condition=Q(attempts__number=F("attempt_count")))
    gates = Gate.objects.filter(effect=OuterRef("id")).order_by("-opened_position")
    permitted = gates.filter(permission_until_us__isnull=False)
    return effects.annotate(last_attempt=last).annotate(
        **{f"run_{name}": F(f"last_attempt__{name}") for name in _ATTEMPT_COLUMNS},
        gate_decided_us=Subquery(permitted.values("decided_at_us")[:1]),
        gate_until_us=Subquery(permitted.values("permission_until_us")[:1]),
        gate_decide_by_us=Subquery(gates.filter(status="pending").values("decide_by_us")[:1]),
    )


def read_run_times(effect: Any) -> RunTimes:
    """Return the times of an effect that was loaded with `annotate_runs`. No queries."""
    times = RunTimes(
        planned_us=effect.received_us,
        process=effect.run_process or "",
        lease_epoch=effect.run_lease_epoch,
        is_bypassed=effect.permission == "bypassed",
        decide_by_us=effect.gate_decide_by_us,
        answered_us=effect.run_acknowledged_at_us or effect.run_failed_at_us,
    )
    candidates = (
        ("dispatch", effect.run_received_us if effect.run_lane == "command" else None),
        ("agent", effect.run_dispatched_at_us),
        ("answer", times.answered_us),
        ("heard", effect.run_heard_us),
    )
    times.ran_source, times.ran_us = next(
        (pair for pair in candidates if pair[1] is not None), ("", None)
    )
    if effect.gate_decided_us is not None:
        times.permitted_us, times.permitted_by = effect.gate_decided_us, "approval"
        times.permission_end_us = effect.gate_until_us
    elif effect.permission_basis == "exemption":
        times.permitted_us, times.permitted_by = times.planned_us, "exemption"
        times.permission_end_us = effect.permission_until_us
    elif effect.permission_basis == "policy" and effect.permission in ("granted", "used"):
        times.permitted_us, times.permitted_by = times.planned_us, "plan"
    return times
