"""Our own jobs record when they ran and how the run ended; an app above stores it.

A job that goes silent, or always fails, is shown on every page and by /readyz.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import structlog

log = structlog.get_logger("gatebook.chores")


class Job(NamedTuple):
    """A periodic job: its label, its usual interval, and whether pages show it also while it does well."""

    label: str
    every_us: int
    always_shown: bool = False


_SECOND_US: Final = 1_000_000
CHORES: Final = {
    "sweeper": Job("Sweeper", 5 * _SECOND_US, always_shown=True),
    "outbox": Job("Outbox", 5 * _SECOND_US, always_shown=True),
    "waker": Job("Waker", 5 * _SECOND_US, always_shown=True),
    "words": Job("Words", 3 * _SECOND_US, always_shown=True),
    "alerts": Job("Alerts", 60 * _SECOND_US, always_shown=True),
    "notices": Job("Notices", 5 * _SECOND_US),
    "gates": Job("Deadlines", 5 * _SECOND_US),
    "exports": Job("Exports", 5 * _SECOND_US),
    "pruning": Job("Pruning", 3_600 * _SECOND_US),
}
# whose absence is an outage of our own: nobody looked, or nobody could beat
_HOLDING: Final = (
    "sweeper",
    "waker",
)
# silent for longer than this, and than three of its usual intervals, it is late
LATE_US: Final = 60_000_000
CLOCK: Final = "clock"  # not a job: the row that records how far the wall clock was set back
CLOCK_STEP_US: Final = 5_000_000  # clocks of several machines differ by less

Ended = Callable[[str, BaseException | None], object]
_keepers: list[Callable[[str], object]] = []
_enders: list[Ended] = []


class Lateness(NamedTuple):
    """How a job stands. `ago_us` is the time since its last run; each time is None where there was none.

    `ahead_us` is more than 0 where its last run lies in the future: the wall clock was set back since.
    """

    name: str
    word: str
    ago_us: int | None
    late: bool
    succeeded_ago_us: int | None = None
    failed_ago_us: int | None = None
    error: str = ""
    ahead_us: int = 0

    @property
    def failing(self) -> bool:
        """Whether the last run that ended failed."""
        return bool(self.error)

    @property
    def in_trouble(self) -> bool:
        """Whether an operator should look."""
        return self.late or self.failing or bool(self.ahead_us)

    @property
    def is_shown(self) -> bool:
        """Whether the foot of a page shows it."""
        return self.ago_us is not None and (CHORES[self.name].always_shown or self.in_trouble)


class ClockStep(NamedTuple):
    """A backward step of the wall clock: how far, how long ago, and until it reads again what it read before."""

    by_us: int
    ago_us: int
    left_us: int


class _Pulse(NamedTuple):
    name: str
    beat_us: int
    every_us: int
    held_us: int
    succeeded_us: int
    failed_us: int
    error: str


def keep(keeper: Callable[[str], object], ender: Ended | None = None) -> None:
    """Let `keeper` have every beat, by the job's name, and `ender` how each run ended."""
    if keeper not in _keepers:
        _keepers.append(keeper)
    if ender is not None and ender not in _enders:
        _enders.append(ender)


def beat(name: str) -> None:
    """Record that the job runs. A failure to store that does not stop the job."""
    for keeper in _keepers:
        try:
            keeper(name)
        except Exception as error:  # the pulse that is missing says the rest
            log.warning("pulse_lost", chore=name, error=f"{type(error).__name__}: {error}"[:200])


@contextmanager
def watched(name: str) -> Iterator[None]:
    """Record how the job's run inside ended. Also a decorator. What the job raises passes through."""
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
        except Exception as lost:  # a failure to store it must not hide the job's own
            log.warning("pulse_lost", chore=name, error=f"{type(lost).__name__}: {lost}"[:200])


def lateness(pulses: str, now_us: int) -> list[Lateness]:
    """How each job stands, from the words that `inquiry/stuck/pulses.py` writes for one statement to read."""
    heartbeats = {heartbeat.name: heartbeat for heartbeat in _read(pulses)}
    states = []
    for name, job in CHORES.items():
        pulse = heartbeats.get(name)
        if pulse is None:
            states.append(Lateness(name, job.label, None, late=False))
            continue
        # A job that fails runs and does nothing: only what it achieved counts.
        achieved_us = pulse.succeeded_us if pulse.error else pulse.beat_us
        late = now_us - achieved_us > max(LATE_US, 3 * max(pulse.every_us, job.every_us))
        ahead_us = pulse.beat_us - now_us
        states.append(
            Lateness(
                name,
                job.label,
                _ago(pulse.beat_us, now_us) or 0,
                late,
                _ago(pulse.succeeded_us, now_us),
                _ago(pulse.failed_us, now_us),
                pulse.error,
                ahead_us if ahead_us > CLOCK_STEP_US else 0,
            )
        )
    return states


def clock_step(pulses: str, now_us: int) -> ClockStep | None:
    """The last backward step of the wall clock, until the clock reads again what it read before the step."""
    for heartbeat in _read(pulses):
        if heartbeat.name == CLOCK and now_us < heartbeat.beat_us + heartbeat.every_us:
            return ClockStep(
                heartbeat.every_us,
                max(now_us - heartbeat.beat_us, 0),
                heartbeat.beat_us + heartbeat.every_us - now_us,
            )
    return None


def held_until(pulses: str) -> int:
    """Until when alarms are held after an outage of our own; a moment that has passed where they are not."""
    return max(
        [0, *(heartbeat.held_us for heartbeat in _read(pulses) if heartbeat.name in _HOLDING)]
    )


def _ago(at_us: int, now_us: int) -> int | None:
    return max(now_us - at_us, 0) if at_us else None


def _read(pulses: str) -> list[_Pulse]:
    heartbeats = []
    for word in pulses.split():
        name, beat_us, every_us, held_us, succeeded_us, failed_us, error = word.split(":")
        times = (int(beat_us), int(every_us), int(held_us), int(succeeded_us), int(failed_us))
        heartbeats.append(_Pulse(name, *times, error))
    return heartbeats
