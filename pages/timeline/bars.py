"""Data of the lanes timeline: bars of entries, session events, and their window."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from display.effect_runs import RunTimes
from pages.timeline.clock_skew import Skew

DEFAULT_SIZE: Final = 120  # effects in a window
MINUTE_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """An entry of an effect: `at_us` by the chosen clock, `what` its kind."""

    at_us: int
    what: str
    attempt: int | None
    position: int
    server_us: int
    lane: str
    outcome: str = ""  # of an acknowledgement
    agent_us: int | None = None  # by the agent's clock, if it sent a time


@dataclass(slots=True)
class Bar:
    """An effect with its entries; `state` is as shown, `gist` is untrusted text."""

    effect: Any
    steps: list[Step]
    state: str
    gist: str
    run: RunTimes | None = None  # None for past moments, for which it is not read

    @property
    def starts_us(self) -> int:
        """Return the time of the first entry."""
        return self.steps[0].at_us

    @property
    def process(self) -> str:
        """Return the worker of its last attempt, or empty."""
        return self.run.process if self.run is not None else ""

    @property
    def moves(self) -> list[Step]:
        """Return the steps without repeated plans at the end."""
        last = max((n for n, step in enumerate(self.steps) if step.what != "planned"), default=0)
        return self.steps[: last + 1]

    @property
    def is_open(self) -> bool:
        """Return True while the outcome is not reported."""
        return self.state in ("planned", "awaiting approval", "dispatched", "unknown")

    @property
    def is_error(self) -> bool:
        """Return True if it was acknowledged with outcome error."""
        return self.state == "acknowledged" and self.effect.outcome == "error"

    @property
    def lane(self) -> UUID | None:
        """Return the task of the effect, or None."""
        task: UUID | None = self.effect.task_id
        return task


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """An event of the session: lease, checkpoint, handoff, silence or violation."""

    at_us: int
    kind: str
    position: int
    facts: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """Sequence numbers that a producer skipped here: first and last, and where."""

    source: str
    first: int
    last: int
    at_us: int


@dataclass(slots=True)
class TimelineWindow:
    """A window of a timeline. Times are microseconds by `clock`, one of `clock_skew.CLOCKS`."""

    clock: str
    bars: list[Bar] = field(default_factory=list)  # oldest first
    session_events: list[SessionEvent] = field(default_factory=list)
    gaps: list[SequenceGap] = field(default_factory=list)
    # (start of the minute, heartbeats, progress reports).
    minutes: list[tuple[int, int, int]] = field(default_factory=list)
    # Lane id -> handle, title, worker.
    tasks: dict[UUID, tuple[str, str, str]] = field(default_factory=dict)
    # By session, when the corrected clock was requested.
    skews: dict[UUID, Skew] = field(default_factory=dict)
    reported_late: int = 0  # effects that an agent reported long after they ran
    across: bool = False  # effects of several sessions: one lane per session instead of per task
    by: str = "task"  # what a lane is, one of LANE_KINDS
    whole_us: tuple[int, int] | None = None  # of the session, if more of it is not in the window
    older: int | None = None
    newer: int | None = None
    size: int = DEFAULT_SIZE
    cut: bool = False  # there are more entries than are read
    now_us: int = 0
    upto: int | None = None  # the position that the window is as of; None for now

    @property
    def is_newest(self) -> bool:
        """Return True if the window ends with the present."""
        return self.newer is None

    def lane_of(self, bar: Bar) -> Any:
        """Return the lane of a bar: its session, task, tool or worker."""
        if self.across:
            return bar.effect.session_id
        return {"tool": bar.effect.tool, "worker": bar.process}.get(self.by, bar.lane)

    def describe_lane(self, key: Any) -> tuple[str, str, str]:
        """Return handle, title and worker of the lane `key`; text of agents."""
        if self.by == "tool" and not self.across:
            return "", key or "plan not arrived", ""
        if self.by == "worker" and not self.across:
            return "", key or "not run yet", ""
        return self.tasks.get(key, ("", "no task", "")) if key is not None else ("", "no task", "")

    @property
    def has_agent_time(self) -> bool:
        """Return True if the first entry of any bar has an agent time."""
        return any(bar.steps[0].agent_us is not None for bar in self.bars)

    @property
    def facts(self) -> int:
        """Return the number of entries in the bars."""
        return sum(len(bar.steps) for bar in self.bars)


SESSION_EVENT_KINDS: Final = frozenset(
    {
        "lease.acquired",
        "lease.released",
        "lease.lost",
        "session.silent",
        "session.silence_ended",
        "session.resumed",
        "session.started",
        "session.ended",
        "session.stuck",
        "session.recovered",
        "checkpoint.written",
        "handoff.written",
        "handoff.accepted",
        "artifact.recorded",
        "control.fired",
        "integrity.violation",
        "integrity.fenced",
        "integrity.conflict",
        "decision.recorded",
        "decision.concluded",
        "message.sent",
        "session.branched",
        "session.merged",
    }
)

# Kinds that only Gatebook records: an agent's report of the same kind is not shown as an event.
GATEBOOK_ONLY_KINDS: Final = frozenset(
    {
        "lease.acquired",
        "lease.released",
        "lease.lost",
        "session.silent",
        "session.silence_ended",
        "session.resumed",
        "session.stuck",
        "session.recovered",
        "control.fired",
        "integrity.violation",
        "integrity.fenced",
        "integrity.conflict",
    }
)

# Leases are drawn for one session only; with several sessions, other events are marked.
MULTI_SESSION_EVENT_KINDS: Final = frozenset(
    kind
    for kind in SESSION_EVENT_KINDS
    if not kind.startswith("lease.") and kind not in ("session.silent", "session.silence_ended")
)

# What a lane is -> its words.
LANE_KINDS: Final = {"task": "By task", "tool": "By tool", "worker": "By worker"}
FOLD_LABELS: Final = {"tool": "Same tool", "same": "Same call", "none": "Nothing"}


@dataclass(slots=True)
class BarGroup:
    """Consecutive equal effects of a lane; `unfolded` if expanded by its link."""

    bars: list[Bar]
    unfolded: bool = False

    @property
    def first(self) -> Bar:
        return self.bars[0]

    @property
    def last(self) -> Bar:
        return self.bars[-1]

    @property
    def calls(self) -> int:
        """Count different calls by intent; a call without a plan counts as its own."""
        return len({bar.effect.intent_digest or bar.effect.id for bar in self.bars})


def parse_fold(text: str, otherwise: str = "tool") -> str:
    """Return the folding, a key of FOLD_LABELS; `otherwise` if `text` is unknown."""
    return text if text in FOLD_LABELS else otherwise


def group_bars(lanes: TimelineWindow, by: str = "tool", unfold: str = "") -> list[BarGroup]:
    """Return the bars newest first, grouped by lane, tool and state.

    With `same` also by intent.

    The group that begins with the effect whose handle is `unfold` is expanded.
    """

    def alike(bar: Bar) -> tuple[Any, ...]:
        effect = bar.effect
        key = (lanes.lane_of(bar), effect.tool, bar.state, effect.outcome, effect.violates)
        if by == "none":
            return (effect.id,)
        return (*key, effect.intent_digest or effect.id) if by == "same" else key

    result: list[BarGroup] = []
    for _, run in groupby(reversed(lanes.bars), key=alike):
        run_bars: Sequence[Bar] = list(run)[::-1]
        if unfold and len(run_bars) > 1 and str(run_bars[0].effect) == unfold:
            result += [BarGroup([bar], unfolded=True) for bar in reversed(run_bars)]
        else:
            result.append(BarGroup(list(run_bars)))
    return result
