"""Who wins when many act on one gate in one moment, and whether a ruling is heard though the server
falls meanwhile."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from evaluation.bench import gates, reviewer_process
from evaluation.bench.gates import Gate, Part
from evaluation.bench.report import percentile

FALLS_AFTER_S: Final = 1.0  # in the middle of the rulings


def of_deciders(part: Part, rounds: int) -> None:
    """Whether of many who answer one gate at once exactly one rules."""
    part.say(f"{rounds} rounds of all deciders")
    taken, wrong = part.take(rounds), 0
    spent_s, told = part.people.do("race", [gate.id for gate in taken])
    for gate in taken:
        heard = [answer for identity, answer in told if identity == gate.id]
        wrong += heard.count("stands") != 1 or heard.count("not_resolved") != len(heard) - 1
    name = f"{reviewer_process.PEOPLE} deciders"
    part.report.add(part.vendor, f"{name}, {rounds} rounds: not exactly one", "", [wrong], bar=0)
    part.report.add(part.vendor, f"{name}: a round", "ms", [1000 * spent_s / rounds])


def of_users(part: Part, rounds: int) -> None:
    """Whether of many processes of an agent that use one permission at once exactly one may act."""
    part.say(f"{rounds} rounds of all users of a permission")
    taken, users = part.take(rounds), reviewer_process.PEOPLE
    part.people.do("rule_many", [(gate.id, 0.0) for gate in taken])
    answers: list[list[int]] = [[] for _ in taken]
    together = threading.Barrier(users)

    def use(number: int) -> None:
        agent = part.agent()
        for gate, told in zip(taken, answers, strict=True):
            together.wait(gates.GIVE_UP_S)
            body = {"process": f"p-{number}", "intent_digest": gate.intent_digest}
            told.append(agent.ask("POST", f"/effects/{gate.effect}/dispatch", body)[0])
        agent.close()

    began = time.monotonic()
    with ThreadPoolExecutor(users) as pool:
        for done in [pool.submit(use, number) for number in range(users)]:
            done.result()
    spent_s = time.monotonic() - began
    wrong = sum(sorted(told) != [200] + [409] * (users - 1) for told in answers)
    name = f"{users} users of one permission"
    part.report.add(part.vendor, f"{name}, {rounds} rounds: not exactly one", "", [wrong], bar=0)
    part.report.add(part.vendor, f"{name}: a round", "ms", [1000 * spent_s / rounds])


def of_revocations(part: Part, rounds: int) -> None:
    """Whether of a revocation and a dispatch in one moment exactly one comes through."""
    part.say(f"{rounds:,} rounds of revoke against use")
    agent, wrong, used = part.agent(), 0, 0
    for start in range(0, rounds, gates.AT_ONCE):
        taken = part.take(min(gates.AT_ONCE, rounds - start))
        part.people.do("rule_many", [(gate.id, 0.0) for gate in taken])
        for n, gate in enumerate(taken):
            at = time.monotonic() + 0.01
            # A dispatch comes over HTTP, a revocation does not: its start is spread over what that
            # takes.
            part.people.begin("revoke", gate.id, at + 0.01 * gates.scattered(n))
            time.sleep(max(0.0, at - time.monotonic()))
            body = {"process": "p", "intent_digest": gate.intent_digest}
            status, _ = agent.ask("POST", f"/effects/{gate.effect}/dispatch", body)
            outcome = (status, part.people.end())
            used += outcome == (200, "already_used")
            wrong += outcome not in ((200, "already_used"), (409, "revoked"))
    agent.close()
    name = f"revoke against use, {rounds:,} rounds"
    part.report.add(part.vendor, f"{name}: both or neither", "", [wrong], bar=0)
    part.report.add(part.vendor, f"{name}: used", "", [used])


def of_restarts(part: Part, number: int) -> None:
    """Whether every ruling is heard though the server falls, by SIGKILL, in the midst of them and
    is started again."""
    part.say(f"{number:,} rulings around restarts")
    lost, late = 0, []
    for start in range(0, number, gates.AT_ONCE):
        taken = part.take(min(gates.AT_ONCE, number - start))
        at = time.monotonic() + 0.2
        moments = {
            gate: at + gates.OFFSETS_S * gates.scattered(start + n) for n, gate in enumerate(taken)
        }
        taken.sort(key=moments.__getitem__)
        part.people.begin("rule_many", [(gate.id, moments[gate]) for gate in taken])

        def wait(gate: Gate) -> float:
            agent = part.agent()
            try:
                return agent.wait(gate, insist=True)
            finally:
                agent.close()

        with ThreadPoolExecutor(len(taken)) as pool:
            waiting = [pool.submit(wait, gate) for gate in taken]
            time.sleep(max(0.0, at + FALLS_AFTER_S - time.monotonic()))
            fell = time.monotonic()
            part.server.fall()
            part.server.rise()
            back = time.monotonic()
            heard = [done.result() for done in waiting]
        for when, (_, ended, refusal) in zip(heard, part.people.end(), strict=True):
            late_s = max(0.0, when - max(ended, at if when < fell else back))
            lost += bool(refusal) or late_s > gates.LOST_AFTER_S
            late.append(1000 * late_s)
    name = f"{number:,} rulings around a fall of the server"
    part.report.add(part.vendor, f"{name}: lost", "", [lost], bar=0)
    part.report.add(
        part.vendor, f"{name}: p95 from the commit or the return", "ms", [percentile(late, 0.95)]
    )
