"""What the overview shows. At most eight queries, whatever a project contains."""

from dataclasses import dataclass
from typing import Any, Final

from accounts.access import has_role
from accounts.header_counts import ProjectStatus
from accounts.models import Membership
from approvals.inbox import inbox_queries
from approvals.inbox.waiting_rows import WaitingRow, load_waiting_rows
from db import jobs
from ledger.models import Effect
from pages.overview.answer_times import AnswerTimes, load_answer_times
from pages.overview.day_chart import DayChart, draw_day
from pages.overview.day_counts import DAY_STATES, DayCounts, load_day_counts
from pages.overview.faults import Faults, load_faults
from pages.overview.live_sessions import LiveSessions, load_live_sessions

SHOWN_REQUESTS: Final = 5


@dataclass(slots=True)
class Overview:
    """All that the page shows, as of `now_us`."""

    now_us: int
    waiting: list[WaitingRow]
    waiting_count: int  # for this person; of the project for others
    first_expiry_us: int | None  # of them
    pending: int  # of the project
    is_mine: bool
    faults: Faults
    day: DayCounts
    live: LiveSessions
    answers: AnswerTimes
    checked_ago_us: int | None  # since the last run of the stuck checks
    is_empty: bool

    @property
    def has_failed(self) -> bool:
        """Whether an effect of today failed: no problem by itself, its agent knows of it."""
        return self.day.sum_of_state("failed") > 0

    @property
    def chart(self) -> DayChart:
        """The picture of today."""
        return draw_day(self.day)

    @property
    def day_totals(self) -> list[dict[str, Any]]:
        """The totals of today by state, without those that are 0."""
        return [
            {"state": state, "count": count, "url": self.day.find_url(state.query)}
            for state in DAY_STATES
            if (count := self.day.sum_of_state(state.key)) or state.key == "acknowledged"
        ]

    @property
    def day_table(self) -> dict[str, Any]:
        """The numbers of the picture as a table: columns, and rows of cells by hour."""
        states = [total["state"] for total in self.day_totals]
        rows = []
        for hour in range(24):
            if not self.day.sum_of_hour(hour) and not self.day.before[hour]:
                continue
            cells = [
                (self.day.counts[hour, state.key], self.day.find_url(state.query, hour))
                for state in states
            ]
            rows.append(
                {
                    "hour": f"{hour:02d}:00",
                    "cells": cells,
                    "total": self.day.sum_of_hour(hour),
                    "url": self.day.find_url("", hour),
                    "before": self.day.before[hour],
                    "before_url": self.day.find_hour_before_url(hour),
                }
            )
        return {"states": states, "rows": rows}


def load_overview(membership: Membership, status: ProjectStatus, now: int) -> Overview:
    """Load the overview for a member."""
    project = membership.project_id
    is_mine = has_role(membership, "reviewer")
    first = (
        inbox_queries.load_first_requests(membership, SHOWN_REQUESTS, for_member=is_mine)
        if status.waiting
        else inbox_queries.FirstRequests([], 0, None)
    )
    late_jobs = jobs.evaluate_jobs(status.job_texts or "", now)
    day = load_day_counts(project, now)
    live = load_live_sessions(project, now)
    return Overview(
        now,
        load_waiting_rows(project, first.gates, now, first.ends_us if first.count > 1 else None),
        first.count,
        first.ends_us,
        status.waiting,
        is_mine,
        load_faults(membership, late_jobs, now),
        day,
        live,
        load_answer_times(project, now),
        next((job.ago_us for job in late_jobs if job.name == "stuck_checks"), None),
        # Only a project without anything today and now is asked whether it has ever had an effect.
        not (day.total or live.count or first.count)
        and not Effect.objects.filter(project=project).exists(),
    )
