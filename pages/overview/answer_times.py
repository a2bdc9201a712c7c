"""Approvals of the last 7 days: how long people took, and what they answered. One query."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from approvals.gates.statuses import APPROVED_STATUSES
from db import raw_sql
from display.urls_of_rows import build_search_url
from pages.overview.day_counts import DAY_US, format_minute

US: Final = 1_000_000
MINUTE_US: Final = 60 * US
# Gates are read from the first entry of the time on, and a little before: clocks may differ.
_MARGIN_US: Final = 10 * MINUTE_US
MAX_GATES: Final = 20_000
_SQL: Final = (
    "SELECT status, requested_at_us, decided_at_us FROM approvals_gate WHERE project_id = %s"
    " AND opened_position >= coalesce((SELECT position FROM journal_entry"
    " WHERE received_us >= %s ORDER BY received_us LIMIT 1), 0) AND requested_at_us >= %s"
    f" ORDER BY opened_position DESC LIMIT {MAX_GATES}"
)
# Upper bound in microseconds, words, condition.
_STEPS: Final = (
    (30 * US, "under 30 s", "wait:<30s"),
    (2 * MINUTE_US, "to 2 min", "wait:>=30s wait:<2m"),
    (5 * MINUTE_US, "to 5 min", "wait:>=2m wait:<5m"),
    (15 * MINUTE_US, "to 15 min", "wait:>=5m wait:<15m"),
    (60 * MINUTE_US, "to 1 h", "wait:>=15m wait:<1h"),
    (None, "over 1 h", "wait:>=1h"),
)


@dataclass(frozen=True, slots=True)
class AnswerStep:
    """A column of the distribution: its words, number and search."""

    words: str
    count: int
    url: str
    is_unanswered: bool = False


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A drawn step: x and width in per cent, y and height in pixels."""

    step: AnswerStep
    x: str
    width: str
    middle: str
    y: str
    height: str
    word_y: str


@dataclass(slots=True)
class AnswerTimes:
    """Figures of the requests since `since_us`. Times are those of approved requests."""

    since_us: int
    statuses: Counter[str] = field(default_factory=Counter)
    waits: list[int] = field(default_factory=list)  # of approved requests, sorted
    steps: list[AnswerStep] = field(default_factory=list)

    @property
    def requested(self) -> int:
        """How many were requested."""
        return self.statuses.total()

    @property
    def approved(self) -> int:
        """How many were approved, whatever became of the approval."""
        return sum(self.statuses[status] for status in APPROVED_STATUSES)

    @property
    def denied(self) -> int:
        """How many were denied."""
        return self.statuses["denied"] + self.statuses["denied_session"]

    @property
    def expired(self) -> int:
        """How many expired without an answer."""
        return self.statuses["expired"]

    @property
    def pending(self) -> int:
        """How many still wait."""
        return self.statuses["pending"]

    @property
    def ended_otherwise(self) -> int:
        """How many ended without a yes, a no or an expiry: withdrawn, or changes were asked for."""
        return self.requested - self.approved - self.denied - self.expired - self.pending

    @property
    def has_ended_requests(self) -> bool:
        """Whether any request has ended; while all wait, a share says nothing."""
        return self.requested > self.pending

    @property
    def columns(self) -> list[AnswerColumn]:
        """The steps as they are drawn: the axis is at 40 px, the highest column 28 px."""
        highest = max([1, *(step.count for step in self.steps)])
        share = 100 / max(len(self.steps), 1)
        drawn = []
        for number, step in enumerate(self.steps):
            height = 28 * step.count / highest
            drawn.append(
                AnswerColumn(
                    step,
                    f"{number * share + 0.06 * share:.1f}",
                    f"{0.88 * share:.1f}",
                    f"{(number + 0.5) * share:.1f}",
                    f"{40 - height:.1f}",
                    f"{height:.1f}",
                    f"{36 - height:.1f}",
                )
            )
        return drawn

    def find_percentile(self, percent: int) -> int | None:
        """Return the nearest-rank percentile of the waits in microseconds; None without any."""
        rank = (len(self.waits) * percent + 99) // 100
        return self.waits[rank - 1] if self.waits else None

    @property
    def median_us(self) -> int | None:
        """The median wait of approved requests."""
        return self.find_percentile(50)

    @property
    def p95_us(self) -> int | None:
        """The wait that 95 % of the approved requests did not exceed."""
        return self.find_percentile(95)

    def find_share(self, count: int) -> int:
        """Return a count as a whole percentage of the requests."""
        return round(100 * count / self.requested) if self.requested else 0

    @property
    def approved_share(self) -> int:
        """The approved requests in per cent."""
        return self.find_share(self.approved)

    @property
    def denied_share(self) -> int:
        """The denied requests in per cent."""
        return self.find_share(self.denied)

    def find_url(self, condition: str = "") -> str:
        """Return the search for these requests that meet a condition."""
        text = f"gate {condition}".strip()
        stage = text.find("|")
        since = f"since:{format_minute(self.since_us)}"
        if stage < 0:
            return build_search_url(f"{text} {since}")
        return build_search_url(f"{text[:stage]}{since} {text[stage:]}")

    @property
    def urls(self) -> dict[str, str]:
        """The search of each figure."""
        return {
            "requested": self.find_url(),
            "approved": self.find_url("ruling:approved"),
            "denied": self.find_url("ruling:denied"),
            "expired": self.find_url("status:expired"),
            "pending": self.find_url("status:pending"),
            "ended_otherwise": self.find_url("status:[cancelled,changes_requested]"),
            "shares": self.find_url("| group status | count"),
            "median": self.find_url("ruling:approved | group ruling | p50(wait), p95(wait), count"),
        }


def load_answer_times(project: UUID, now: int) -> AnswerTimes:
    """Load the requests of today and of the six days before. One query."""
    since = now - now % DAY_US - 6 * DAY_US
    times = AnswerTimes(since)
    rows = raw_sql.fetch_rows(_SQL, [raw_sql.vendor_id(project), since - _MARGIN_US, since])
    answered = []
    for status, requested_us, decided_us in rows:
        times.statuses[status] += 1
        if decided_us is not None:
            answered.append(decided_us - requested_us)
        if status in APPROVED_STATUSES:
            times.waits.append(decided_us - requested_us)
    times.waits.sort()
    low = 0
    for bound, words, condition in _STEPS:
        count = sum(low <= wait and (bound is None or wait < bound) for wait in answered)
        times.steps.append(AnswerStep(words, count, times.find_url(condition)))
        low = bound or low
    times.steps.append(AnswerStep("expired", times.expired, times.urls["expired"], True))
    return times
