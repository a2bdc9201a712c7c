"""Our own chores say that they run: whoever keeps their pulse, in a room above, is told of every beat.

A chore that goes silent is shown on every page and by /readyz; nobody else would notice.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

log = structlog.get_logger("gatebook.chores")

CHORES: Final = {"sweeper": "Sweeper", "outbox": "Outbox", "waker": "Waker", "words": "Words", "alerts": "Alerts"}
_HOLDING: Final = ("sweeper", "waker")  # whose absence is an outage of our own: nobody looked, or nobody could beat
LATE_US: Final = 60_000_000  # silent for longer than this, and than three of its usual intervals, it is late

_keepers: list[Callable[[str], object]] = []


class Lateness(NamedTuple):
    """How long ago a chore last ran; `ago_us` is None where it never has."""

    name: str
    word: str
    ago_us: int | None
    late: bool


def keep(keeper: Callable[[str], object]) -> None:
    """Let `keeper` have every beat, by the name of the chore; a room above does so when it is made ready."""
    if keeper not in _keepers:
        _keepers.append(keeper)


def beat(name: str) -> None:
    """Say that the chore runs. What goes wrong in keeping that must not keep the chore from its work."""
    for keeper in _keepers:
        try:
            keeper(name)
        except Exception as error:  # the pulse that is missing says the rest
            log.warning("pulse_lost", chore=name, error=f"{type(error).__name__}: {error}"[:200])


def lateness(pulses: str, now_us: int) -> list[Lateness]:
    """How each chore stands, of `name:beat_us:every_us:held_us` words: what one statement can read beside others."""
    known = {name: (int(beat_us), int(every_us)) for name, beat_us, every_us, _held_us in _words(pulses)}
    found = []
    for name, word in CHORES.items():
        beat_us, every_us = known.get(name, (None, 0))
        late = beat_us is not None and now_us - beat_us > max(LATE_US, 3 * every_us)
        found.append(Lateness(name, word, None if beat_us is None else max(now_us - beat_us, 0), late))
    return found


def held_until(pulses: str) -> int:
    """Until when alarms are held after an outage of our own; a moment that has passed where they are not."""
    return max([0, *(int(held_us) for name, _beat_us, _every_us, held_us in _words(pulses) if name in _HOLDING)])


def _words(pulses: str) -> list[list[str]]:
    return [one.split(":") for one in pulses.split()]
