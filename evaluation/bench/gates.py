"""Gates: the delay from ruling to agent, lost rulings, and the cost of idle waiters.

Agents open gates and wait over HTTP; people decide in another process.
"""

import http.client
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from evaluation.bench import clients, procfs
from evaluation.bench.idle_waiters import IDLE_WAIT_S, IdleWaiters
from evaluation.bench.installation import Server
from evaluation.bench.person import Person
from evaluation.bench.report import Report, percentile
from evaluation.bench.reviewer_process import Reviewers
from evaluation.bench.workload import Writer

WAITERS: Final = 200
PARKED_WITHIN_S: Final = 30
POLL_S: Final = 0.5
QUIET_SHARE: Final = 0.2  # of one processor
SESSION_EFFECTS: Final = 100  # of one session
MOST_RULINGS: Final = 200  # one at a time
AT_ONCE: Final = 100  # agents that begin to wait at the same time
WARM: Final = 6  # pages before the measured ones
OFFSETS_S: Final = 2.0
WAIT_S: Final = 20
LOST_AFTER_S: Final = 5.0  # a later answer came from a new request and not from the wake-up
TIMEOUT_S: Final = 90
RETRY_AFTER_S: Final = 0.1
INGEST_CLIENTS: Final = 2
RULES: Final = 200
EVALUATIONS: Final = 2_000

UNBLOCKED_BAR_MS: Final = 25.0
PAGE_BAR_MS: Final = 60.0  # inbox and card
INGEST_BAR: Final = 1.2
PLAN_BAR_MS: Final = 0.2


@dataclass(frozen=True)
class Gate:
    """A pending gate and its effect."""

    id: str
    effect: str
    intent_digest: str


class Agent:
    """An agent on one persistent connection."""

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
        """Wait until a gate is approved, with repeated requests; return the time of the answer.

        With `insist` the agent reconnects and retries after a 503, as the API requires.
        """
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            try:
                status, reply = self.ask("GET", f"/gates/{gate.id}?wait={WAIT_S}&since=1")
            except (OSError, http.client.HTTPException):
                if not insist:
                    raise
                status, reply = 503, {}
                self._connection.close()
            if status == 503 and insist:
                time.sleep(RETRY_AFTER_S)
                continue
            if status == 200 and reply["status"] == "approved":
                return time.monotonic()
            if status != 200 or reply["status"] != "pending":
                raise RuntimeError(f"a wait was answered {status}: {reply}")
        raise RuntimeError("a gate was never approved")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class GateBenchmark:
    """The gates of one server, and its reviewers."""

    def __init__(self, report: Report, server: Server, people: Reviewers, token: str) -> None:
        self.report, self.server, self.people, self.token = report, server, people, token
        self.vendor = server.installation.vendor
        self.gates: list[Gate] = []

    def connect_agent(self) -> Agent:
        """Return an agent with its own connection."""
        return Agent(self.server.port, self.token)

    def print_progress(self, line: str) -> None:
        sys.stderr.write(f"{self.vendor}: gates, {line}\n")

    def open_gates(
        self, number: int, make_call: Callable[[int], dict[str, Any]] | None = None
    ) -> None:
        """Plan `number` effects, each of which waits for approval; `make_call` gives their fields."""
        self.print_progress(f"opening {number:,}")
        make_call = make_call or _make_push

        def open_session(session: int) -> list[Gate]:
            agent, opened = self.connect_agent(), []
            agent.ask("POST", "/sessions", {"key": f"bench-gates-{session}"})
            for n in range(session * SESSION_EFFECTS, min(number, (session + 1) * SESSION_EFFECTS)):
                names = {"session": f"bench-gates-{session}", "effect_key": f"e{n}"}
                status, planned = agent.ask("POST", "/effects", {**names, **make_call(n)})
                if status != 201 or planned["answer"] != "wait":
                    raise RuntimeError(f"a plan was answered {status}: {planned}")
                opened.append(Gate(planned["gate"]["id"], planned["id"], planned["intent_digest"]))
            agent.close()
            return opened

        with ThreadPoolExecutor(4) as pool:
            for opened in pool.map(open_session, range(-(-number // SESSION_EFFECTS))):
                self.gates += opened

    def take_gates(self, number: int) -> list[Gate]:
        """Take `number` untouched gates."""
        taken, self.gates = self.gates[:number], self.gates[number:]
        if len(taken) < number:
            raise RuntimeError("there are not enough gates")
        return taken

    @contextmanager
    def run_waiters(self, number: int) -> Iterator[None]:
        """Let `number` agents wait for undecided gates until the block ends."""
        gates = [self.gates[-1 - n % len(self.gates)].id for n in range(number)]
        with IdleWaiters(self.server.port, self.token, gates) as idle:
            self._until_parked()
            # New waiters read their gate again at the next commit; let them do so before the
            # measurement.
            agent = self.connect_agent()
            agent.ask("POST", "/sessions", {"key": uuid.uuid4().hex})
            agent.close()
            self._until_parked()
            yield
            # The server does not notice closed connections; a stop ends all waits.
            idle.end(lambda: self.people.do("stop"))
            self.people.do("lift")

    def _until_parked(self) -> None:
        """Wait until the server has accepted all waiters."""
        until, used = time.monotonic() + PARKED_WITHIN_S, self.server.cpu_s()
        while time.monotonic() < until:
            time.sleep(POLL_S)
            before, used = used, self.server.cpu_s()
            if used - before < QUIET_SHARE * POLL_S:
                return
        raise RuntimeError("the waiters keep the server busy")

    # The figures.
    # ---------------------------------------------------------------------------------------------------

    def measure_inbox(self, reads: int) -> None:
        """Measure the inbox with all gates pending."""
        self.print_progress("the inbox")
        self._measure_pages(f"inbox with {len(self.gates):,} pending", ["/approvals/"] * reads)

    def measure_cards(self, reads: int) -> None:
        """Measure the pages of `reads` pending requests, each read once, with all their checks."""
        self.print_progress("the cards")
        step = max(1, len(self.gates) // reads)
        # One of each step, at another place in each, since kinds of calls take turns.
        chosen = [self.gates[n * step + n % step] for n in range(min(reads, len(self.gates)))]
        paths = [f"/approvals/{gate.id}/" for gate in chosen]
        self._measure_pages(f"card, {len(self.gates):,} pending", paths)

    def _measure_pages(self, name: str, paths: Sequence[str]) -> None:
        installation = self.server.installation
        person = Person(self.server.port, installation.administrator, installation.password)
        for path in paths[: -WARM - 1 : -1]:  # unmeasured, once per worker
            person.get(path)
        before, seen = procfs.cpu_s([self.server.web]), []
        for path in paths:
            began = time.monotonic()
            person.get(path)
            seen.append(1000 * (time.monotonic() - began))
        person.close()
        cpu = 1000 * (procfs.cpu_s([self.server.web]) - before) / len(paths)
        self.report.add(self.vendor, f"{name}: p50", "ms", [percentile(seen, 0.5)])
        self.report.add(
            self.vendor, f"{name}: p95", "ms", [percentile(seen, 0.95)], bar=PAGE_BAR_MS
        )
        self.report.add(self.vendor, f"{name}: CPU of the web server", "ms", [cpu])

    def measure_unblocking(self, number: int, waiters: int) -> None:
        """Measure the delay from a ruling to its waiting agent, with `waiters` idle ones."""
        self.print_progress(f"from ruling to agent, {waiters} idle waiters")
        agent = self.connect_agent()
        from_call, from_commit = [], []
        taken = self.take_gates(number)
        with self.run_waiters(waiters):
            for n, gate in enumerate(taken):
                self.people.begin(
                    "rule", gate.id, time.monotonic() + 0.05 + 0.05 * spread_evenly(n)
                )
                received = agent.wait(gate)
                began, ended, refusal = self.people.end()
                if refusal:
                    raise RuntimeError(f"a ruling was refused: {refusal}")
                from_call.append(1000 * (received - began))
                from_commit.append(1000 * max(0.0, received - ended))
        agent.close()
        name = f"ruling to agent, {waiters} idle waiters"
        self.report.add(self.vendor, f"{name}: p50", "ms", [percentile(from_call, 0.5)])
        self.report.add(
            self.vendor, f"{name}: p95", "ms", [percentile(from_call, 0.95)], bar=UNBLOCKED_BAR_MS
        )
        self.report.add(
            self.vendor, f"{name}: p95 from the commit", "ms", [percentile(from_commit, 0.95)]
        )

    def measure_offsets(self, number: int) -> None:
        """Check that agents receive every ruling, at any offset from the begin of the wait."""
        self.print_progress(f"{number:,} rulings at any offset")
        lost, late = 0, []
        for start in range(0, number, AT_ONCE):
            gates = self.take_gates(min(AT_ONCE, number - start))
            at = time.monotonic() + 0.2
            moments = {
                gate: at + OFFSETS_S * spread_evenly(start + n) for n, gate in enumerate(gates)
            }
            gates.sort(key=moments.__getitem__)
            self.people.begin("rule_many", [(gate.id, moments[gate]) for gate in gates])

            def wait(gate: Gate, at: float = at) -> float:
                agent = self.connect_agent()
                time.sleep(max(0.0, at - time.monotonic()))
                try:
                    return agent.wait(gate)
                finally:
                    agent.close()

            with ThreadPoolExecutor(len(gates)) as pool:
                received = list(pool.map(wait, gates))
            for when, (_, ended, _refusal) in zip(received, self.people.end(), strict=True):
                late_s = max(0.0, when - max(ended, at))
                lost += late_s > LOST_AFTER_S
                late.append(1000 * late_s)
        name = f"{number:,} rulings 0 to 2 s after the wait began"
        self.report.add(self.vendor, f"{name}: lost", "", [lost], bar=0)
        self.report.add(self.vendor, f"{name}: p95 from the commit", "ms", [percentile(late, 0.95)])

    def measure_ingest(self, rounds: int, batches: int) -> None:
        """Measure the cost of the waiters for agents that send evidence."""
        seen: dict[int, list[list[float]]] = {0: [], WAITERS: []}
        cpu: dict[int, list[float]] = {0: [], WAITERS: []}
        for number in range(rounds):
            for waiters, values in seen.items():
                self.print_progress(
                    f"evidence with {waiters} waiters, round {number + 1} of {rounds}"
                )
                sent = [
                    Writer(f"w{number}{waiters}{n}").mixed(batches) for n in range(INGEST_CLIENTS)
                ]
                works = [clients.post_batches(self.server.port, self.token, part) for part in sent]
                items = sum(batch.items for part in sent for batch in part)
                with self.run_waiters(waiters):
                    before = self.server.cpu_s()
                    values.append([1000 * value for value in clients.run_together(works).all])
                    cpu[waiters].append(1000 * (self.server.cpu_s() - before) / items)
        for waiters, values in seen.items():
            name = f"evidence with {waiters} waiters: p99"
            self.report.add(
                self.vendor,
                name,
                "ms per batch",
                [percentile(latencies, 0.99) for latencies in values],
            )
            name = f"evidence with {waiters} waiters: CPU"
            self.report.add(self.vendor, name, "CPU-s per 1,000 events", cpu[waiters])
        pooled = {
            waiters: [value for latencies in values for value in latencies]
            for waiters, values in seen.items()
        }
        ratio = percentile(pooled[WAITERS], 0.99) / percentile(pooled[0], 0.99)
        name = f"evidence: p99 with {WAITERS} waiters against none"
        self.report.add(self.vendor, name, "×", [ratio], bar=INGEST_BAR, note="all rounds together")

    def measure_plan(self) -> None:
        """Measure the CPU time that a policy of two hundred rules adds to a plan."""
        self.print_progress(f"a plan against {RULES} rules")
        outcome, spent = self.people.do("plan_cpu", make_rules(), EVALUATIONS)
        if outcome != "ask":
            raise RuntimeError(f"the outcome of the rules is {outcome}")
        name = f"a plan against {RULES} rules"
        mean = {what: sum(values) / len(values) for what, values in spent.items()}
        self.report.add(self.vendor, f"{name}: matching alone", "ms of CPU", [mean["matching"]])
        note = "with loading the active rules; without the database's part"
        self.report.add(
            self.vendor,
            f"{name}: all of it",
            "ms of CPU",
            [mean["all"]],
            bar=PLAN_BAR_MS,
            note=note,
        )


def _make_push(number: int) -> dict[str, Any]:
    arguments = {"refspec": f"HEAD:refs/heads/topic-{number}", "note": "x" * 200}
    return {"tool": "bench.push", "arguments": arguments}


def spread_evenly(number: int) -> float:
    """Return a number from 0 to 1; successive numbers are spread evenly, the same in every run."""
    return number * 0.6180339887 % 1


def make_rules() -> str:
    """Return a policy whose rules all match pushes by tool; the last requires approval."""
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
