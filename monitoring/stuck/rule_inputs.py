"""Inputs of the stuck rules as plain rows. Times are microseconds of the server's clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class LeaseInput:
    """A session's lease. Deadlines are as computed when the lease was written."""

    epoch: int
    process: str
    heartbeat_at_us: int
    progress_at_us: int
    expires_at_us: int
    dead_at_us: int
    wedged_at_us: int
    quiet_until_us: int | None = None
    released_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class EffectInput:
    """A dispatched effect without an answer, or one answered as unknown."""

    id: UUID
    name: str
    tool: str
    deadline_us: int | None
    dispatched_us: int | None = None
    answered_unknown: bool = False


@dataclass(frozen=True, slots=True)
class GateInput:
    """A pending gate."""

    id: UUID
    name: str
    tool: str
    requested_at_us: int
    decide_by_us: int
    whose: str = ""


@dataclass(frozen=True, slots=True)
class HandoffInput:
    """The latest handoff if not accepted."""

    id: UUID
    name: str
    written_at_us: int
    accept_by_us: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: equal calls with equal results in a row, attempts at one effect, or heartbeats."""

    effect: UUID | None = None
    name: str = ""
    tool: str = ""
    calls: int = 0
    ending: str = ""  # of each call: outcome or reason of the failure
    attempts: int = 0
    heartbeats: int = 0  # in the last 15 minutes, with one progress token
    since_us: int = 0


@dataclass(frozen=True, slots=True)
class FencedWrites:
    """Recent entries written under a stale epoch."""

    epoch: int
    count: int
    last_us: int


@dataclass(frozen=True, slots=True)
class RuleInput:
    """The rule inputs of one session."""

    id: UUID
    mode: str = "leased"
    status: str = "running"
    created_at_us: int = 0
    start_by_us: int | None = None
    lease: LeaseInput | None = None
    gates: Sequence[GateInput] = ()
    effects: Sequence[EffectInput] = ()
    handoff: HandoffInput | None = None
    loop: Loop | None = None
    fenced: FencedWrites | None = None
    stopped: bool = False  # by a person: the session cannot progress
    helped: bool = False  # a worker holds the lease of one of its tasks

    @property
    def epoch(self) -> int:
        """The lease's epoch, 0 without a lease."""
        return self.lease.epoch if self.lease is not None else 0
