"""W2 over HTTP: races for one lease, one gate and one effect.

A lease is taken from a worker that wakes up later, two people vote on one gate, and eight
threads dispatch one effect. Every figure counts violations. They are read from the oracle's
log and the answers of the server.
"""

import itertools
import json
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from evaluation.crashtest.agent import Agent
from evaluation.crashtest.checker import Findings
from evaluation.crashtest.domain import CASES, LIFETIME_S, Refused, Release, Step
from evaluation.crashtest.gatebook import Api, Gatebook, Unexpected
from evaluation.crashtest.remote import Oracle, Remote
from evaluation.crashtest.schedules import Choices
from evaluation.crashtest.server import Installation, Reviewer

THREADS: Final = 8
TTL_S: Final = 60
_US: Final = 1_000_000


def race_dispatchers(installation: Installation, rounds: int) -> dict[str, int]:
    """Let eight threads dispatch one effect at once in each round; at most one may act."""
    apis = [Api(installation.port, installation.token, {}) for _ in range(THREADS)]
    session = f"herd-{secrets.token_hex(4)}"
    apis[0].post("/sessions", {"key": session}, f"{session}-open")
    barrier = threading.Barrier(THREADS)
    attempts: list[list[int]] = [[] for _ in range(rounds)]
    effects: list[dict[str, Any]] = []
    faults: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(rounds):
                if number == 0:
                    plan = {
                        "session": session,
                        "effect_key": f"e{turn}",
                        "tool": "rig.push",
                        "arguments": {"n": turn},
                    }
                    effects.append(apis[0].post("/effects", plan, f"{session}-p{turn}")[1])
                barrier.wait(60)
                body = {"process": f"p{number}", "intent_digest": effects[turn]["intent_digest"]}
                key = f"{session}-d{turn}-{number}"
                status, reply = apis[number].post(
                    f"/effects/{effects[turn]['id']}/dispatch", body, key
                )
                if status == 200:
                    attempts[turn].append(reply["attempt"])
                elif (status, reply.get("code")) != (409, "ALREADY_DISPATCHED"):
                    raise Unexpected(f"{status} {reply}")
                barrier.wait(60)
        except Exception as error:
            faults.append(error)
            barrier.abort()

    _run_at_once([lambda number=number: work(number) for number in range(THREADS)])  # type: ignore[misc]
    if faults:
        raise faults[0]
    return {
        "rounds": rounds,
        "dispatches": rounds * THREADS,
        "permitted twice": sum(len(permitted) > 1 for permitted in attempts),
        "never permitted": sum(not permitted for permitted in attempts),
    }


def race_approvers(installation: Installation, rounds: int) -> dict[str, int]:
    """Let two people vote on one gate at once, then two processes dispatch its effect."""
    api = Api(installation.port, installation.token, {})
    session = f"gates-{secrets.token_hex(4)}"
    api.post("/sessions", {"key": session}, f"{session}-open")
    people = [installation.get_reviewer("anna"), installation.get_reviewer("ben")]
    figures = {
        "gates": 0,
        "rulings": 0,
        "not exactly one ruling": 0,
        "permission against the ruling": 0,
        "used twice": 0,
    }
    for turn in range(rounds):
        effect = plan_gated_effect(api, session, turn)
        taken = answer_gate_at_once(people, effect["gate"]["id"], ("approve", "deny"))
        _, gate = api.get(f"/gates/{effect['gate']['id']}")
        _, after = api.get(f"/effects/{effect['id']}")
        figures["gates"] += 1
        figures["rulings"] += sum(taken)
        figures["not exactly one ruling"] += sum(taken) != 1 or gate["status"] not in (
            "approved",
            "denied",
        )
        right = {"approved": "granted", "denied": "denied"}.get(gate["status"])
        figures["permission against the ruling"] += after["permission"] != right
        used = _dispatch_at_once(installation, after)
        figures["used twice"] += used != (gate["status"] == "approved")
    return figures


def plan_gated_effect(api: Api, session: str, number: int) -> dict[str, Any]:
    """Plan an effect that needs approval; return the effect with its gate."""
    plan = {
        "session": session,
        "effect_key": f"g{number}",
        "tool": "rig.gated",
        # A call that was denied before would be warned about, and be approved in two steps.
        "arguments": {"n": number, "note": session},
    }
    status, effect = api.post("/effects", plan, f"{session}-g{number}")
    if status != 201 or effect["answer"] != "wait":
        raise Unexpected(f"a plan that needs approval was answered {status}: {effect}")
    return effect


def answer_gate(person: Reviewer, gate: str, vote: str) -> bool:
    """Open the gate's page and send its form; return whether the vote was accepted."""
    return person.vote(gate, vote, person.open_gate(gate))


def answer_gate_at_once(people: list[Reviewer], gate: str, votes: tuple[str, str]) -> list[bool]:
    """Let all people open the page, then vote at once; return whose vote was accepted."""
    seen = [person.open_gate(gate) for person in people]
    taken = [False] * len(people)

    def send(number: int) -> None:
        taken[number] = people[number].vote(gate, votes[number], seen[number])

    _run_at_once([lambda number=number: send(number) for number in range(len(people))])  # type: ignore[misc]
    return taken


def _dispatch_at_once(installation: Installation, effect: dict[str, Any]) -> int:
    statuses: list[int] = []

    def work(number: int) -> None:
        api = Api(installation.port, installation.token, {})
        body = {"process": f"q{number}", "intent_digest": effect["intent_digest"]}
        statuses.append(
            api.post(f"/effects/{effect['id']}/dispatch", body, f"{effect['id'][:20]}-{number}")[0]
        )

    _run_at_once([lambda number=number: work(number) for number in range(2)])  # type: ignore[misc]
    return statuses.count(200)


def _run_at_once(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass
class _StaleWorker:
    """A worker whose lease was taken. It never acts after the lifetime of its request has passed."""

    gatebook: Gatebook
    remote: Remote
    installation: Installation
    step: Step
    release: Release | None = None
    released_us: int = 0
    reference: str = ""

    def dispatch(self) -> None:
        verdict = self.gatebook.get_verdict(self.step)
        if verdict.answer == "execute":
            try:
                self.release = self.gatebook.dispatch(self.step, verdict)
                self.released_us = self.installation.clock.now_us()
            except Refused:
                self.release = None

    def act(self) -> None:
        if (
            self.release is not None
            and self.installation.clock.now_us() < self.released_us + LIFETIME_S * _US
        ):
            self.reference = self.remote.execute(
                self.step.case.remote, self.step.name, self.release.remote_key
            )

    def acknowledge(self) -> None:
        if self.release is not None and self.reference:
            self.gatebook.report_success(self.step, self.release, self.reference)


def steal_leases(installation: Installation, oracle: Oracle) -> dict[str, Any]:
    """Run the old worker's three steps and its successor's two, in all ten orders, with two tools."""
    api, findings, refused = Api(installation.port, installation.token, {}), Findings(), 0
    log = oracle.log()
    for case in (
        candidate for candidate in CASES if candidate.name in ("probeable", "idempotency_key")
    ):
        for places in itertools.combinations(range(5), 2):
            world = f"z-{secrets.token_hex(4)}"
            choices = Choices(0, 0)
            remote = Remote(oracle, world, choices)
            step = Step("work", "work", case)
            status, _ = api.post("/sessions", {"key": world, "mode": "leased"}, f"{world}-leased")
            if status != 201:
                raise Unexpected(f"a leased session was answered {status}")
            lease, epoch = _acquire_lease(api, world, "first")
            zombie = _StaleWorker(Gatebook(api, world, epoch=epoch), remote, installation, step)
            zombie.gatebook.process = "first"
            steps = iter((zombie.dispatch, zombie.act, zombie.acknowledge))
            successor = _take_over(api, installation, remote, choices, world, lease, step)
            for place in range(5):
                if place in places:
                    next(successor)
                else:
                    try:
                        next(steps)()
                    except Unexpected as error:
                        if "LEASE_LOST" not in str(error):
                            raise
                        refused += 1
            findings.check_run(log, world, case, f"stolen lease · {case.name} · {places}")
    log.close()
    return {**findings.to_json(), "refused as LEASE_LOST": refused}


def _take_over(
    api: Api,
    installation: Installation,
    remote: Remote,
    choices: Choices,
    world: str,
    lease: str,
    step: Step,
) -> Iterator[None]:
    expire_lease(installation, lease)
    _, epoch = _acquire_lease(api, world, "second")
    yield
    gatebook = Gatebook(api, world, epoch=epoch)
    gatebook.process = "second"
    Agent(gatebook, remote, choices, installation.clock, life=2).work([step])
    yield


def _acquire_lease(api: Api, session: str, process: str) -> tuple[str, int]:
    body = {"session": session, "process": process, "ttl_s": TTL_S}
    status, lease = api.post("/leases", body, f"{session}-lease-{process}")
    if status not in (200, 201):
        raise Unexpected(f"a lease was answered {status}: {json.dumps(lease)[:400]}")
    return lease["id"], lease["epoch"]


def expire_lease(installation: Installation, lease: str) -> None:
    """Expire a lease by moving its times back in the rig's own database."""
    sql = "UPDATE agent_sessions_lease SET expires_at_us = expires_at_us - {0}, heartbeat_at_us = heartbeat_at_us - {0} WHERE id = "
    sql = sql.format(2 * TTL_S * _US)
    if installation.vendor == "sqlite":
        with sqlite3.connect(installation.folder / "gatebook.sqlite3", timeout=20) as connection:
            connection.execute(f"{sql} ?", [lease.replace("-", "")])
        connection.close()
        return
    import psycopg

    with psycopg.connect(installation.environment["DATABASE_URL"], autocommit=True) as postgresql:
        postgresql.execute(f"{sql} %s".encode(), [lease])
