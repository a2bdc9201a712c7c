"""One run of W1: its own world, an agent that is killed by schedule, and its successors."""

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
]  # arguments: the name of the session, and the choices
MakeAgent = Callable[[Agent], Agent]
_NUMBERS: Final = itertools.count(1)


@dataclass
class RunContext:
    """What all runs on one substrate share.

    `mutate` is a mutant's patch of each new agent. `ask_person` lets a person decide the gate of a
    step.
    """

    name: str
    oracle: Oracle
    clock: Clock
    substrate: MakeSubstrate
    mutate: MakeAgent = lambda agent: agent
    ask_person: Callable[[Substrate, Step], None] = lambda _substrate, _step: None

    def world(self) -> str:
        """Return the name of the next run."""
        return f"w-{os.getpid()}-{next(_NUMBERS)}"


def run(context: RunContext, case: Case, world: str, choices: Choices) -> None:
    """Run one schedule: after each death a new process starts that knows only the substrate."""
    for life in range(1, MOST_LIVES + 1):
        try:
            run_agent_life(context, case, world, choices, life)
            return
        except Killed:
            pass
    raise RuntimeError(f"{world}: more deaths than the schedule has")


def run_killed(run_life: Callable[[Choices, int], None], choices: Choices, name: str) -> None:
    """Run one schedule with real deaths: every life is a process, and a kill is SIGKILL.

    `choices` receives the answers of all lives.
    """
    for life in range(1, MOST_LIVES + 1):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _run_child(run_life, choices, life, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as reports:
            spent = reports.read()  # reads until the child ends
        _, status = os.waitpid(child, 0)
        taken = list(zip(spent[::2], spent[1::2], strict=True))
        choices.taken += taken
        choices.tricks -= sum(options > 2 for _, options in taken)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            raise RuntimeError(f"{name}: a life ended with {status}; {choices.replay}")
        choices.crashes -= 1
    raise RuntimeError(f"{name}: more deaths than the schedule has")


def _run_child(
    run_life: Callable[[Choices, int], None], choices: Choices, life: int, writing: int
) -> None:
    own = _ReportingChoices(
        choices.crashes,
        choices.tricks,
        choices.every,
        choices.line[len(choices.taken) :],
        lambda: os.kill(os.getpid(), signal.SIGKILL),
    )
    own.pipe = writing
    code = 1
    try:
        run_life(own, life)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


class _ReportingChoices(Choices):
    """Choices of a process that dies. Each is reported before it takes effect."""

    pipe = -1

    def _take(self, options: int) -> int:
        answer = super()._take(options)
        os.write(self.pipe, bytes((answer, options)))
        return answer


def run_agent_life(
    context: RunContext, case: Case, world: str, choices: Choices, life: int
) -> None:
    """Run the agent until it is done or killed."""
    remote = Remote(context.oracle, world, choices)
    if life > 1 and case.away_s:
        context.clock.advance_to(context.clock.now_us() + case.away_s * 1_000_000)
        remote.settle(long=True)
    substrate = context.substrate(world, choices)
    asking = partial(context.ask_person, substrate)
    agent = Agent(substrate, remote, choices, context.clock, life, ask_person=asking)
    context.mutate(agent).work([Step("work", "work", case)])
