"""The parts of the evaluation, as the command line, the tiers and the tests call them. Each returns
plain figures."""

import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from evaluation.crashtest import (
    agent_crashes,
    client_runs,
    contention,
    delivery_orders,
    interleavings,
    server_crashes,
)
from evaluation.crashtest.checker import Found
from evaluation.crashtest.clock import Clock
from evaluation.crashtest.domain import CASES, Case
from evaluation.crashtest.file_baseline import POLICIES
from evaluation.crashtest.gatebook import Api
from evaluation.crashtest.interleavings import Connection, Postgres, Sqlite, Tasks
from evaluation.crashtest.mutants import Suite
from evaluation.crashtest.remote import Oracle
from evaluation.crashtest.server import House

SEEDED: Final = 300
Figures = dict[str, Any]


def baselines(
    oracle: Oracle,
    clock: Clock,
    *,
    cases: Sequence[Case] = CASES,
    crashed: int = 1,
    every: bool = True,
) -> Figures:
    """W1 on the session files."""
    told: Figures = {}
    for policy in POLICIES:
        for in_place in (False, True) if policy == "replay" else (False,):
            with agent_crashes.blobs(oracle, clock, policy, in_place=in_place) as ground:
                found, _ = agent_crashes.by_raising(ground, cases, crashed, 1, every=every)
            told[ground.name] = found.as_dict()
            _say(ground.name, found)
    return told


def crashes_by_raising(
    house: House, oracle: Oracle, *, depth: int, tricks: int = 1, cases: Sequence[Case] = CASES
) -> tuple[Figures, list[str]]:
    """W1 on Gatebook: every schedule of so many kills, and its replay lines."""
    ground = agent_crashes.gatebook(oracle, house)
    found, lines = agent_crashes.by_raising(ground, cases, depth, tricks)
    _say(f"{ground.name}, depth {depth}, by raising", found)
    return found.as_dict(), lines


def crashes_by_killing(
    house: House, oracle: Oracle, lines: Sequence[str], *, depth: int
) -> Figures:
    """The same schedules with SIGKILL; of depth 2 so many as SEEDED says."""
    ground = agent_crashes.gatebook(oracle, house)
    chosen = lines if depth == 1 else agent_crashes.seeded(lines, SEEDED)
    found = agent_crashes.by_killing(ground, chosen, depth, 1)
    _say(f"{ground.name}, depth {depth}, by SIGKILL", found)
    return found.as_dict()


def the_client(house: House, oracle: Oracle, *, cases: Sequence[Case] = CASES) -> Figures:
    """W1 with the agents' own client, depth 1, by SIGKILL."""
    found = client_runs.by_killing(house, oracle, cases)
    _say(f"the client on {house.vendor}, by SIGKILL", found)
    return found.as_dict()


def server_falls(
    house: House, oracle: Oracle, *, cases: Sequence[Case] = CASES, real: bool = False
) -> Figures:
    """W1, the ticks of the server: four places of every command; all goes well, or the remote's
    answer is lost."""
    told: Figures = {}
    for trick in ("", "lose"):
        found = server_crashes.every_command(house, oracle, cases, real=real, trick=trick)
        name = "an answer of the remote is lost" if trick else "the remote answers"
        told[name] = found.as_dict()
        _say(f"the server on {house.vendor} falls{', SIGKILL' if real else ''}, {name}", found)
    return told


def interleaved(house: House, *, controls: bool = True) -> Figures:
    """W2: all 90 and all 1,680 interleavings, and on a session file; as `controls` without the
    compare-and-set, too."""
    two, three = interleavings.interleavings(2), interleavings.interleavings(3)
    with tempfile.TemporaryDirectory(prefix="rig-file-") as folder:
        file = Path(folder) / "session.json"
        on_file = {str(len(one)): interleavings.on_a_file(file, one) for one in (two, three)}
    name = f"w2-{secrets.token_hex(4)}"
    careful = Tasks(Api(house.port, house.token, {}), name)
    lost, told = interleavings.over_http(careful, two)
    record = careful.new()

    def connect() -> Connection:
        return Sqlite(house) if house.vendor == "sqlite" else Postgres(house)

    row = record.replace("-", "") if house.vendor == "sqlite" else record
    clean = connect()

    def reset() -> None:
        clean.begin(row, alone=True)
        clean.update(row, 0, None)
        clean.end(commit=True)

    in_rows = interleavings.in_transactions(connect, row, reset, three, check=True)
    figures: Figures = {
        "read/write": {"interleavings": len(two), "lost": lost, "told to read again": told},
        "read/write, session file": {"interleavings": len(two), "lost": on_file["90"]},
        "begin/update/commit": {"interleavings": len(three), "lost": in_rows},
        "begin/update/commit, session file": {"interleavings": len(three), "lost": on_file["1680"]},
    }
    if controls:
        careless = Tasks(Api(house.port, house.token, {}), f"{name}-careless", careless=True)
        unchecked, _ = interleavings.over_http(careless, two)
        figures["read/write, without If-Match"] = {"interleavings": len(two), "lost": unchecked}
        unchecked = interleavings.in_transactions(connect, row, reset, three, check=False)
        figures["begin/update/commit, without the version"] = {
            "interleavings": len(three),
            "lost": unchecked,
        }
    _note(f"interleavings on {house.vendor}: {figures}")
    return figures


def met(house: House, oracle: Oracle, *, rounds: int, gates: int) -> Figures:
    """W2 at the doors: stolen leases, two approvers, eight threads."""
    figures = {
        "lease steal with a zombie": contention.stolen_leases(house, oracle),
        "two approvers": contention.two_approvers(house, gates),
        "eight threads": contention.threads_at_one_effect(house, rounds),
    }
    _note(f"meetings on {house.vendor}: {figures}")
    return figures


def delivered(house: House) -> Figures:
    """Every order of delivery of four events, each sent twice."""
    every = delivery_orders.every()
    states = delivery_orders.deliver(Api(house.port, house.token, {}), every)
    figures = {"orders": len(every), "effects": sum(states.values()), "states": len(states)}
    _note(f"orders of delivery on {house.vendor}: {figures}")
    return figures


def mutants(house: House, oracle: Oracle) -> Figures:
    """What caught each of the eleven; and what the same trials say where there is no fault:
    nothing."""
    suite = Suite(house, oracle)
    told = dict(suite.verdicts())
    for name, caught in told.items():
        _note(f"mutant, {name}: {caught or 'NOT CAUGHT'}")
    return {"caught": told, "without a fault": suite.control()}


def timed(work: Callable[[], Figures]) -> Figures:
    """Do a part and say how long it took."""
    began = time.monotonic()
    figures = work()
    return {**figures, "seconds": round(time.monotonic() - began, 1)}


def _say(what: str, found: Found) -> None:
    counters = ", ".join(f"{number} {name}" for name, number in found.counters.items())
    _note(f"{what}: {found.runs} schedules, {counters}; {found.undecidable} ended with a person")
    for name, lines in found.faults.items():
        _note(f"    {name}: replay {lines[0]}")


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
