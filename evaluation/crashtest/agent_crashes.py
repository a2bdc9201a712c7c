"""W1: crashes around effects, on every substrate, exhaustively by ticks."""

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from evaluation.crashtest import runner
from evaluation.crashtest.checker import Found
from evaluation.crashtest.clock import Clock
from evaluation.crashtest.contention import answer
from evaluation.crashtest.domain import CASES, Case, Step, Substrate
from evaluation.crashtest.file_baseline import Blob
from evaluation.crashtest.gatebook import Api, Gatebook
from evaluation.crashtest.remote import Oracle
from evaluation.crashtest.runner import Ground
from evaluation.crashtest.schedules import Choices, explore
from evaluation.crashtest.server import House

SEED: Final = 20260310
PERSON: Final = "anna"


def by_raising(
    ground: Ground,
    cases: Sequence[Case],
    crashes: int,
    tricks: int,
    *,
    to_the_first: bool = False,
    every: bool = True,
) -> tuple[Found, list[str]]:
    """Every schedule of at most so many kills and chosen requests. Returns what was found, and the
    replay lines.

    With `to_the_first` it ends with the first fault: a mutant needs no more. Without `every` no
    death is tried before which nothing has changed since the last: it would leave the same world
    behind.
    """
    found, lines = Found(), []
    for case in cases:
        log = ground.oracle.log()

        def run(choices: Choices, case: Case = case) -> str:
            return _one(ground, case, choices)

        for choices, world in explore(crashes, tricks, run, every=every):
            line = f"{ground.name} · {case.name} · {crashes}.{tricks} · {choices.replay or '-'}"
            lines.append(f"{case.name}\t{choices.replay}")
            found.judge(
                log, world, case, f"{line} · {', '.join(choices.told) or 'nothing happens'}"
            )
            if to_the_first and not found.clean:
                break
        log.close()
    return found, lines


def by_killing(ground: Ground, lines: Iterable[str], crashes: int, tricks: int) -> Found:
    """The schedules of these replay lines again, every life a process of its own and every kill
    SIGKILL."""
    found, known = Found(), {case.name: case for case in CASES}
    log = ground.oracle.log()
    for line in lines:
        name, _, answers = line.partition("\t")
        world = ground.world()
        runner.run_killed(
            ground, known[name], world, [int(answer) for answer in answers], crashes, tricks
        )
        found.judge(
            log,
            world,
            known[name],
            f"{ground.name} · {name} · {crashes}.{tricks} · {answers} · SIGKILL",
        )
    log.close()
    return found


def seeded(lines: Sequence[str], number: int) -> list[str]:
    """So many of them, the same ones every time."""
    chosen = random.Random(SEED)  # noqa: S311 - repeatable on purpose
    return list(lines) if len(lines) <= number else chosen.sample(list(lines), number)


def _one(ground: Ground, case: Case, choices: Choices) -> str:
    world = ground.world()
    runner.run(ground, case, world, choices)
    return world


@contextmanager
def blobs(oracle: Oracle, clock: Clock, policy: str, *, in_place: bool = False) -> Iterator[Ground]:
    """The baseline: one JSON file per session."""
    name = f"blob, {policy}{', in place' if in_place else ''}"
    with tempfile.TemporaryDirectory(prefix="rig-blob-") as folder:

        def substrate(world: str, choices: Choices) -> Blob:
            return Blob(Path(folder) / f"{world}.json", policy, choices, in_place=in_place)

        yield Ground(name, oracle, clock, substrate)


def gatebook(oracle: Oracle, house: House, *, mutant: str = "") -> Ground:
    """Gatebook on the database of `house`, with a fault in its server where `mutant` names one."""
    api = Api(
        house.port,
        house.token,
        {"X-Rig-Mutant": mutant} if mutant else {},
        raise_again=house.raise_again,
    )

    def substrate(world: str, _choices: Choices) -> Gatebook:
        return Gatebook(api, world)

    name = f"Gatebook on {house.vendor}{f', {mutant}' if mutant else ''}"
    return Ground(name, oracle, house.clock, substrate, ask_person=approving(house))


def approving(house: House) -> Callable[[Substrate, Step], None]:
    """A person who says yes to whatever a step waits for."""
    house.person(PERSON)  # signed in once, and not by every process anew

    def approve(substrate: Substrate, step: Step) -> None:
        gate = substrate.gate(step) if isinstance(substrate, Gatebook) else ""
        if gate:
            answer(house.person(PERSON), gate, "approve")

    return approve
