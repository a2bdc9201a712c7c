"""Schedules: each possible event of a run is a choice, and `explore` walks the tree of choices.

A run calls `tick` at every point where it may be killed and `adversary` at every request to the
remote. `explore` repeats the run with every line of answers: exhaustive, not sampled. The line
of answers replays the run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

ADVERSARY: Final = ("commit", "drop", "late", "lose", "reject")
R = TypeVar("R")


class Killed(BaseException):
    """The process ends. A BaseException, so that no `except Exception` of an agent stops it."""


@dataclass
class Choices:
    """The answers of one run, with at most `crashes` kills and `tricks` chosen requests."""

    crashes: int
    tricks: int
    # Also tick where nothing outside the dying process has changed since the last tick.
    every: bool = True
    line: Sequence[int] = ()  # the first answers; later answers are 0: continue, commit
    kill: Callable[[], None] | None = None  # what a kill does; None raises Killed
    taken: list[tuple[int, int]] = field(default_factory=list)  # answer, out of how many
    events: list[str] = field(default_factory=list)  # the same as text, for the replay line
    ticks: int = 0  # of the current life

    def tick(self, place: str, *, changed: bool = True) -> None:
        """Kill the run if the schedule says so. `changed`: something outside this process changed."""
        if not changed and not self.every:
            return
        self.ticks += 1
        if self.crashes and self._take(2):
            self.crashes -= 1
            self.events.append(f"kill {self.ticks} ({place})")
            self.ticks = 0
            if self.kill is not None:
                self.kill()
            raise Killed

    def adversary(self) -> str:
        """Return what the remote does with the request."""
        if not self.tricks:
            return "commit"
        self.tricks -= 1
        chosen = ADVERSARY[self._take(len(ADVERSARY))]
        self.events.append(chosen)
        return chosen

    def _take(self, options: int) -> int:
        place = len(self.taken)
        answer = self.line[place] if place < len(self.line) else 0
        self.taken.append((answer, options))
        return answer

    @property
    def replay(self) -> str:
        """The line of answers as text, as `--replay` takes it."""
        return "".join(str(answer) for answer, _ in self.taken)


def explore(
    crashes: int, tricks: int, run: Callable[[Choices], R], *, every: bool = True
) -> Iterator[tuple[Choices, R]]:
    """Call `run` once for every line of answers, with at most `crashes` kills and `tricks` requests."""
    line: list[int] = []
    while True:
        choices = Choices(crashes, tricks, every, line)
        yield choices, run(choices)
        taken = list(choices.taken)
        while taken and taken[-1][0] == taken[-1][1] - 1:
            taken.pop()
        if not taken:
            return
        line = [answer for answer, _ in taken[:-1]] + [taken[-1][0] + 1]
