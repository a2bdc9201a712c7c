"""W2, at the doors: a lease stolen from a worker that wakes again, two approvers at a gate, eight
threads at an effect.

Every figure is a number of violations; the oracle's log, and the answers that were given, decide.
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
from evaluation.crashtest.checker import Found
from evaluation.crashtest.domain import CASES, LIFETIME_S, Refused, Release, Step
from evaluation.crashtest.gatebook import Api, Gatebook, Unexpected
from evaluation.crashtest.remote import Oracle, Remote
from evaluation.crashtest.schedules import Choices
from evaluation.crashtest.server import House, Reviewer

THREADS: Final = 8
TTL_S: Final = 60
_US: Final = 1_000_000


def threads_at_one_effect(house: House, rounds: int) -> dict[str, int]:
    """Each round eight threads dispatch one effect at once; at most one may be told to act."""
    apis = [Api(house.port, house.token, {}) for _ in range(THREADS)]
    session = f"herd-{secrets.token_hex(4)}"
    apis[0].post("/sessions", {"key": session}, f"{session}-open")
    barrier = threading.Barrier(THREADS)
    told: list[list[int]] = [[] for _ in range(rounds)]
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
                status, said = apis[number].post(
                    f"/effects/{effects[turn]['id']}/dispatch", body, key
                )
                if status == 200:
                    told[turn].append(said["attempt"])
                elif (status, said.get("code")) != (409, "ALREADY_DISPATCHED"):
                    raise Unexpected(f"{status} {said}")
                barrier.wait(60)
        except Exception as error:
            faults.append(error)
            barrier.abort()

    _together([lambda number=number: work(number) for number in range(THREADS)])  # type: ignore[misc]
    if faults:
        raise faults[0]
    return {
        "rounds": rounds,
        "dispatches": rounds * THREADS,
        "told twice": sum(len(one) > 1 for one in told),
        "told nobody": sum(not one for one in told),
    }


def two_approvers(house: House, rounds: int) -> dict[str, int]:
    """Two people answer one gate at once, one yes and one no; then two processes use what was
    given, if it was."""
    api = Api(house.port, house.token, {})
    session = f"gates-{secrets.token_hex(4)}"
    api.post("/sessions", {"key": session}, f"{session}-open")
    people = [house.person("anna"), house.person("ben")]
    found = {
        "gates": 0,
        "rulings in all": 0,
        "not one ruling": 0,
        "permission against the ruling": 0,
        "used twice": 0,
    }
    for turn in range(rounds):
        effect = gated(api, session, turn)
        said = together_answer(people, effect["gate"]["id"], ("approve", "deny"))
        _, gate = api.get(f"/gates/{effect['gate']['id']}")
        _, after = api.get(f"/effects/{effect['id']}")
        found["gates"] += 1
        found["rulings in all"] += sum(said)
        found["not one ruling"] += sum(said) != 1 or gate["status"] not in ("approved", "denied")
        right = {"approved": "granted", "denied": "denied"}.get(gate["status"])
        found["permission against the ruling"] += after["permission"] != right
        used = _dispatch_at_once(house, after)
        found["used twice"] += used != (gate["status"] == "approved")
    return found


def gated(api: Api, session: str, number: int) -> dict[str, Any]:
    """Plan something that people decide; the effect with its gate."""
    plan = {
        "session": session,
        "effect_key": f"g{number}",
        "tool": "rig.gated",
        "arguments": {"n": number},
    }
    status, said = api.post("/effects", plan, f"{session}-g{number}")
    if status != 201 or said["answer"] != "wait":
        raise Unexpected(f"a plan that people decide was answered {status}: {said}")
    return said


def answer(person: Reviewer, gate: str, word: str) -> bool:
    """Look at the gate's page and send its form; whether the answer was taken."""
    return person.send(gate, word, person.look(gate))


def together_answer(people: list[Reviewer], gate: str, words: tuple[str, str]) -> list[bool]:
    """Everybody looks at the page, then everybody sends their answer at once; whose was taken."""
    seen = [person.look(gate) for person in people]
    taken = [False] * len(people)

    def send(number: int) -> None:
        taken[number] = people[number].send(gate, words[number], seen[number])

    _together([lambda number=number: send(number) for number in range(len(people))])  # type: ignore[misc]
    return taken


def _dispatch_at_once(house: House, effect: dict[str, Any]) -> int:
    told: list[int] = []

    def work(number: int) -> None:
        api = Api(house.port, house.token, {})
        body = {"process": f"q{number}", "intent_digest": effect["intent_digest"]}
        told.append(
            api.post(f"/effects/{effect['id']}/dispatch", body, f"{effect['id'][:20]}-{number}")[0]
        )

    _together([lambda number=number: work(number) for number in range(2)])  # type: ignore[misc]
    return told.count(200)


def _together(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass
class _Zombie:
    """A worker that was believed dead. It does not act later than a request may live after its
    dispatch."""

    book: Gatebook
    remote: Remote
    house: House
    step: Step
    release: Release | None = None
    released_us: int = 0
    reference: str = ""

    def dispatch(self) -> None:
        verdict = self.book.look(self.step)
        if verdict.answer == "execute":
            try:
                self.release = self.book.release(self.step, verdict)
                self.released_us = self.house.clock.now_us()
            except Refused:
                self.release = None

    def act(self) -> None:
        if (
            self.release is not None
            and self.house.clock.now_us() < self.released_us + LIFETIME_S * _US
        ):
            self.reference = self.remote.execute(
                self.step.case.remote, self.step.name, self.release.remote_key
            )

    def acknowledge(self) -> None:
        if self.release is not None and self.reference:
            self.book.settled(self.step, self.release, self.reference)


def stolen_leases(house: House, oracle: Oracle) -> dict[str, Any]:
    """A zombie's three steps and the two of whoever takes its lease, in all ten orders, with two
    kinds of tools."""
    api, found, refused = Api(house.port, house.token, {}), Found(), 0
    log = oracle.log()
    for case in (one for one in CASES if one.name in ("probeable", "idempotency_key")):
        for places in itertools.combinations(range(5), 2):
            world = f"z-{secrets.token_hex(4)}"
            choices = Choices(0, 0)
            remote = Remote(oracle, world, choices)
            step = Step("work", "work", case)
            status, _ = api.post("/sessions", {"key": world, "mode": "leased"}, f"{world}-leased")
            if status != 201:
                raise Unexpected(f"a leased session was answered {status}")
            lease, epoch = _lease(api, world, "first")
            zombie = _Zombie(Gatebook(api, world, epoch=epoch), remote, house, step)
            zombie.book.process = "first"
            steps = iter((zombie.dispatch, zombie.act, zombie.acknowledge))
            thief = _thief(api, house, remote, choices, world, lease, step)
            for place in range(5):
                if place in places:
                    next(thief)
                else:
                    try:
                        next(steps)()
                    except Unexpected as told:
                        if "LEASE_LOST" not in str(told):
                            raise
                        refused += 1
            found.judge(log, world, case, f"stolen lease · {case.name} · {places}")
    log.close()
    return {**found.as_dict(), "told that the lease was lost": refused}


def _thief(
    api: Api, house: House, remote: Remote, choices: Choices, world: str, lease: str, step: Step
) -> Iterator[None]:
    expire(house, lease)
    _, epoch = _lease(api, world, "second")
    yield
    book = Gatebook(api, world, epoch=epoch)
    book.process = "second"
    Agent(book, remote, choices, house.clock, life=2).work([step])
    yield


def _lease(api: Api, session: str, process: str) -> tuple[str, int]:
    body = {"session": session, "process": process, "ttl_s": TTL_S}
    status, said = api.post("/leases", body, f"{session}-lease-{process}")
    if status not in (200, 201):
        raise Unexpected(f"a lease was answered {status}: {json.dumps(said)[:400]}")
    return said["id"], said["epoch"]


def expire(house: House, lease: str) -> None:
    """Let the lease run out: it goes by the database's clock, so its times are moved back in the
    rig's own database."""
    sql = "UPDATE agent_sessions_lease SET expires_at_us = expires_at_us - {0}, heartbeat_at_us = heartbeat_at_us - {0} WHERE id = "
    sql = sql.format(2 * TTL_S * _US)
    if house.vendor == "sqlite":
        with sqlite3.connect(house.folder / "gatebook.sqlite3", timeout=20) as connection:
            connection.execute(f"{sql} ?", [lease.replace("-", "")])
        connection.close()
        return
    import psycopg

    with psycopg.connect(house.environment["DATABASE_URL"], autocommit=True) as postgresql:
        postgresql.execute(f"{sql} %s".encode(), [lease])
