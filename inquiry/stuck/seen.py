"""What the rules of stuck sessions know of one: plain rows, times in microseconds of the server's clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """A session's lease; times in microseconds of the server's clock, deadlines as they were computed at the write."""

    epoch: int
    process: str
    beat_at_us: int
    progress_at_us: int
    expires_at_us: int
    dead_at_us: int
    wedged_at_us: int
    quiet_until_us: int | None = None
    released_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class EffectSeen:
    """An effect that was dispatched and not answered; or answered by nobody knows."""

    id: UUID
    name: str
    tool: str
    deadline_us: int | None
    dispatched_us: int | None = None
    answered_unknown: bool = False


@dataclass(frozen=True, slots=True)
class GateSeen:
    """A request that waits for people."""

    id: UUID
    name: str
    tool: str
    requested_at_us: int
    decide_by_us: int
    whose: str = ""


@dataclass(frozen=True, slots=True)
class HandoffSeen:
    """The latest handoff, if nobody has accepted it."""

    id: UUID
    name: str
    written_at_us: int
    accept_by_us: int


@dataclass(frozen=True, slots=True)
class Loop:
    """What repeats itself: `calls` equal calls with equal results in a row, `attempts` at one effect, or beats."""

    effect: UUID | None = None
    name: str = ""
    tool: str = ""
    calls: int = 0
    attempts: int = 0
    beats: int = 0  # in the last quarter of an hour, with one and the same progress token
    since_us: int = 0


@dataclass(frozen=True, slots=True)
class Fenced:
    """Entries that a stale epoch sent lately."""

    epoch: int
    count: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What the rules know of one session."""

    id: UUID
    mode: str = "leased"
    status: str = "running"
    created_at_us: int = 0
    start_by_us: int | None = None
    lease: LeaseSeen | None = None
    gates: Sequence[GateSeen] = ()
    effects: Sequence[EffectSeen] = ()
    handoff: HandoffSeen | None = None
    loop: Loop | None = None
    fenced: Fenced | None = None
    stopped: bool = False  # by a person: then it cannot move, and is not to be blamed for it
    helped: bool = False  # somebody holds the lease on a task of it

    @property
    def epoch(self) -> int:
        """The lease's, 0 without one."""
        return self.lease.epoch if self.lease is not None else 0
