"""W1, the other side: the server falls in the course of every command, at each of four places; the
agent lives on.

The agent asks again under the same key, as the protocol tells it to, and with every kind of work
the oracle's log must stay clean.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from evaluation.crashtest import runner
from evaluation.crashtest.agent_crashes import approving
from evaluation.crashtest.checker import Found
from evaluation.crashtest.domain import Case
from evaluation.crashtest.gatebook import Api, Gatebook
from evaluation.crashtest.remote import Oracle
from evaluation.crashtest.runner import Ground
from evaluation.crashtest.schedules import Choices
from evaluation.crashtest.server import House

PLACES: Final = ("before", "last", "committed", "half")


class _Nth:
    """Lets the server fall in the course of the n-th command of a run."""

    def __init__(self, number: int, place: str, real: bool, only: str) -> None:
        self.number, self.place, self.real, self.only = number, place, real, only
        self.asked = 0
        self.path = ""

    def __call__(self, path: str) -> dict[str, str]:
        if path.startswith("GET") or not path.endswith(self.only):
            return {}
        self.asked += 1
        if self.asked != self.number:
            return {}
        self.path = path
        return {"X-Rig-Tick": self.place, **({"X-Rig-Kill": "real"} if self.real else {})}


def every_command(
    house: House,
    oracle: Oracle,
    cases: Sequence[Case],
    *,
    real: bool = False,
    trick: str = "",
    mutant: str = "",
    only: str = "",
) -> Found:
    """Every case, every command of its run, every place.

    `trick` is what the adversary does with the first request,
    `only` the end of the paths in whose course the server falls.
    """
    found = Found()
    log = oracle.log()
    for case in cases:
        for place in PLACES:
            number = 1
            while True:
                fall = _Nth(number, place, real, only)
                headers = {"X-Rig-Mutant": mutant} if mutant else {}
                api = Api(
                    house.port, house.token, headers, ask_next=fall, raise_again=house.raise_again
                )
                make = partial(_process, api)
                ground = Ground("falls", oracle, house.clock, make, ask_person=approving(house))
                choices = _Tricked(0, 1 if trick else 0)
                choices.trick = trick
                world = ground.world()
                runner.run(ground, case, world, choices)
                if not fall.path:
                    break  # the run ended without reaching its n-th command
                found.judge(
                    log,
                    world,
                    case,
                    f"{case.name} · the server falls {place} in command {number}, {fall.path}",
                )
                number += 1
    log.close()
    return found


def _process(api: Api, world: str, _choices: Choices) -> Gatebook:
    return Gatebook(api, world)


class _Tricked(Choices):
    """The adversary does one thing with the first request."""

    trick = ""

    def adversary(self) -> str:
        chosen, self.trick = self.trick or "commit", ""
        return chosen
