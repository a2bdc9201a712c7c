"""W1 with server crashes: during every command, at each of four places. The agent survives.

The agent retries with the same key, as the protocol requires. The oracle's log must stay clean for
every kind of work.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from evaluation.crashtest import runner
from evaluation.crashtest.agent_crashes import make_approver
from evaluation.crashtest.checker import Findings
from evaluation.crashtest.domain import Case
from evaluation.crashtest.gatebook import Api, Gatebook
from evaluation.crashtest.remote import Oracle
from evaluation.crashtest.runner import RunContext
from evaluation.crashtest.schedules import Choices
from evaluation.crashtest.server import Installation

PLACES: Final = ("before", "last", "committed", "half")


class _CrashAtCommand:
    """Crashes the server during the n-th command of a run."""

    def __init__(self, number: int, place: str, real: bool, only: str) -> None:
        self.number, self.place, self.real, self.only = number, place, real, only
        self.commands = 0
        self.path = ""

    def __call__(self, path: str) -> dict[str, str]:
        if path.startswith("GET") or not path.endswith(self.only):
            return {}
        self.commands += 1
        if self.commands != self.number:
            return {}
        self.path = path
        return {"X-Rig-Tick": self.place, **({"X-Rig-Kill": "real"} if self.real else {})}


def crash_at_every_command(
    installation: Installation,
    oracle: Oracle,
    cases: Sequence[Case],
    *,
    real: bool = False,
    trick: str = "",
    mutant: str = "",
    only: str = "",
) -> Findings:
    """Crash the server at every place of every command of every case.

    `trick` is what the adversary does with the first request. With `only` the server crashes only
    during commands whose path ends so.
    """
    findings = Findings()
    log = oracle.log()
    for case in cases:
        for place in PLACES:
            number = 1
            while True:
                crash = _CrashAtCommand(number, place, real, only)
                headers = {"X-Rig-Mutant": mutant} if mutant else {}
                api = Api(
                    installation.port,
                    installation.token,
                    headers,
                    ask_next=crash,
                    restart_server=installation.restart_server,
                )
                make = partial(_make_substrate, api)
                context = RunContext(
                    "server crashes",
                    oracle,
                    installation.clock,
                    make,
                    ask_person=make_approver(installation),
                )
                choices = _FirstRequestTricked(0, 1 if trick else 0)
                choices.trick = trick
                world = context.world()
                runner.run(context, case, world, choices)
                if not crash.path:
                    break  # the run ended without reaching its n-th command
                findings.check_run(
                    log,
                    world,
                    case,
                    f"{case.name} · the server crashes {place} in command {number}, {crash.path}",
                )
                number += 1
    log.close()
    return findings


def _make_substrate(api: Api, world: str, _choices: Choices) -> Gatebook:
    return Gatebook(api, world)


class _FirstRequestTricked(Choices):
    """Choices that apply one trick to the first request."""

    trick = ""

    def adversary(self) -> str:
        chosen, self.trick = self.trick or "commit", ""
        return chosen
