"""The one writer of Capacity: agents' free capacity, and throttled plans.

Only new plans are throttled. Dispatching an approved effect, reporting an outcome and probing
always work.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import F, Q, QuerySet

from db.jobs import CLOCK_STEP_US
from db.row_changes import RowChange, write_row_changes
from journal import entries
from journal.entries import Origin
from sessions.models import Capacity

US: Final = 1_000_000
# The thresholds. A report counts while it is fresh. After that, plans are not throttled.
CAPACITY_FRESH_S: Final = 300
MIN_CONTEXT_TOKENS: Final = 4_000
MIN_CONTEXT_SHARE: Final = 20  # one token in so many must be left, where the total is reported
MIN_TIME_LEFT_S: Final = 60  # of the reported time, less what has passed since
MAX_QUEUE: Final = 100
MAX_RETRY_AFTER_S: Final = 30  # short, because a new report may end the throttling

CAPACITY_FIELDS: Final = ("context_left_tokens", "context_total_tokens", "time_left_s", "queue")


class PlansThrottled(Exception):
    """The agent's last capacity report throttles its plans. Nothing was recorded."""

    def __init__(self, reason: str, until_us: int, now_us: int) -> None:
        super().__init__(reason)
        self.until_us = until_us
        self.retry_after_s = min(MAX_RETRY_AFTER_S, -(-(until_us - now_us) // US))
        self.sentence = (
            f"Plans are throttled because your last capacity report says that {_WORDS[reason]}."
            " Finish what is under way and write a handoff. Send a new report to POST /capacity"
            f" when you have room; this one expires after {CAPACITY_FRESH_S // 60} minutes."
        )


_WORDS: Final = {
    "context": "little context is left",
    "time": "little time is left",
    "queue": "your queue is too long",
}


def record_capacity(
    origin: Origin, session: UUID | None, values: dict[str, int | None]
) -> Capacity:
    """Store a report; `values` has CAPACITY_FIELDS, or None. Raises RepeatedKey."""
    pace = compute_throttle_window(values, origin.received_us)
    facts: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if pace is not None:
        facts["paced"] = pace[0]
    draft = origin.draft(
        "capacity.reported",
        facts=entries.dump_sorted_json(facts),
        session=session,
    )
    position = origin.append_draft(draft)
    reason, from_us, until_us = pace or ("", None, None)
    whose: dict[str, Any] = {"agent_id": origin.agent, "session_id": session}
    row, _created = Capacity.objects.update_or_create(
        **whose,
        defaults={
            "project_id": origin.project,
            "reported_at_us": origin.received_us,
            "position": position,
            "pace_reason": reason,
            "paced_from_us": from_us,
            "paced_until_us": until_us,
            **values,
        },
    )
    return row


def restore_capacity(changes: Sequence[RowChange]) -> None:
    """Restore reports to what the journal gives (manage.py rebuild)."""
    write_row_changes(Capacity, changes)


def compute_throttle_window(
    values: Mapping[str, int | None], now_us: int
) -> tuple[str, int, int] | None:
    """Return why, from when and until when (µs) a report throttles plans, or None.

    It may begin later, because the reported time runs out.
    """
    until_us = now_us + CAPACITY_FRESH_S * US
    left, total, queue = (
        values["context_left_tokens"],
        values["context_total_tokens"],
        values["queue"],
    )
    if left is not None and (
        left < MIN_CONTEXT_TOKENS or (total is not None and left * MIN_CONTEXT_SHARE < total)
    ):
        return "context", now_us, until_us
    if queue is not None and queue > MAX_QUEUE:
        return "queue", now_us, until_us
    time_left_s = values["time_left_s"]
    if time_left_s is not None and time_left_s < MIN_TIME_LEFT_S + CAPACITY_FRESH_S:
        return "time", now_us + max(0, time_left_s - MIN_TIME_LEFT_S) * US, until_us
    return None


def find_throttle(agent: UUID, session: UUID, now_us: int) -> PlansThrottled | None:
    """Return what throttles the agent's plans in this session now, or None. One query.

    The later of two reports counts: that for the session and that for all sessions. Called only
    where some report of the agent throttles at all (approvals/policies/policy_evaluation.py).
    """
    reports = _query_reports(agent, session)
    latest = reports.order_by("-position").first()
    if latest is None or latest.paced_until_us is None or not is_throttling(latest, now_us):
        return None
    return PlansThrottled(latest.pace_reason, latest.paced_until_us, now_us)


def load_capacity_reports(
    project: UUID, session: UUID | None = None, agent: UUID | None = None, limit: int = 200
) -> list[Capacity]:
    """Return the latest capacity reports of a project, newest first."""
    rows = Capacity.objects.filter(project=project).select_related("agent", "session")
    if session is not None:
        rows = rows.filter(session=session)
    if agent is not None:
        rows = rows.filter(agent=agent)
    return list(rows.order_by("-reported_at_us", "-id")[:limit])


def load_capacity(agent: UUID, session: UUID) -> Capacity | None:
    """Return an agent's latest report for a session or for all sessions."""
    reports = _query_reports(agent, session)
    return reports.select_related("agent").order_by("-position").first()


def _query_reports(agent: UUID, session: UUID) -> "QuerySet[Capacity]":
    """Return the reports of an agent for a session and for all, of the agent's own project."""
    of_session = Q(session=session) | Q(session__isnull=True)
    return Capacity.objects.filter(of_session, agent=agent, project=F("agent__project"))


def is_capacity_fresh(row: Capacity, now_us: int) -> bool:
    """Return True while a report counts."""
    # A report from the future dates from before the clock was set back; its age is unknown.
    return row.reported_at_us - CLOCK_STEP_US <= now_us < row.reported_at_us + CAPACITY_FRESH_S * US


def is_throttling(row: Capacity, now_us: int) -> bool:
    """Return True while a report throttles plans."""
    from_us, until_us = row.paced_from_us, row.paced_until_us
    return (
        is_capacity_fresh(row, now_us)
        and from_us is not None
        and until_us is not None
        and from_us <= now_us < until_us
    )
