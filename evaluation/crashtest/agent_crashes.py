"""W1: crashes around effects, on every substrate, at every tick."""

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from evaluation.crashtest import runner
from evaluation.crashtest.checker import Findings
from evaluation.crashtest.clock import Clock
from evaluation.crashtest.contention import answer_gate
from evaluation.crashtest.domain import CASES, Case, Step, Substrate
from evaluation.crashtest.file_baseline import Blob
from evaluation.crashtest.gatebook import Api, Gatebook
from evaluation.crashtest.remote import Oracle
from evaluation.crashtest.runner import RunContext
from evaluation.crashtest.schedules import Choices, explore
from evaluation.crashtest.server import Installation

SEED: Final = 20260310
PERSON: Final = "anna"


def crash_by_raising(
    context: RunContext,
    cases: Sequence[Case],
    crashes: int,
    tricks: int,
    *,
    stop_at_first: bool = False,
    every: bool = True,
) -> tuple[Findings, list[str]]:
    """Run every schedule of at most `crashes` kills and `tricks` chosen requests.

    Returns the findings and the replay lines. With `stop_at_first` the search ends at the first
    fault, as a mutant needs only one. Without `every`, ticks before which nothing has changed are
    skipped, because a death there leaves the same world.
    """
    findings, lines = Findings(), []
    for case in cases:
        log = context.oracle.log()

        def run(choices: Choices, case: Case = case) -> str:
            return _run_once(context, case, choices)

        for choices, world in explore(crashes, tricks, run, every=every):
            line = f"{context.name} · {case.name} · {crashes}.{tricks} · {choices.replay or '-'}"
            lines.append(f"{case.name}\t{choices.replay}")
            findings.check_run(
                log, world, case, f"{line} · {', '.join(choices.events) or 'no event'}"
            )
            if stop_at_first and not findings.clean:
                break
        log.close()
    return findings, lines


def crash_by_killing(
    context: RunContext, lines: Iterable[str], crashes: int, tricks: int
) -> Findings:
    """Run the schedules of these replay lines; every life is a process and every kill is SIGKILL."""
    findings, cases = Findings(), {case.name: case for case in CASES}
    log = context.oracle.log()
    for line in lines:
        name, _, answers = line.partition("\t")
        world = context.world()
        live = partial(runner.run_agent_life, context, cases[name], world)
        choices = Choices(crashes, tricks, line=[int(answer) for answer in answers])
        runner.run_killed(live, choices, world)
        findings.check_run(
            log,
            world,
            cases[name],
            f"{context.name} · {name} · {crashes}.{tricks} · {answers} · SIGKILL",
        )
    log.close()
    return findings


def sample_lines(lines: Sequence[str], number: int) -> list[str]:
    """Return a sample of `number` lines, the same for every run."""
    chosen = random.Random(SEED)  # noqa: S311 - repeatable on purpose
    return list(lines) if len(lines) <= number else chosen.sample(list(lines), number)


def _run_once(context: RunContext, case: Case, choices: Choices) -> str:
    world = context.world()
    runner.run(context, case, world, choices)
    return world


@contextmanager
def open_file_context(
    oracle: Oracle, clock: Clock, policy: str, *, in_place: bool = False
) -> Iterator[RunContext]:
    """Yield the context of a baseline: one JSON file per session."""
    name = f"blob, {policy}{', in place' if in_place else ''}"
    with tempfile.TemporaryDirectory(prefix="rig-blob-") as folder:

        def substrate(world: str, choices: Choices) -> Blob:
            return Blob(Path(folder) / f"{world}.json", policy, choices, in_place=in_place)

        yield RunContext(name, oracle, clock, substrate)


def make_gatebook_context(
    oracle: Oracle, installation: Installation, *, mutant: str = ""
) -> RunContext:
    """Return the context of Gatebook on the database of `installation`, with the fault `mutant`."""
    api = Api(
        installation.port,
        installation.token,
        {"X-Rig-Mutant": mutant} if mutant else {},
        restart_server=installation.restart_server,
    )

    def substrate(world: str, _choices: Choices) -> Gatebook:
        return Gatebook(api, world)

    name = f"Gatebook on {installation.vendor}{f', {mutant}' if mutant else ''}"
    return RunContext(
        name, oracle, installation.clock, substrate, ask_person=make_approver(installation)
    )


def make_approver(installation: Installation) -> Callable[[Substrate, Step], None]:
    """Return a function with which a person approves the gate of a step."""
    installation.get_reviewer(PERSON)  # sign in once, before processes fork

    def approve(substrate: Substrate, step: Step) -> None:
        gate = substrate.find_gate(step) if isinstance(substrate, Gatebook) else ""
        if gate:
            answer_gate(installation.get_reviewer(PERSON), gate, "approve")

    return approve
