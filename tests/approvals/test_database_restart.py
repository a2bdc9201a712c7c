"""PostgreSQL ends and comes back around rulings: each recorded ruling stays and is delivered
once."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.api.api_client import NO_TLS, Caller, code, new_key
from tests.approvals.retrying_clients import Browser, RetryingCaller
from tests.config.cluster import Cluster, cluster
from tests.config.server import ROOT, Server, serve

RULES = "name: all\nrules:\n  - {id: all, title: Everything, match: {}, outcome: require}\n"
WRITERS, WRITTEN = 3, 6
PLAN = {"tool": "file.edit"}
RULING_ROW = """
SELECT g.status, e.permission, (SELECT count(*) FROM approvals_vote v WHERE v.gate_id = g.id),
    (SELECT array_agg(kind ORDER BY position) FROM journal_entry j WHERE j.subject = g.id AND j.kind LIKE 'gate.%%')
FROM approvals_gate g JOIN ledger_effect e ON e.id = g.effect_id WHERE g.id = %s
"""


@dataclass
class Place:
    """A server on a PostgreSQL of this file alone, an agent whose every plan waits, and a
    reviewer."""

    base: Cluster
    server: Server
    token: str
    person: Browser

    def agent(self) -> Caller:
        return Caller(self.token, address=self.server.url)

    def open(self, number: int) -> list[str]:
        """Plan so many gates."""
        agent = self.agent()
        return [
            agent.plan(new_key(), arguments={"n": new_key()}, **PLAN)["gate"]["id"]
            for _ in range(number)
        ]

    def workers(self) -> set[str]:
        """The ids of the serving processes."""
        assert self.server.child.process is not None
        first = self.server.child.process.pid
        return {str(first), *Path(f"/proc/{first}/task/{first}/children").read_text().split()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("restart")
    rules = folder / "policies.yaml"
    rules.write_text(RULES)
    with (
        cluster() as base,
        serve(folder / "var", database=base.url, GATEBOOK_THREADS="64") as server,
    ):
        server.manage("load_tools", str(ROOT / "evaluation" / "demo_tools.yaml"))
        server.manage("load_policies", str(rules), "--activate", "enforce")
        place = Place(
            base, server, server.token(), Browser(server.url, server.administrator, server.password)
        )
        place.agent().session("s-1")
        yield place


def writes(place: Place, name: str) -> int:
    """Plan effects one after the other, each until it is accepted; return the number of
    refusals."""
    retrying_caller = RetryingCaller(place.agent())
    for number in range(WRITTEN):
        body = {
            "session": "s-1",
            "effect_key": f"{name}-{number}",
            "arguments": {"n": number},
            **PLAN,
        }
        retrying_caller.post("/effects", body)
    return len(retrying_caller.refused)


@pytest.mark.parametrize("mode", ["fast", "kill"])
def test_every_ruling_around_a_restart_of_postgresql_is_kept_once_and_delivered(
    place: Place, mode: str
) -> None:
    gates = place.open(14)
    before, moment, down, after, later = (
        gates[:2],
        gates[2:8],
        gates[8:10],
        gates[10:12],
        gates[12:],
    )
    person, workers, recorded = place.person, place.workers(), set()
    forms = {gate: person.load_form(gate) for gate in gates}
    stopping = threading.Event()

    def rules(gate: str, after_s: float) -> None:
        assert stopping.wait(30)
        time.sleep(after_s)
        send(gate)

    def send(gate: str) -> None:
        answer = person.send(gate, forms[gate] or {})
        if answer.status_code == 302:
            recorded.add(gate)
        else:
            assert_calm(answer)

    with ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(RetryingCaller(place.agent()).wait, gate) for gate in gates[:-4]]
        many = pool.submit(RetryingCaller(place.agent()).wait_for, gates[-4:])
        send(before[0])
        assert waiting[0].result()["status"] == "approved"
        writers = [pool.submit(writes, place, f"{mode}-{number}") for number in range(WRITERS)]
        ruling = [pool.submit(rules, gate, number * 0.004) for number, gate in enumerate(moment)]
        send(before[1])
        stopping.set()
        place.base.stop(mode)
        ruling += [pool.submit(send, gate) for gate in down]
        place.base.start()
        for gate in after:
            # A busy server may need longer than its pool waits for a connection.
            until = time.monotonic() + 60
            while gate not in recorded and time.monotonic() < until:
                send(gate)
        for done in ruling:
            done.result()
        assert set(before) | set(after) <= recorded
        stored = {gate: place.base.rows(RULING_ROW, gate)[0] for gate in recorded}
        for gate in set(gates) - recorded - set(later):
            person.vote_until_recorded(gate)
        for gate in later:
            person.vote_until_recorded(gate)
        delivered = [future.result() for future in waiting] + many.result()
        assert all(isinstance(done.result(), int) for done in writers)
    assert [entry["id"] for entry in delivered] == gates
    assert {entry["status"] for entry in delivered} == {"approved"}
    once = ("approved", "granted", 1, ["gate.requested", "gate.voted", "gate.ruled"])
    assert set(map(str, stored.values())) == {str(once)}, (
        "a ruling that was answered as recorded is not there"
    )
    assert [place.base.rows(RULING_ROW, gate)[0] for gate in gates] == [once] * len(gates)
    planned = place.base.rows(
        "SELECT count(*) FROM ledger_effect WHERE effect_key LIKE %s", f"{mode}-%"
    )
    assert planned == [(WRITERS * WRITTEN,)]
    assert place.workers() == workers, "the server was restarted"


def assert_calm(answer: httpx.Response) -> None:
    """Fail unless the page tells a person in plain words that it did not work, and when to
    retry."""
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2"), answer.text
    assert "<h1>Gatebook is temporarily unavailable</h1>" in answer.text
    assert "Nothing was recorded" in answer.text or "may or may not be recorded" in answer.text


def test_while_postgresql_is_away_clients_are_asked_to_retry_and_then_continue(
    place: Place,
) -> None:
    (gate,) = place.open(1)
    form, agent = place.person.load_form(gate), place.agent()
    assert form is not None
    plan = {"session": "s-1", "effect_key": new_key(), "arguments": {"n": 1}, **PLAN}
    with ThreadPoolExecutor(8) as pool:
        waiting = pool.submit(RetryingCaller(place.agent()).wait, gate)
        place.base.stop("fast")
        people = [
            pool.submit(place.person.send, gate, form),
            pool.submit(place.person.client.get, f"/approvals/{gate}/"),
            pool.submit(httpx.get, f"{place.server.url}/sign-in/", timeout=30),
        ]
        agents: list[Future[httpx.Response]] = [
            pool.submit(agent.post, "/effects", plan),
            pool.submit(agent.get, f"/gates/{gate}", wait=1),
            pool.submit(agent.post, "/gates/wait", {"gates": {gate: 1}, "wait": 1}),
        ]
        ready = pool.submit(
            httpx.get, f"{place.server.url}/readyz", timeout=30
        )  # it waits its five seconds, too
        for answer in (future.result() for future in people[:2]):
            assert_calm(answer)
        assert people[2].result().status_code == 200, (
            "whoever is not signed in needs no database to see the form"
        )
        for answer in (future.result() for future in agents):
            assert code(answer) == (503, "unavailable")
            assert answer.headers["Retry-After"] == "1"
        assert (ready.result().status_code, ready.result().text) == (
            503,
            "not ready: the database does not answer\n",
        )
        place.base.start()
        assert place.person.load_form(gate) is not None, (
            "a ruling was recorded that was answered as not recorded"
        )
        # The other process of the server may have no connection yet.
        assert RetryingCaller(agent).post("/effects", plan).status_code == 201
        place.person.vote_until_recorded(gate)
        assert waiting.result()["status"] == "approved"


def test_after_a_failover_the_pool_lets_go_of_the_read_only_server(place: Place) -> None:
    """Connections to a demoted server stay open; Gatebook is not restarted."""
    agent, readyz = place.agent(), f"{place.server.url}/readyz"
    address = place.base.url.rpartition("/")[0] + "/postgres"
    with psycopg.connect(address, autocommit=True) as operator:
        operator.execute("ALTER DATABASE gatebook SET default_transaction_read_only = on")
        operator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'gatebook'"
        )
        answers = [agent.post("/sessions", {"key": f"read-only-{number}"}) for number in range(6)]
        assert {code(answer) for answer in answers} == {(503, "unavailable")}
        assert "read-only" in answers[-1].json()["detail"]
        assert (
            httpx.get(readyz, verify=NO_TLS, timeout=60).text
            == "not ready: the database is read-only\n"
        )
        operator.execute("ALTER DATABASE gatebook RESET default_transaction_read_only")
    answers = [agent.post("/sessions", {"key": f"after-{number}"}) for number in range(60)]
    # Each connection opened in between is detected once, and closed.
    assert len([answer for answer in answers if answer.status_code != 201]) <= 48
    assert {answer.status_code for answer in answers[-10:]} == {201}
