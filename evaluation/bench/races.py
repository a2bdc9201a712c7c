"""Races for one gate, and rulings around a server crash."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from evaluation.bench import gates, reviewer_process
from evaluation.bench.gates import Gate, GateBenchmark
from evaluation.bench.report import percentile

CRASH_AFTER_S: Final = 1.0  # in the middle of the rulings


def race_voters(benchmark: GateBenchmark, rounds: int) -> None:
    """Check that exactly one of many concurrent votes rules."""
    benchmark.print_progress(f"{rounds} rounds of concurrent votes")
    taken, wrong = benchmark.take_gates(rounds), 0
    spent_s, votes = benchmark.people.do("race", [gate.id for gate in taken])
    for gate in taken:
        answers = [answer for identity, answer in votes if identity == gate.id]
        wrong += answers.count("accepted") != 1 or answers.count("not_resolved") != len(answers) - 1
    name = f"{reviewer_process.PEOPLE} voters"
    benchmark.report.add(
        benchmark.vendor, f"{name}, {rounds} rounds: not exactly one", "", [wrong], bar=0
    )
    benchmark.report.add(benchmark.vendor, f"{name}: a round", "ms", [1000 * spent_s / rounds])


def race_dispatchers(benchmark: GateBenchmark, rounds: int) -> None:
    """Check that exactly one of many concurrent dispatches with one permission may act."""
    benchmark.print_progress(f"{rounds} rounds of concurrent dispatches")
    taken, users = benchmark.take_gates(rounds), reviewer_process.PEOPLE
    benchmark.people.do("rule_many", [(gate.id, 0.0) for gate in taken])
    answers: list[list[int]] = [[] for _ in taken]
    barrier = threading.Barrier(users)

    def dispatch(number: int) -> None:
        agent = benchmark.connect_agent()
        for gate, statuses in zip(taken, answers, strict=True):
            barrier.wait(gates.TIMEOUT_S)
            body = {"process": f"p-{number}", "intent_digest": gate.intent_digest}
            statuses.append(agent.ask("POST", f"/effects/{gate.effect}/dispatch", body)[0])
        agent.close()

    began = time.monotonic()
    with ThreadPoolExecutor(users) as pool:
        for done in [pool.submit(dispatch, number) for number in range(users)]:
            done.result()
    spent_s = time.monotonic() - began
    wrong = sum(sorted(statuses) != [200] + [409] * (users - 1) for statuses in answers)
    name = f"{users} users of one permission"
    benchmark.report.add(
        benchmark.vendor, f"{name}, {rounds} rounds: not exactly one", "", [wrong], bar=0
    )
    benchmark.report.add(benchmark.vendor, f"{name}: a round", "ms", [1000 * spent_s / rounds])


def race_revocations(benchmark: GateBenchmark, rounds: int) -> None:
    """Check that exactly one of a concurrent revocation and dispatch succeeds."""
    benchmark.print_progress(f"{rounds:,} rounds of revoke against use")
    agent, wrong, used = benchmark.connect_agent(), 0, 0
    for start in range(0, rounds, gates.AT_ONCE):
        taken = benchmark.take_gates(min(gates.AT_ONCE, rounds - start))
        benchmark.people.do("rule_many", [(gate.id, 0.0) for gate in taken])
        for n, gate in enumerate(taken):
            at = time.monotonic() + 0.01
            # Only the dispatch uses HTTP, so the start of the revocation is spread over its duration.
            benchmark.people.begin("revoke", gate.id, at + 0.01 * gates.spread_evenly(n))
            time.sleep(max(0.0, at - time.monotonic()))
            body = {"process": "p", "intent_digest": gate.intent_digest}
            status, _ = agent.ask("POST", f"/effects/{gate.effect}/dispatch", body)
            outcome = (status, benchmark.people.end())
            used += outcome == (200, "already_used")
            wrong += outcome not in ((200, "already_used"), (409, "revoked"))
    agent.close()
    name = f"revoke against use, {rounds:,} rounds"
    benchmark.report.add(benchmark.vendor, f"{name}: both or neither", "", [wrong], bar=0)
    benchmark.report.add(benchmark.vendor, f"{name}: used", "", [used])


def measure_restarts(benchmark: GateBenchmark, number: int) -> None:
    """Check that agents receive every ruling although the server crashes (SIGKILL) and restarts."""
    benchmark.print_progress(f"{number:,} rulings around restarts")
    lost, late = 0, []
    for start in range(0, number, gates.AT_ONCE):
        taken = benchmark.take_gates(min(gates.AT_ONCE, number - start))
        at = time.monotonic() + 0.2
        moments = {
            gate: at + gates.OFFSETS_S * gates.spread_evenly(start + n)
            for n, gate in enumerate(taken)
        }
        taken.sort(key=moments.__getitem__)
        benchmark.people.begin("rule_many", [(gate.id, moments[gate]) for gate in taken])

        def wait(gate: Gate) -> float:
            agent = benchmark.connect_agent()
            try:
                return agent.wait(gate, insist=True)
            finally:
                agent.close()

        with ThreadPoolExecutor(len(taken)) as pool:
            waiting = [pool.submit(wait, gate) for gate in taken]
            time.sleep(max(0.0, at + CRASH_AFTER_S - time.monotonic()))
            crashed_at = time.monotonic()
            benchmark.server.crash()
            benchmark.server.restart()
            restarted_at = time.monotonic()
            received = [done.result() for done in waiting]
        for when, (_, ended, refusal) in zip(received, benchmark.people.end(), strict=True):
            late_s = max(0.0, when - max(ended, at if when < crashed_at else restarted_at))
            lost += bool(refusal) or late_s > gates.LOST_AFTER_S
            late.append(1000 * late_s)
    name = f"{number:,} rulings around a server crash"
    benchmark.report.add(benchmark.vendor, f"{name}: lost", "", [lost], bar=0)
    benchmark.report.add(
        benchmark.vendor,
        f"{name}: p95 from the commit or the restart",
        "ms",
        [percentile(late, 0.95)],
    )
