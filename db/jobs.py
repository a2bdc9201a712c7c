"""Job heartbeats: background jobs record each run and its result.

A job that is silent or keeps failing is shown on every page and by /readyz.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import structlog

log = structlog.get_logger("gatebook.jobs")


class Job(NamedTuple):
    """A periodic job; `always_shown` shows it on pages even while it is healthy."""

    label: str
    every_us: int
    always_shown: bool = False


_SECOND_US: Final = 1_000_000
JOBS: Final = {
    "stuck_checks": Job("Stuck checks", 5 * _SECOND_US, always_shown=True),
    "outbox": Job("Event delivery", 5 * _SECOND_US, always_shown=True),
    "gate_listener": Job("Agent wake-ups", 5 * _SECOND_US, always_shown=True),
    "search_index": Job("Search index", 3 * _SECOND_US, always_shown=True),
    "seal": Job("Seal of the journal", 5 * _SECOND_US),
    "name_index": Job("Name index", 3 * _SECOND_US),
    "counts": Job("Hourly counts", 5 * _SECOND_US),
    "alerts": Job("Saved-search alerts", 60 * _SECOND_US, always_shown=True),
    "notifications": Job("Notifications", 5 * _SECOND_US),
    "gates": Job("Approval deadlines", 5 * _SECOND_US),
    "exports": Job("Exports", 5 * _SECOND_US),
    "erasures": Job("Erasures", 5 * _SECOND_US),
    "anchors": Job("Anchors", 5 * _SECOND_US),
    "retention": Job("Retention", 60 * _SECOND_US),
    "pruning": Job("Clean-up", 3_600 * _SECOND_US),
}
# While these jobs are absent Gatebook is down: nothing is checked, or no heartbeat can arrive.
_OUTAGE_JOBS: Final = ("stuck_checks", "gate_listener")
# A job is late when silent for longer than this and than three of its intervals.
LATE_US: Final = 60_000_000
CLOCK_ROW: Final = "clock"  # not a job: this row records how far the wall clock was set back
CLOCK_STEP_US: Final = 5_000_000  # larger than the difference between clocks of several machines

RunEnder = Callable[[str, BaseException | None], object]
_keepers: list[Callable[[str], object]] = []
_enders: list[RunEnder] = []


class JobState(NamedTuple):
    """The state of a job; a time is None if there was no such run.

    `ahead_us` is positive if the last run is in the future, because the clock was set back.
    `is_beyond` is True if the job claims to have read entries that the journal does not have.
    """

    name: str
    word: str
    ago_us: int | None
    late: bool
    succeeded_ago_us: int | None = None
    failed_ago_us: int | None = None
    error: str = ""
    ahead_us: int = 0
    is_beyond: bool = False

    @property
    def failing(self) -> bool:
        """Whether the last finished run failed."""
        return bool(self.error)

    @property
    def in_trouble(self) -> bool:
        """Whether an operator should check it."""
        return self.late or self.failing or bool(self.ahead_us) or self.is_beyond

    @property
    def is_shown(self) -> bool:
        """Whether page footers show it."""
        return self.ago_us is not None and (JOBS[self.name].always_shown or self.in_trouble)


class ClockStep(NamedTuple):
    """A backward step of the wall clock: its size, age and remaining time."""

    by_us: int
    ago_us: int
    left_us: int


class _Heartbeat(NamedTuple):
    name: str
    heartbeat_us: int
    every_us: int
    held_us: int
    succeeded_us: int
    failed_us: int
    is_beyond: bool
    error: str


def register_heartbeat_writer(
    keeper: Callable[[str], object], ender: RunEnder | None = None
) -> None:
    """Register `keeper` for heartbeats and `ender` for results of runs."""
    if keeper not in _keepers:
        _keepers.append(keeper)
    if ender is not None and ender not in _enders:
        _enders.append(ender)


def send_job_heartbeat(name: str) -> None:
    """Record that the job runs; a failure to store this does not stop the job."""
    for keeper in _keepers:
        try:
            keeper(name)
        except Exception as error:  # the missing heartbeat reveals it
            log.warning("heartbeat_lost", job=name, error=f"{type(error).__name__}: {error}"[:200])


@contextmanager
def record_run(name: str) -> Iterator[None]:
    """Record the result of the run inside; also a decorator."""
    try:
        yield
    except Exception as error:
        _record_end(name, error)
        raise
    _record_end(name, None)


def _record_end(name: str, error: BaseException | None) -> None:
    for ender in _enders:
        try:
            ender(name, error)
        except Exception as lost:  # must not hide the job's own exception
            log.warning("heartbeat_lost", job=name, error=f"{type(lost).__name__}: {lost}"[:200])


def evaluate_jobs(job_texts: str, now_us: int) -> list[JobState]:
    """Return the state of each job from the text that monitoring/job_heartbeats.py builds."""
    heartbeats = {heartbeat.name: heartbeat for heartbeat in _parse_heartbeats(job_texts)}
    states = []
    for name, job in JOBS.items():
        heartbeat = heartbeats.get(name)
        if heartbeat is None:
            states.append(JobState(name, job.label, None, late=False))
            continue
        # A job that keeps failing runs without effect: only its successes count.
        achieved_us = heartbeat.succeeded_us if heartbeat.error else heartbeat.heartbeat_us
        late = now_us - achieved_us > max(LATE_US, 3 * max(heartbeat.every_us, job.every_us))
        ahead_us = heartbeat.heartbeat_us - now_us
        states.append(
            JobState(
                name,
                job.label,
                _ago(heartbeat.heartbeat_us, now_us) or 0,
                late,
                _ago(heartbeat.succeeded_us, now_us),
                _ago(heartbeat.failed_us, now_us),
                heartbeat.error,
                ahead_us if ahead_us > CLOCK_STEP_US else 0,
                heartbeat.is_beyond,
            )
        )
    return states


def find_clock_step(job_texts: str, now_us: int) -> ClockStep | None:
    """Return the last backward clock step, until the clock has caught up."""
    for heartbeat in _parse_heartbeats(job_texts):
        if heartbeat.name == CLOCK_ROW and now_us < heartbeat.heartbeat_us + heartbeat.every_us:
            return ClockStep(
                heartbeat.every_us,
                max(now_us - heartbeat.heartbeat_us, 0),
                heartbeat.heartbeat_us + heartbeat.every_us - now_us,
            )
    return None


def alerts_paused_until(job_texts: str) -> int:
    """Return until when alerts are paused after downtime of Gatebook."""
    return max(
        [
            0,
            *(
                heartbeat.held_us
                for heartbeat in _parse_heartbeats(job_texts)
                if heartbeat.name in _OUTAGE_JOBS
            ),
        ]
    )


def _ago(at_us: int, now_us: int) -> int | None:
    return max(now_us - at_us, 0) if at_us else None


def _parse_heartbeats(job_texts: str) -> list[_Heartbeat]:
    heartbeats = []
    for word in job_texts.split():
        name, heartbeat_us, every_us, held_us, succeeded_us, failed_us, beyond, error = word.split(
            ":"
        )
        times = (int(heartbeat_us), int(every_us), int(held_us), int(succeeded_us), int(failed_us))
        heartbeats.append(_Heartbeat(name, *times, beyond == "1", error))
    return heartbeats
