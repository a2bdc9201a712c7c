"""Agents that wait for people get the ruling at once, in any moment and after any restart."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from config.supervisor import Child, build_web_server
from tests.api.api_client import NO_TLS
from tests.approvals.reviewer_process import People
from tests.config.server import READY_WITHIN_S, Server, serve

pytestmark = pytest.mark.django_db  # on both databases: they are reached through the server

THREADS = 64
CAP = THREADS - 16
WAIT_S = 55  # the longest wait
# Less than any wait: an answer within this time was woken.
WOKEN_WITHIN_S = 45
# After this time the web server kills a worker that does not stop by itself: later than a slow
# worker needs.
KILLED_AFTER_S = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tests.config.server.build_web_server", patient)
        with serve(tmp_path_factory.mktemp("waiting"), GATEBOOK_THREADS=str(THREADS)) as server:
            yield server


def patient(*given: Any) -> Child:
    """A web server whose workers are killed only after KILLED_AFTER_S."""
    child = build_web_server(*given)
    child.command[child.command.index("--workers-kill-timeout") + 1] = str(KILLED_AFTER_S)
    return child


@pytest.fixture(scope="module")
def clients(server: Server) -> Callable[[], httpx.Client]:
    """Make a client of the agent "tester", with a connection of its own."""
    headers = {"Authorization": f"Bearer {server.token()}"}
    return lambda: httpx.Client(
        base_url=f"{server.url}/api/v1", headers=headers, timeout=WAIT_S + 20, verify=NO_TLS
    )


@pytest.fixture(scope="module")
def people(server: Server, clients: Callable[[], httpx.Client]) -> Iterator[People]:
    with People(server) as group:
        yield group


@pytest.fixture
def agent(clients: Callable[[], httpx.Client]) -> Callable[[], httpx.Client]:
    """An agent client for each waiting request."""
    return clients


def waits(
    client: httpx.Client, gate: str, wait_s: int = WAIT_S, sent: Callable[[], object] = lambda: None
) -> tuple[float, httpx.Response]:
    """Wait for a gate that is known at its first version; return the duration and the answer.
    `sent` is called after sending."""

    def trace(event: str, _more: object) -> None:
        if event == "http11.send_request_body.complete":
            sent()

    began = time.monotonic()
    answer = client.get(
        f"/gates/{gate}", params={"wait": wait_s, "since": 1}, extensions={"trace": trace}
    )
    client.close()
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began, answer


def assert_all_answered(waiting: list[Future[tuple[float, httpx.Response]]], status: str) -> None:
    for future in waiting:
        took_s, answer = future.result()
        assert answer.json()["status"] == status
        assert took_s < WOKEN_WITHIN_S


def test_many_rulings_within_two_seconds_are_all_delivered(
    people: People, agent: Callable[[], httpx.Client]
) -> None:
    gates = people.open(40)
    with ThreadPoolExecutor(40) as pool:
        began = time.monotonic()
        waiting = [pool.submit(waits, agent(), gate) for gate in gates]
        for number, gate in enumerate(gates):
            people.rule(gate, "approve", after_s=max(0.0, began + number * 0.05 - time.monotonic()))
        assert_all_answered(waiting, "approved")


def test_a_ruling_in_the_moment_that_the_agent_begins_to_wait_is_delivered(
    people: People, agent: Callable[[], httpx.Client]
) -> None:
    gates = people.open(15)
    for gate in gates:
        together = threading.Barrier(2)

        def rule(gate: str = gate, together: threading.Barrier = together) -> None:
            together.wait()
            people.rule(gate, "deny")

        with ThreadPoolExecutor(1) as pool:
            ruling, client = pool.submit(rule), agent()
            together.wait()
            took_s, answer = waits(client, gate)
            ruling.result()
        assert answer.json()["status"] == "denied"
        assert took_s < WOKEN_WITHIN_S


def test_many_gates_in_one_request_and_the_first_news_ends_it(
    people: People, agent: Callable[[], httpx.Client]
) -> None:
    gates = people.open(100)
    with agent() as client, ThreadPoolExecutor(1) as pool:
        body = {"gates": dict.fromkeys(gates, 1), "wait": WAIT_S}
        waiting = pool.submit(client.post, "/gates/wait", json=body)
        people.rule(gates[77], "request_changes")
        answer = waiting.result()
    assert answer.status_code == 200
    assert answer.json()["changed"] == [gates[77]]
    assert [gate["id"] for gate in answer.json()["gates"]] == gates
    assert answer.json()["gates"][77]["message"] == "for a good reason"


def test_a_stop_set_while_waiting_is_delivered(
    people: People, agent: Callable[[], httpx.Client]
) -> None:
    (gate,) = people.open()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waits, agent(), gate)
        people.do("stop", people.do("session_of", gate))
        took_s, answer = waiting.result()
    assert took_s < WOKEN_WITHIN_S
    assert answer.json()["stopped"] is True
    assert answer.json()["proceed"] is False
    assert answer.headers["Retry-After"] == "5"


def test_a_deadline_that_passes_while_waiting_is_delivered(
    people: People, agent: Callable[[], httpx.Client]
) -> None:
    (gate,) = people.open(decide_within_s=0.5)
    took_s, answer = waits(agent(), gate)
    assert took_s < WOKEN_WITHIN_S
    assert answer.json()["status"] == answer.json()["reason"] == "expired"
    assert answer.json()["proceed"] is False


def test_a_wait_without_a_ruling_is_answered_with_the_present_state(
    people: People, agent: Callable[[], httpx.Client]
) -> None:
    (gate,) = people.open()
    took_s, answer = waits(agent(), gate, 1)
    assert took_s >= 1
    assert answer.json()["status"] == "pending"
    assert answer.headers["Retry-After"] == "0"


def test_a_lost_line_to_postgresql_loses_no_ruling(
    server: Server, people: People, agent: Callable[[], httpx.Client]
) -> None:
    if server.vendor == "sqlite":
        pytest.skip("there is no line: SQLite reads the file itself")
    gates, lost = people.open(20), 0
    with ThreadPoolExecutor(20) as pool:
        for gate in gates[:10]:
            waiting = pool.submit(waits, agent(), gate)
            lost += people.do(  # some connections are not back yet: the harder case
                "sql",
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE application_name = 'gatebook gate listener' AND datname = current_database()",
            )
            people.rule(gate)
            assert_all_answered([waiting], "approved")
        assert lost >= 1, "the gate listener has a connection of its own"


@pytest.mark.matrix_on_postgresql
def test_waiting_agents_are_answered_at_a_stop_and_get_rulings_after_it(
    server: Server, people: People, agent: Callable[[], httpx.Client]
) -> None:
    gates = people.open(40)
    with ThreadPoolExecutor(40) as pool:
        requested = threading.Semaphore(0)
        waiting = [pool.submit(waits, agent(), gate, WAIT_S, requested.release) for gate in gates]
        assert all(requested.acquire(timeout=60) for _ in gates)
        _, probe = waits(
            agent(), gates[0], 1
        )  # by the time this one is answered, those before it are parked
        assert probe.json()["status"] == "pending"
        stopping = time.monotonic()
        server.child.signal(signal.SIGTERM)
        for future in waiting:
            _, answer = future.result()
            assert answer.json()["status"] == "pending"
            assert answer.headers["Retry-After"] == "1"
        while not server.child.gone():
            assert time.monotonic() - stopping < KILLED_AFTER_S / 2, (
                "a worker does not stop by itself"
            )
            time.sleep(0.01)
        for gate in gates:
            people.rule(gate)
        server.start()
        assert_all_answered([pool.submit(waits, agent(), gate) for gate in gates], "approved")


@pytest.mark.matrix_on_postgresql
def test_a_killed_server_loses_no_ruling(
    server: Server, people: People, agent: Callable[[], httpx.Client]
) -> None:
    if server.vendor == "sqlite":
        pytest.skip("test_agents_that_wait.py kills the server on SQLite")
    (gate,) = people.open()

    def wait_until_ready() -> httpx.Response:
        until = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < until:
            try:
                return waits(agent(), gate)[1]
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("the server did not come back")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_until_ready)
        server.kill()
        people.rule(gate)
        server.start()
        assert waiting.result().json()["status"] == "approved"


@pytest.mark.matrix_on_postgresql
def test_above_the_cap_the_answer_comes_at_once_and_everything_else_goes_on(
    server: Server, people: People, clients: Callable[[], httpx.Client]
) -> None:
    workers = 1 if server.vendor == "sqlite" else 2
    capacity, asking = CAP * workers, CAP * workers + 10
    with ThreadPoolExecutor(asking) as pool:
        (gate,) = people.open()
        waiting = [pool.submit(waits, clients(), gate) for _ in range(asking)]
        until = time.monotonic() + WAIT_S / 2
        while sum(future.done() for future in waiting) < asking - capacity:
            assert time.monotonic() < until, "those above the cap were kept waiting"
            time.sleep(0.01)
        with clients() as client:
            for number in range(40):
                item = {"id": f"f-{number}", "kind": "session.started", "session": "busy"}
                assert client.post("/events", json=[item]).status_code == 200
        sent_away = [future.result()[1] for future in waiting if future.done()]
        people.rule(gate)
        answers = [future.result() for future in waiting]
    assert {answer.headers["Retry-After"] for answer in sent_away} == {"1"}
    assert {answer.json()["status"] for answer in sent_away} == {"pending"}
    woken_s = [took_s for took_s, answer in answers if answer.json()["status"] == "approved"]
    assert len(woken_s) >= 10, "no agent waited"
    assert len(woken_s) <= capacity
    assert all(took_s < WOKEN_WITHIN_S for took_s in woken_s)
