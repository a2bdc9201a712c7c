"""What the timeline in lanes shows: bars made of facts, what stands beside them, and a window that holds them all."""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from inquiry.clocks import Skew

USUAL: Final = 120  # effects in a window
MINUTE_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """One fact of an effect: when (by the chosen clock), what it did, of which attempt, and its journal position."""

    at_us: int
    what: str
    attempt: int | None
    position: int
    server_us: int
    lane: str
    outcome: str = ""  # of an answer
    agent_us: int | None = None  # by the producer's clock, where it told one


@dataclass(slots=True)
class Bar:
    """One effect with its facts in order. `state` is what people see; `gist` is untrusted text."""

    effect: Any
    steps: list[Step]
    state: str
    gist: str

    @property
    def moves(self) -> list[Step]:
        """Its facts but for those at the end that only ask for it again: what was done stays where it was done."""
        last = max((n for n, step in enumerate(self.steps) if step.what != "planned"), default=0)
        return self.steps[: last + 1]

    @property
    def is_open(self) -> bool:
        """True while what becomes of it has not been told."""
        return self.state in ("planned", "awaiting approval", "dispatched", "unknown")

    @property
    def is_error(self) -> bool:
        """True when it was answered, and the answer was an error."""
        return self.state == "acknowledged" and self.effect.outcome == "error"

    @property
    def lane(self) -> UUID | None:
        """The task it belongs to, or None."""
        task: UUID | None = self.effect.task_id
        return task


@dataclass(frozen=True, slots=True)
class Beside:
    """A fact of the session itself: its lease, checkpoints, handoffs, silence, breaches."""

    at_us: int
    kind: str
    position: int
    facts: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Gap:
    """Numbers that a producer skipped, as far as this window can tell: the first and last missing, and where."""

    source: str
    first: int
    last: int
    at_us: int


@dataclass(slots=True)
class Lanes:
    """A window of a session's timeline. Times are microseconds by `clock`, one of CLOCKS."""

    clock: str
    bars: list[Bar] = field(default_factory=list)  # oldest first
    beside: list[Beside] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    minutes: list[tuple[int, int, int]] = field(default_factory=list)  # when a minute began, beats, progresses
    tasks: dict[UUID, tuple[str, str, str]] = field(default_factory=dict)  # id of a lane -> handle, title, worker
    skews: dict[UUID, Skew] = field(default_factory=dict)  # of sessions, where the corrected clock was asked for
    across: bool = False  # effects of several sessions: a lane for each session, not for each task
    older: int | None = None
    newer: int | None = None
    size: int = USUAL
    cut: bool = False  # more facts than are read
    now_us: int = 0
    upto: int | None = None  # the position as of which it is told; None for now

    @property
    def is_newest(self) -> bool:
        """True when the window ends with the present."""
        return self.newer is None

    def lane_of(self, bar: Bar) -> UUID | None:
        """The lane that a bar stands in."""
        return bar.effect.session_id if self.across else bar.lane

    @property
    def told(self) -> bool:
        """True when the first fact of any bar carries its producer's time."""
        return any(bar.steps[0].agent_us is not None for bar in self.bars)

    @property
    def facts(self) -> int:
        """How many facts the bars show."""
        return sum(len(bar.steps) for bar in self.bars)
