"""The parts of the evaluation, called by the command line and the tests. Each returns figures."""

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
from evaluation.crashtest.checker import Findings
from evaluation.crashtest.clock import Clock
from evaluation.crashtest.domain import CASES, Case
from evaluation.crashtest.file_baseline import POLICIES
from evaluation.crashtest.gatebook import Api
from evaluation.crashtest.interleavings import Connection, Postgres, Sqlite, Tasks
from evaluation.crashtest.mutants import Suite
from evaluation.crashtest.remote import Oracle
from evaluation.crashtest.server import Installation

SEEDED: Final = 300
Figures = dict[str, Any]


def run_baselines(
    oracle: Oracle,
    clock: Clock,
    *,
    cases: Sequence[Case] = CASES,
    crashed: int = 1,
    every: bool = True,
) -> Figures:
    """Run W1 on the session files."""
    figures: Figures = {}
    for policy in POLICIES:
        for in_place in (False, True) if policy == "replay" else (False,):
            with agent_crashes.open_file_context(
                oracle, clock, policy, in_place=in_place
            ) as context:
                findings, _ = agent_crashes.crash_by_raising(
                    context, cases, crashed, 1, every=every
                )
            figures[context.name] = findings.to_json()
            _report(context.name, findings)
    return figures


def run_crashes_by_raising(
    installation: Installation,
    oracle: Oracle,
    *,
    depth: int,
    tricks: int = 1,
    cases: Sequence[Case] = CASES,
) -> tuple[Figures, list[str]]:
    """Run W1 on Gatebook: every schedule of `depth` deaths. Returns its replay lines too."""
    context = agent_crashes.make_gatebook_context(oracle, installation)
    findings, lines = agent_crashes.crash_by_raising(context, cases, depth, tricks)
    _report(f"{context.name}, depth {depth}, by raising", findings)
    return findings.to_json(), lines


def run_crashes_by_killing(
    installation: Installation, oracle: Oracle, lines: Sequence[str], *, depth: int
) -> Figures:
    """Run the same schedules with SIGKILL; at depth 2 a sample of SEEDED lines."""
    context = agent_crashes.make_gatebook_context(oracle, installation)
    chosen = lines if depth == 1 else agent_crashes.sample_lines(lines, SEEDED)
    findings = agent_crashes.crash_by_killing(context, chosen, depth, 1)
    _report(f"{context.name}, depth {depth}, by SIGKILL", findings)
    return findings.to_json()


def run_client(
    installation: Installation, oracle: Oracle, *, cases: Sequence[Case] = CASES
) -> Figures:
    """Run W1 with the Python client, depth 1, by SIGKILL."""
    findings = client_runs.crash_by_killing(installation, oracle, cases)
    _report(f"the client on {installation.vendor}, by SIGKILL", findings)
    return findings.to_json()


def run_server_crashes(
    installation: Installation, oracle: Oracle, *, cases: Sequence[Case] = CASES, real: bool = False
) -> Figures:
    """Run W1 with server crashes at four places of every command, with and without a lost answer."""
    figures: Figures = {}
    for trick in ("", "lose"):
        findings = server_crashes.crash_at_every_command(
            installation, oracle, cases, real=real, trick=trick
        )
        name = "an answer of the remote is lost" if trick else "the remote answers"
        figures[name] = findings.to_json()
        _report(
            f"the server on {installation.vendor} crashes{', SIGKILL' if real else ''}, {name}",
            findings,
        )
    return figures


def run_interleavings(installation: Installation, *, controls: bool = True) -> Figures:
    """Run W2: all 90 and all 1,680 interleavings, on Gatebook and on a session file.

    With `controls`, run them without the compare-and-set too.
    """
    two, three = interleavings.list_interleavings(2), interleavings.list_interleavings(3)
    with tempfile.TemporaryDirectory(prefix="rig-file-") as folder:
        file = Path(folder) / "session.json"
        on_file = {
            str(len(orders)): interleavings.run_on_file(file, orders) for orders in (two, three)
        }
    name = f"w2-{secrets.token_hex(4)}"
    checked = Tasks(Api(installation.port, installation.token, {}), name)
    lost, refused = interleavings.run_over_http(checked, two)
    record = checked.create()

    def connect() -> Connection:
        return Sqlite(installation) if installation.vendor == "sqlite" else Postgres(installation)

    row = record.replace("-", "") if installation.vendor == "sqlite" else record
    clean = connect()

    def reset() -> None:
        clean.begin(row, alone=True)
        clean.update(row, 0, None)
        clean.end(commit=True)

    in_rows = interleavings.run_in_transactions(connect, row, reset, three, check=True)
    figures: Figures = {
        "read/write": {
            "interleavings": len(two),
            "lost": lost,
            "refused as VERSION_CHANGED": refused,
        },
        "read/write, session file": {"interleavings": len(two), "lost": on_file["90"]},
        "begin/update/commit": {"interleavings": len(three), "lost": in_rows},
        "begin/update/commit, session file": {"interleavings": len(three), "lost": on_file["1680"]},
    }
    if controls:
        without_check = Tasks(
            Api(installation.port, installation.token, {}), f"{name}-unchecked", unchecked=True
        )
        lost_unchecked, _ = interleavings.run_over_http(without_check, two)
        figures["read/write, without If-Match"] = {
            "interleavings": len(two),
            "lost": lost_unchecked,
        }
        lost_unchecked = interleavings.run_in_transactions(connect, row, reset, three, check=False)
        figures["begin/update/commit, without the version"] = {
            "interleavings": len(three),
            "lost": lost_unchecked,
        }
    _print_line(f"interleavings on {installation.vendor}: {figures}")
    return figures


def run_races(installation: Installation, oracle: Oracle, *, rounds: int, gates: int) -> Figures:
    """Run W2 over HTTP: stolen leases, two approvers, eight threads."""
    figures = {
        "lease steal with a zombie": contention.steal_leases(installation, oracle),
        "two approvers": contention.race_approvers(installation, gates),
        "eight threads": contention.race_dispatchers(installation, rounds),
    }
    _print_line(f"races on {installation.vendor}: {figures}")
    return figures


def run_delivery_orders(installation: Installation) -> Figures:
    """Deliver four events, each sent twice, in every order."""
    every = delivery_orders.list_orders()
    states = delivery_orders.deliver_orders(Api(installation.port, installation.token, {}), every)
    figures = {"orders": len(every), "effects": sum(states.values()), "states": len(states)}
    _print_line(f"orders of delivery on {installation.vendor}: {figures}")
    return figures


def run_mutants(installation: Installation, oracle: Oracle) -> Figures:
    """Return what caught each of the eleven mutants, and what the trials catch without a fault."""
    suite = Suite(installation, oracle)
    caught_by = dict(suite.run_trials())
    for name, caught in caught_by.items():
        _print_line(f"mutant, {name}: {caught or 'NOT CAUGHT'}")
    return {"caught": caught_by, "without a fault": suite.run_controls()}


def measure_part(work: Callable[[], Figures]) -> Figures:
    """Run a part and add its duration to its figures."""
    began = time.monotonic()
    figures = work()
    return {**figures, "seconds": round(time.monotonic() - began, 1)}


def _report(what: str, findings: Findings) -> None:
    counters = ", ".join(f"{number} {name}" for name, number in findings.counters.items())
    _print_line(
        f"{what}: {findings.runs} schedules, {counters}; {findings.undecidable} ended with a person"
    )
    for name, lines in findings.faults.items():
        _print_line(f"    {name}: replay {lines[0]}")


def _print_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
