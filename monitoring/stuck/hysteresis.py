"""Hysteresis of stuck rules: two evaluations in a row raise, one negative clears. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

US: Final = 1_000_000
GRACE_S: Final = 60  # a longer silence of the sweeper counts as an outage of Gatebook
PAUSE_S: Final = 120  # nothing is raised this long after an outage, so that agents can reconnect
EpisodeStep = Literal["", "see", "raise", "clear", "forget"]


@dataclass(frozen=True, slots=True)
class EpisodeState:
    """A rule that is true for a subject: the evaluation that saw it first, and whether raised."""

    seen: int
    raised: bool


def next_step(
    episode: EpisodeState | None, *, holds: bool, evaluation: int, is_paused: bool = False
) -> EpisodeStep:
    """Return the step of evaluation number `evaluation`; `is_paused` suppresses raising.

    An episode whose rule is no longer true is cleared or forgotten at once. So an unraised episode
    that still exists was also true in the previous evaluation.
    """
    if episode is None:
        return "see" if holds else ""
    if not holds:
        return "clear" if episode.raised else "forget"
    if episode.raised or is_paused or evaluation <= episode.seen:
        return ""
    return "raise"


def is_outage(heartbeat_us: int | None, every_us: int, now_us: int) -> bool:
    """Return whether a job was silent longer than the grace and three usual intervals.

    `every_us` is its previous interval: a sweep that cron starts every ten minutes is not late
    after nine.
    """
    if heartbeat_us is None:
        return False
    return now_us - heartbeat_us > max(GRACE_S * US, 3 * every_us)
