"""W1, one run: a world of its own, an agent that is killed where the schedule says, and the next
process after it."""

import itertools
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from evaluation.crashtest.agent import Agent
from evaluation.crashtest.clock import Clock
from evaluation.crashtest.domain import Case, Step, Substrate
from evaluation.crashtest.remote import Oracle, Remote
from evaluation.crashtest.schedules import Choices, Killed

MOST_LIVES: Final = 6
MakeSubstrate = Callable[
    [str, Choices], Substrate
]  # a new process of the agent, for the session of this name
MakeAgent = Callable[[Agent], Agent]
_NUMBERS: Final = itertools.count(1)


@dataclass
class Ground:
    """What all runs on one substrate share. `mutate` is a mutant's patch of each new agent.

    `ask_person` lets a person answer what a step of a process waits for.
    """

    name: str
    oracle: Oracle
    clock: Clock
    substrate: MakeSubstrate
    mutate: MakeAgent = lambda agent: agent
    ask_person: Callable[[Substrate, Step], None] = lambda _substrate, _step: None

    def world(self) -> str:
        """The name of the next run."""
        return f"w-{os.getpid()}-{next(_NUMBERS)}"


def run(ground: Ground, case: Case, world: str, choices: Choices) -> None:
    """Live as often as it takes: each death is followed by a new process that knows nothing but the
    substrate."""
    for life in range(1, MOST_LIVES + 1):
        try:
            _live(ground, case, world, choices, life)
            return
        except Killed:
            pass
    raise RuntimeError(f"{world}: more deaths than a schedule holds")


def run_killed(
    ground: Ground, case: Case, world: str, line: list[int], crashes: int, tricks: int
) -> None:
    """The same with real deaths: every life is a process of its own, and a kill is SIGKILL."""
    used = 0
    for life in range(1, MOST_LIVES + 1):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _child(ground, case, world, line[used:], crashes, tricks, life, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            spent = told.read()  # ends with the child, however that ends
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            raise RuntimeError(f"{world}: a life ended with {status}")
        used += len(spent)
        tricks -= spent.count(b"a")
        crashes -= 1
    raise RuntimeError(f"{world}: more deaths than a schedule holds")


def _child(
    ground: Ground,
    case: Case,
    world: str,
    line: list[int],
    crashes: int,
    tricks: int,
    life: int,
    writing: int,
) -> None:
    choices = _Telling(
        crashes, tricks, line=line, kill=lambda: os.kill(os.getpid(), signal.SIGKILL)
    )
    choices.pipe = writing
    code = 1
    try:
        _live(ground, case, world, choices, life)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


@dataclass
class _Telling(Choices):
    """Choices of a process that dies: what it asked for is told at once, a byte each."""

    pipe: int = -1

    def _take(self, options: int) -> int:
        os.write(self.pipe, b"t" if options == 2 else b"a")
        return super()._take(options)


def _live(ground: Ground, case: Case, world: str, choices: Choices, life: int) -> None:
    remote = Remote(ground.oracle, world, choices)
    if life > 1 and case.away_s:
        ground.clock.until(ground.clock.now_us() + case.away_s * 1_000_000)
        remote.settle(long=True)
    substrate = ground.substrate(world, choices)
    asking = partial(ground.ask_person, substrate)
    agent = Agent(substrate, remote, choices, ground.clock, life, ask_person=asking)
    ground.mutate(agent).work([Step("work", "work", case)])
