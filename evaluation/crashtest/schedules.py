"""Every schedule, one after another: what may happen at each step of a run is a choice, and the
tree of them is walked.

A run asks `tick` at every point where it may be killed and `adversary` at every request of the
remote. `explore` runs again and again, each time with another line of answers, until none is left:
exhaustive, not sampled. The line of answers replays the run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

ADVERSARY: Final = ("commit", "drop", "late", "lose", "reject")
R = TypeVar("R")


class Killed(BaseException):
    """The process ends here. No `except Exception` of an agent may hold it up, as none could hold
    up SIGKILL."""


@dataclass
class Choices:
    """The answers of one run. `crashes` and `tricks` are how many kills, and how many chosen
    requests, it may have."""

    crashes: int
    tricks: int
    # also those ticks since whose last one nothing changed anywhere but in the process that dies
    every: bool = True
    line: Sequence[int] = ()  # the answers to give first; after them always 0: go on, commit
    kill: Callable[[], None] | None = None  # what a kill does; None raises Killed
    taken: list[tuple[int, int]] = field(default_factory=list)  # answer, out of how many
    told: list[str] = field(default_factory=list)  # the same in words
    ticks: int = 0  # of the present life
    lives: int = 1

    def tick(self, place: str, *, changed: bool = True) -> None:
        """A place where the run may be killed; `changed` when anything did, outside this process,
        since the last."""
        if not changed and not self.every:
            return
        self.ticks += 1
        if self.crashes and self._take(2):
            self.crashes -= 1
            self.told.append(f"kill {self.ticks} ({place})")
            self.ticks = 0
            self.lives += 1
            if self.kill is not None:
                self.kill()
            raise Killed

    def adversary(self) -> str:
        """What the remote does with the request that it got."""
        if not self.tricks:
            return "commit"
        self.tricks -= 1
        chosen = ADVERSARY[self._take(len(ADVERSARY))]
        self.told.append(chosen)
        return chosen

    def _take(self, options: int) -> int:
        place = len(self.taken)
        answer = self.line[place] if place < len(self.line) else 0
        self.taken.append((answer, options))
        return answer

    @property
    def replay(self) -> str:
        """The line of answers as text: what `--replay` takes."""
        return "".join(str(answer) for answer, _ in self.taken)


def explore(
    crashes: int, tricks: int, run: Callable[[Choices], R], *, every: bool = True
) -> Iterator[tuple[Choices, R]]:
    """Do `run` once for every line of answers that it can ask for, with at most so many kills and
    chosen requests."""
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
