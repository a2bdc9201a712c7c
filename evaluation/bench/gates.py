"""People decide and agents go on: how soon, whether ever too late, and what those cost who only
wait.

Every gate is opened by an agent's plan over HTTP; agents wait over HTTP; people decide in a process
of their own.
"""

import http.client
import json
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from evaluation.bench import clients
from evaluation.bench.idle_waiters import IDLE_WAIT_S, Herd
from evaluation.bench.installation import Server
from evaluation.bench.person import Person
from evaluation.bench.report import Report, percentile
from evaluation.bench.reviewer_process import Deciders
from evaluation.bench.workload import Writer

WAITERS: Final = 200
PARKED_WITHIN_S: Final = 30
LOOK_S: Final = 0.5
QUIET_SHARE: Final = 0.2  # of one processor
SESSION_EFFECTS: Final = 100  # of one session
MOST_RULINGS: Final = 200  # one after the other
AT_ONCE: Final = 100  # agents that begin to wait in one moment
OFFSETS_S: Final = 2.0
WAIT_S: Final = 20
LOST_AFTER_S: Final = (
    5.0  # whoever hears so long after the commit was not woken, and only asked again
)
GIVE_UP_S: Final = 90
COME_AGAIN_S: Final = 0.1
INGEST_CLIENTS: Final = 2
RULES: Final = 200
JUDGEMENTS: Final = 2_000

UNBLOCKED_BAR_MS: Final = 25.0
INBOX_BAR_MS: Final = 60.0
INGEST_BAR: Final = 1.2
PLAN_BAR_MS: Final = 0.2


@dataclass(frozen=True)
class Gate:
    """A pending gate and the effect it holds."""

    id: str
    effect: str
    intent_digest: str


class Agent:
    """An agent on one connection that is kept open."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=IDLE_WAIT_S + 20)
        self._token = token

    def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send one request; return status and answer."""
        headers = {"Authorization": f"Bearer {self._token}", "Idempotency-Key": uuid.uuid4().hex}
        content = None
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        self._connection.request(method, f"/api/v1{path}", body=content, headers=headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def wait(self, gate: Gate, *, insist: bool = False) -> float:
        """Wait until a gate is approved, as often as it takes; return when the answer came.

        Who may `insist` connects again, and comes again after a 503, as agents are told to.
        """
        until = time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            try:
                status, found = self.ask("GET", f"/gates/{gate.id}?wait={WAIT_S}&since=1")
            except (OSError, http.client.HTTPException):
                if not insist:
                    raise
                status, found = 503, {}
                self._connection.close()
            if status == 503 and insist:
                time.sleep(COME_AGAIN_S)
                continue
            if status == 200 and found["status"] == "approved":
                return time.monotonic()
            if status != 200 or found["status"] != "pending":
                raise RuntimeError(f"a wait was answered {status}: {found}")
        raise RuntimeError("a gate was never approved")

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class Part:
    """One server, its gates, and the people beside it."""

    def __init__(self, report: Report, server: Server, people: Deciders, token: str) -> None:
        self.report, self.server, self.people, self.token = report, server, people, token
        self.vendor = server.installation.vendor
        self.gates: list[Gate] = []

    def agent(self) -> Agent:
        """An agent with a connection of its own."""
        return Agent(self.server.port, self.token)

    def say(self, line: str) -> None:
        sys.stderr.write(f"{self.vendor}: gates, {line}\n")

    def open(self, number: int) -> None:
        """Plan so many effects, each of which is held."""
        self.say(f"opening {number:,}")

        def some(session: int) -> list[Gate]:
            agent, found = self.agent(), []
            agent.ask("POST", "/sessions", {"key": f"gates-{session}"})
            for n in range(session * SESSION_EFFECTS, min(number, (session + 1) * SESSION_EFFECTS)):
                names = {"session": f"gates-{session}", "effect_key": f"e{n}", "tool": "bench.push"}
                arguments = {"refspec": f"HEAD:refs/heads/topic-{n}", "note": "x" * 200}
                status, planned = agent.ask("POST", "/effects", {**names, "arguments": arguments})
                if status != 201 or planned["answer"] != "wait":
                    raise RuntimeError(f"a plan was answered {status}: {planned}")
                found.append(Gate(planned["gate"]["id"], planned["id"], planned["intent_digest"]))
            agent.close()
            return found

        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(some, range(-(-number // SESSION_EFFECTS))):
                self.gates += found

    def take(self, number: int) -> list[Gate]:
        """So many gates that nobody has touched."""
        taken, self.gates = self.gates[:number], self.gates[number:]
        if len(taken) < number:
            raise RuntimeError("there are not enough gates")
        return taken

    @contextmanager
    def waiting(self, number: int) -> Iterator[None]:
        """Let so many agents wait for gates that nobody answers, until the block ends."""
        found = [self.gates[-1 - n % len(self.gates)].id for n in range(number)]
        with Herd(self.server.port, self.token, found) as herd:
            self._until_parked()
            # Whoever is new among those who wait reads once more at the next commit: here, and not
            # while we measure.
            agent = self.agent()
            agent.ask("POST", "/sessions", {"key": uuid.uuid4().hex})
            agent.close()
            self._until_parked()
            yield
            # The server goes on waiting for whoever hangs up; a stop lets all of them go.
            herd.end(lambda: self.people.do("stop"))
            self.people.do("lift")

    def _until_parked(self) -> None:
        """Wait until the server has done with taking in who waits."""
        until, used = time.monotonic() + PARKED_WITHIN_S, self.server.cpu_s()
        while time.monotonic() < until:
            time.sleep(LOOK_S)
            before, used = used, self.server.cpu_s()
            if used - before < QUIET_SHARE * LOOK_S:
                return
        raise RuntimeError("those who wait keep the server busy")

    # The figures.
    # ---------------------------------------------------------------------------------------------------

    def inbox(self, reads: int) -> None:
        """How long the inbox takes with everything pending."""
        self.say("the inbox")
        installation = self.server.installation
        person = Person(self.server.port, installation.administrator, installation.password)
        person.get("/approvals/")
        seen = []
        for _ in range(reads):
            began = time.monotonic()
            person.get("/approvals/")
            seen.append(1000 * (time.monotonic() - began))
        person.close()
        name = f"inbox with {len(self.gates):,} pending"
        self.report.add(self.vendor, f"{name}: p50", "ms", [percentile(seen, 0.5)])
        self.report.add(
            self.vendor, f"{name}: p95", "ms", [percentile(seen, 0.95)], bar=INBOX_BAR_MS
        )

    def unblocked(self, number: int, waiters: int) -> None:
        """How soon an agent that waits hears of a ruling, while so many others only wait."""
        self.say(f"from ruling to agent, {waiters} idle waiters")
        agent = self.agent()
        from_call, from_commit = [], []
        taken = self.take(number)
        with self.waiting(waiters):
            for n, gate in enumerate(taken):
                self.people.begin("rule", gate.id, time.monotonic() + 0.05 + 0.05 * scattered(n))
                heard = agent.wait(gate)
                began, ended, refusal = self.people.end()
                if refusal:
                    raise RuntimeError(f"a ruling was refused: {refusal}")
                from_call.append(1000 * (heard - began))
                from_commit.append(1000 * max(0.0, heard - ended))
        agent.close()
        name = f"ruling to agent, {waiters} idle waiters"
        self.report.add(self.vendor, f"{name}: p50", "ms", [percentile(from_call, 0.5)])
        self.report.add(
            self.vendor, f"{name}: p95", "ms", [percentile(from_call, 0.95)], bar=UNBLOCKED_BAR_MS
        )
        self.report.add(
            self.vendor, f"{name}: p95 from the commit", "ms", [percentile(from_commit, 0.95)]
        )

    def offsets(self, number: int) -> None:
        """Whether every ruling is heard, whenever it falls around the moment in which the agent
        begins to wait."""
        self.say(f"{number:,} rulings at any offset")
        lost, late = 0, []
        for start in range(0, number, AT_ONCE):
            gates = self.take(min(AT_ONCE, number - start))
            at = time.monotonic() + 0.2
            moments = {gate: at + OFFSETS_S * scattered(start + n) for n, gate in enumerate(gates)}
            gates.sort(key=moments.__getitem__)
            self.people.begin("rule_many", [(gate.id, moments[gate]) for gate in gates])

            def wait(gate: Gate, at: float = at) -> float:
                agent = self.agent()
                time.sleep(max(0.0, at - time.monotonic()))
                try:
                    return agent.wait(gate)
                finally:
                    agent.close()

            with ThreadPoolExecutor(len(gates)) as pool:
                heard = list(pool.map(wait, gates))
            for when, (_, ended, _refusal) in zip(heard, self.people.end(), strict=True):
                late_s = max(0.0, when - max(ended, at))
                lost += late_s > LOST_AFTER_S
                late.append(1000 * late_s)
        name = f"{number:,} rulings 0 to 2 s after the wait began"
        self.report.add(self.vendor, f"{name}: lost", "", [lost], bar=0)
        self.report.add(self.vendor, f"{name}: p95 from the commit", "ms", [percentile(late, 0.95)])

    def ingest(self, rounds: int, batches: int) -> None:
        """What the waiters cost those who send evidence."""
        seen: dict[int, list[list[float]]] = {0: [], WAITERS: []}
        cpu: dict[int, list[float]] = {0: [], WAITERS: []}
        for number in range(rounds):
            for waiters, values in seen.items():
                self.say(f"evidence beside {waiters} waiters, round {number + 1} of {rounds}")
                sent = [
                    Writer(f"w{number}{waiters}{n}").mixed(batches) for n in range(INGEST_CLIENTS)
                ]
                works = [clients.post_batches(self.server.port, self.token, part) for part in sent]
                items = sum(batch.items for part in sent for batch in part)
                with self.waiting(waiters):
                    before = self.server.cpu_s()
                    values.append([1000 * value for value in clients.together(works).all])
                    cpu[waiters].append(1000 * (self.server.cpu_s() - before) / items)
        for waiters, values in seen.items():
            name = f"evidence beside {waiters} waiters: p99"
            self.report.add(
                self.vendor, name, "ms per batch", [percentile(one, 0.99) for one in values]
            )
            name = f"evidence beside {waiters} waiters: CPU"
            self.report.add(self.vendor, name, "CPU-s per 1,000 events", cpu[waiters])
        pooled = {
            waiters: [value for one in values for value in one] for waiters, values in seen.items()
        }
        ratio = percentile(pooled[WAITERS], 0.99) / percentile(pooled[0], 0.99)
        name = f"evidence: p99 with {WAITERS} waiters against none"
        self.report.add(self.vendor, name, "×", [ratio], bar=INGEST_BAR, note="all rounds together")

    def plan(self) -> None:
        """The processor time that a policy of two hundred rules adds to a plan."""
        self.say(f"a plan against {RULES} rules")
        said, spent = self.people.do("plan_cpu", two_hundred_rules(), JUDGEMENTS)
        if said != "ask":
            raise RuntimeError(f"the rules say {said}")
        name = f"a plan against {RULES} rules"
        mean = {what: sum(values) / len(values) for what, values in spent.items()}
        self.report.add(self.vendor, f"{name}: matching alone", "ms of CPU", [mean["matching"]])
        note = "with reading which rules are in force; without the database's part"
        self.report.add(
            self.vendor,
            f"{name}: all of it",
            "ms of CPU",
            [mean["all"]],
            bar=PLAN_BAR_MS,
            note=note,
        )


def scattered(number: int) -> float:
    """Numbers from 0 to 1 that lie apart from each other, the same at every run."""
    return number * 0.6180339887 % 1


def two_hundred_rules() -> str:
    """A policy whose rules all speak of pushes, so that each of them is looked at; the last asks
    about production."""
    rules: list[dict[str, Any]] = []
    for n in range(RULES - 1):
        more: dict[str, Any] = {
            "repositories": [f"team-{n}/*"],
            "refs": [f"release/{n}/*", "refs/tags/*"],
        }
        if n % 4 == 1:
            more = {"arguments": [{"path": "refspec", "prefix": f"+refs/heads/{n}"}]}
        elif n % 4 == 2:
            more = {"environments": [f"stage-{n}*"], "risk_at_least": "medium"}
        rules.append(
            {
                "id": f"rule-{n}",
                "title": "A push",
                "match": {"tools": ["git.*"], **more},
                "outcome": "deny",
            }
        )
    production = {"tools": ["git.push"], "ref_classes": ["production"]}
    rules.append(
        {"id": "production", "title": "Production", "match": production, "outcome": "require"}
    )
    return json.dumps({"name": "two-hundred", "rules": rules}, indent=1)
