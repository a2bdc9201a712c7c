"""What an evaluation makes of a rule: two in a row raise it, one sign of progress clears it. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

US: Final = 1_000_000
GRACE_S: Final = 60  # how long the sweeper may be away before its absence counts as an outage of our own
HOLD_S: Final = 120  # how long alarms are then held: agents need the time to come back
Step = Literal["", "see", "raise", "clear", "forget"]


@dataclass(frozen=True, slots=True)
class Episode:
    """A rule that was seen to hold for a subject: in which evaluation first, and whether it was raised."""

    seen: int
    raised: bool


def follow(episode: Episode | None, *, holds: bool, evaluation: int, held: bool = False) -> Step:
    """The step that evaluation number `evaluation` takes; `held` keeps it from raising anything.

    An episode that did not hold is forgotten or cleared at once. So one that is still there, unraised, held in the
    evaluation before this.
    """
    if episode is None:
        return "see" if holds else ""
    if not holds:
        return "clear" if episode.raised else "forget"
    if episode.raised or held or evaluation <= episode.seen:
        return ""
    return "raise"


def outage(beat_us: int | None, every_us: int, now_us: int) -> bool:
    """True when we ourselves were away: silent for longer than the grace, and than three of the usual intervals.

    `every_us` is what the intervals were before: a sweep that cron starts every ten minutes was not away for nine.
    """
    if beat_us is None:
        return False
    return now_us - beat_us > max(GRACE_S * US, 3 * every_us)
