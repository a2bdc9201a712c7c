"""Slow, silent and too many clients: other clients are served without delay."""

import hashlib
import json
import os
import re
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import httpx
import pytest

from tests.api.api_client import Caller, new_key
from tests.config.raw_sockets import PATIENCE_S, Answer, Wire, close_all
from tests.config.server import THREADS, Server, serve

MIB = 1024 * 1024
STRICT_S = 0.5  # the strict server waits for a client
CONNECTIONS = 100  # of the patient server: more than a test has slow clients
Result = TypeVar("Result")
ARTIFACT = b"unread" * (2 * MIB)  # more than the system keeps for a client that does not read


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server with timeouts longer than a test, so that slow clients stay connected.

    Two proxies are configured in front of the server, one of them local as by default.
    """
    with serve(
        tmp_path_factory.mktemp("patient"),
        GATEBOOK_CLIENT_TIMEOUT_S="600",
        GATEBOOK_CONNECTIONS=str(CONNECTIONS),
        GATEBOOK_CONNECTIONS_PER_ADDRESS="10",
        GATEBOOK_PROXIES="127.0.0.1,127.0.0.9",
    ) as server:
        yield server


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server with short timeouts."""
    folder = tmp_path_factory.mktemp("strict")
    with serve(folder, GATEBOOK_CLIENT_TIMEOUT_S=str(STRICT_S)) as server:
        yield server


def repeat_until_in_time(attempt: Callable[[], Result | None]) -> Result:
    """Return the first result: on a busy machine this client is too slow for the strict server."""
    until = time.monotonic() + PATIENCE_S
    while (result := attempt()) is None:
        assert time.monotonic() < until, "the server gave no client in time an answer"
    return result


def bearer(token: str) -> str:
    return f"Authorization: Bearer {token}"


def store(agent: Caller, data: bytes) -> str:
    """Store an artifact and return the path of its bytes."""
    agent.session("slow")
    about = {"session": "slow", "type": "log", "media_type": "text/plain", "size": len(data)}
    artifact = agent.post(
        "/artifacts", {**about, "sha256": hashlib.sha256(data).hexdigest()}
    ).json()
    assert (
        agent.client.put(artifact["upload"].removeprefix("/api/v1"), content=data).status_code
        == 200
    )
    return str(artifact["upload"])


def slow_clients(server: Server, token: str, artifact: str, each: int) -> list[Wire]:
    """Open `each` clients of every kind: partial head, partial body, no body, unread answer."""
    wires = [Wire(server.url) for _ in range(8 * each)]
    counted = "Content-Length: 4000"
    for number in range(0, len(wires), 8):
        clients = iter(wires[number : number + 8])
        next(clients).send("POST /api/v1/events", counted)
        next(clients).send(
            "POST /api/v1/events", counted, bearer(token), "Content-Type: application/json"
        )
        next(clients).send(
            "POST /sign-in/",
            counted,
            "Content-Type: application/x-www-form-urlencoded",
            body=b"username=a",
        )
        next(clients).send(
            "POST /api/v1/events", "Transfer-Encoding: chunked", bearer(token), body=b"5\r\n["
        )
        next(clients).send(
            "PUT " + artifact, "Content-Length: 60000000", bearer(token), body=b"u" * 20_000
        )
        next(clients).send("GET /healthz", "X-Long: and so on", end=False)
        next(clients).send("GET " + artifact, bearer(token))
        next(clients)  # sends nothing
    return wires


@pytest.mark.skipif(
    THREADS > 8, reason="the server must have fewer threads than there are slow clients"
)
def test_slow_clients_occupy_no_thread(patient: Server) -> None:
    agent = Caller(patient.token("slow"), address=patient.url)
    artifact = store(agent, ARTIFACT)
    wires = slow_clients(patient, agent.token, artifact, each=10)
    try:
        # Requests after them, on separate connections, more than there are threads.
        for _ in range(2 * THREADS):
            with httpx.Client(base_url=patient.url, timeout=PATIENCE_S) as person:
                assert person.get("/healthz").text == "ok\n"
        for number in range(2 * THREADS):
            agent.plan(f"e-{number}", session="slow")
        with httpx.Client(base_url=patient.url, timeout=PATIENCE_S) as person:
            token = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', person.get("/sign-in/").text)
            assert token is not None
            form = {
                "username": patient.administrator,
                "password": patient.password,
                "csrfmiddlewaretoken": token[1],
            }
            assert person.post("/sign-in/", data=form).status_code == 302
            assert person.get("/approvals/").status_code in (200, 302)
        waiting = [wire for wire in wires if wire.is_open()]
        assert len(waiting) >= 70, "the slow ones are still being served"
    finally:
        close_all(wires)


@pytest.mark.once
@pytest.mark.parametrize(
    ("line", "headers", "body", "status"),
    [
        ("POST /api/v1/events", ["Content-Length: 100"], b"", 408),
        ("POST /api/v1/events", ["Content-Length: 100"], b"[", 408),
        ("POST /api/v1/events", ["Transfer-Encoding: chunked"], b"5\r\n[", 408),
        ("POST /sign-in/", ["Content-Length: 100"], b"username=", 408),
    ],
    ids=str,
)
@pytest.mark.parametrize("has_token", [False, True], ids=["without token", "with token"])
def test_a_missing_body_times_out(
    strict: Server, line: str, headers: list[str], body: bytes, status: int, has_token: bool
) -> None:
    more = [bearer(strict.token("slow"))] if has_token else []

    def ask() -> Answer | None:
        with Wire(strict.url) as wire:
            answer = wire.send(line, *headers, *more, body=body).read()
            assert not answer.status or wire.socket.recv(1) == b""
            return answer if answer.status else None  # it waited too long for the first byte

    answer = repeat_until_in_time(ask)
    assert answer.status == status
    assert "connection: close" in answer.head
    if "/api/" in line:
        assert json.loads(answer.content)["code"] == "request_too_slow"


@pytest.mark.once
def test_a_missing_head_times_out(strict: Server) -> None:
    def ask() -> int | None:
        with Wire(strict.url) as wire:
            wire.send("GET /healthz", "X-Long: and so on", end=False)
            return wire.read().status or None  # it waited too long for the first byte

    assert repeat_until_in_time(ask) == 408
    with Wire(strict.url) as wire:
        assert wire.socket.recv(1) == b""  # without a request there is no answer


@pytest.mark.once
def test_a_response_that_is_not_read_is_given_up(strict: Server) -> None:
    agent = Caller(strict.token("slow"), address=strict.url)

    def upload() -> str | None:
        with suppress(httpx.TransportError, AssertionError):
            return store(agent, ARTIFACT)
        return None

    def leave_unread() -> bool | None:
        with Wire(strict.url) as wire:
            wire.send(f"GET {artifact}", bearer(agent.token))
            try:
                begins = wire.socket.recv(9, socket.MSG_PEEK)
            except ConnectionError:
                begins = b""
            if begins != b"HTTP/1.1 ":
                return None  # it waited too long for the first byte
            gone = select.poll()
            gone.register(wire.socket, select.POLLERR)  # so no further data is read
            assert gone.poll(PATIENCE_S * 1000)
            return True

    def download() -> bytes | None:
        with suppress(httpx.TransportError):
            answer = agent.client.get(artifact.removeprefix("/api/v1"))
            return answer.content if answer.status_code == 200 else None
        return None

    artifact = repeat_until_in_time(upload)
    repeat_until_in_time(leave_unread)
    assert repeat_until_in_time(download) == ARTIFACT


@pytest.mark.once
def test_a_body_of_a_stranger_is_refused_before_it_is_sent(patient: Server) -> None:
    token = patient.token("slow")
    announced = "Content-Length: 1000000"
    for more in ([], [bearer("gbk_abcdefgh_" + "a" * 43)], ["Expect: 100-continue"]):
        with Wire(patient.url) as wire:
            answer = wire.send("POST /api/v1/events", announced, *more).read()
            assert (answer.status, json.loads(answer.content)["code"]) == (401, "unauthorized")
            assert wire.socket.recv(1) == b""
        with Wire(patient.url) as wire:
            answer = wire.send("POST /sign-in/", announced, *more).read()
            assert (answer.status, wire.socket.recv(1)) == (403, b"")
    with Wire(patient.url) as wire:
        # In chunks, whose number is not announced.
        wire.send(
            "POST /api/v1/events", "Transfer-Encoding: chunked", body=b"2800\r\n" + b"x" * 0x2800
        )
        assert wire.read().status == 401
    with Wire(patient.url) as wire:
        body = json.dumps(
            [{"id": new_key(), "kind": "moon.risen", "session": "s", "text": "x" * 20_000}]
        ).encode()
        wire.send(
            "POST /api/v1/events",
            f"Content-Length: {len(body)}",
            "Expect: 100-continue",
            "Content-Type: application/json",
            bearer(token),
        )
        assert wire.read().status == 100
        wire.socket.sendall(body)
        assert wire.read().status == 200


def test_a_cookie_that_no_database_accepts_occupies_no_connection(patient: Server) -> None:
    with Wire(patient.url) as wire:
        wire.send("POST /sign-in/", "Content-Length: 1000000", 'Cookie: gatebook="\\000abcdefgh"')
        assert wire.read().status == 403


@pytest.mark.once
def test_too_large_a_body_is_refused_before_it_is_sent(patient: Server) -> None:
    announced, token = "Content-Length: 5000000", bearer(patient.token("slow"))
    with Wire(patient.url) as wire:
        answer = wire.send(
            "POST /api/v1/events", announced, token, "Content-Type: application/json"
        ).read()
        assert (answer.status, json.loads(answer.content)["code"]) == (413, "body_too_large")
    with Wire(patient.url) as wire:
        assert wire.send("POST /sign-in/", announced).read().status == 413
    with Wire(patient.url) as wire:
        assert wire.send("GET /healthz", "X-Long: " + "x" * 100_000).read().status == 431


@pytest.mark.once
def test_one_address_has_so_many_connections_and_others_have_theirs(patient: Server) -> None:
    if patient.vendor != "sqlite":
        pytest.skip("each of the two processes counts for itself")
    wires = [Wire(patient.url, "127.0.0.2") for _ in range(10)]
    try:
        for wire in wires:  # each answered, so the connection is open and kept
            assert wire.send("GET /healthz").read().status == 200
        with Wire(patient.url, "127.0.0.2") as wire:
            answer = wire.read()
            assert (answer.status, "retry-after: 5" in answer.head) == (429, True)
        with Wire(patient.url, "127.0.0.3") as wire:
            assert wire.send("GET /healthz").read().status == 200
        wires.pop().socket.close()
        while True:  # the place is free once the server has seen the end
            with Wire(patient.url, "127.0.0.2") as wire:
                if wire.send("GET /healthz").read().status == 200:
                    break
    finally:
        close_all(wires)


@pytest.mark.once
def test_behind_a_proxy_the_forwarded_address_is_counted(patient: Server) -> None:
    if patient.vendor != "sqlite":
        pytest.skip("each of the two processes counts for itself")

    def ask(client: str) -> Wire:
        # Values of the client precede the value that the proxy adds to the header.
        forwarded = f"X-Forwarded-For: 192.0.2.{len(wires)}, {client}"
        wire = Wire(patient.url, "127.0.0.9")
        return wire.send("POST /sign-in/", "Content-Length: 9", "Expect: 100-continue", forwarded)

    wires: list[Wire] = []
    try:
        for _ in range(10):
            wires.append(ask("203.0.113.7"))
            assert wires[-1].read().status == 100  # now the server waits for its body
        with ask("203.0.113.7") as wire:
            assert wire.read().status == 429
        with ask("203.0.113.8") as wire:
            assert wire.read().status == 100
        # The header alone does not make a client a proxy.
        with Wire(patient.url, "127.0.0.4") as wire:
            assert wire.send("GET /healthz", "X-Forwarded-For: 203.0.113.7").read().status == 200
    finally:
        close_all(wires)


@pytest.mark.once
def test_at_the_connection_limit_the_longest_waiting_one_is_closed(patient: Server) -> None:
    wires = [Wire(patient.url, f"127.0.1.{number // 8}") for number in range(CONNECTIONS + 20)]
    try:
        with Wire(patient.url, "127.0.2.1") as wire:
            assert wire.send("GET /healthz").read().status == 200
        assert wires[0].socket.recv(1) == b""
    finally:
        close_all(wires)


@pytest.mark.once
def test_idle_connections_are_closed_for_new_ones(patient: Server) -> None:
    wires: list[Wire] = []
    try:
        for number in range(CONNECTIONS + 20):  # each is answered at once and then idle
            wires.append(Wire(patient.url, f"127.0.3.{number // 8}"))
            assert wires[-1].send("GET /healthz").read().status == 200
    finally:
        close_all(wires)


@pytest.mark.once
def test_behind_a_proxy_an_answered_request_occupies_no_place(patient: Server) -> None:
    wires: list[Wire] = []
    try:
        for _ in range(10):
            wires.append(Wire(patient.url, "127.0.0.9"))
            assert (
                wires[-1].send("GET /healthz", "X-Forwarded-For: 203.0.113.20").read().status == 200
            )
        for _ in range(200):  # the place is free once the server has noticed that it has answered
            with Wire(patient.url, "127.0.0.9") as wire:
                if wire.send("GET /healthz", "X-Forwarded-For: 203.0.113.20").read().status == 200:
                    break
        else:
            pytest.fail("a place was not given back")
    finally:
        close_all(wires)


@pytest.mark.once
def test_time_in_which_the_server_is_halted_is_not_the_client_s(strict: Server) -> None:
    assert strict.child.process is not None
    group = strict.child.process.pid

    def ask() -> int | None:
        with Wire(strict.url) as wire:
            wire.send("POST /api/v1/events", "Content-Length: 2", "Expect: 100-continue")
            if wire.read().status != 100:
                return None
            os.killpg(group, signal.SIGSTOP)
            try:
                wire.socket.sendall(b"[]")
                time.sleep(2 * STRICT_S)
            finally:
                os.killpg(group, signal.SIGCONT)
            status = wire.read().status
            return None if status == 408 else status  # the time before the halt is the client's

    assert repeat_until_in_time(ask) == 401


@pytest.mark.once
def test_requests_that_are_sent_ahead_are_answered_in_order(patient: Server) -> None:
    token = bearer(patient.token("slow"))
    with Wire(patient.url) as wire:
        request = f"HTTP/1.1\r\nHost: {wire.host}\r\n"
        wire.socket.sendall(
            f"GET /api/v1/limits {request}{token}\r\n\r\n"
            f"POST /api/v1/events {request}Content-Length: 2\r\n\r\n[]"
            f"GET /healthz {request}\r\n"
            f"GET /healthz {request}Connection: close\r\n\r\nGET /not-answered "
            f"{request}\r\n".encode()
        )
        assert [wire.read().status for _ in range(5)] == [200, 401, 200, 200, 0]


@pytest.mark.once
def test_headers_with_underscores_do_not_replace_others(strict: Server, patient: Server) -> None:
    raw = b'{"key": "underscored"}'
    counted = (
        f"Content-Length: {len(raw)}",
        "Content-Type: application/json",
        bearer(patient.token("slow")),
    )
    with Wire(patient.url) as wire:
        answer = wire.send(
            "POST /api/v1/sessions", *counted, f"Idempotency_Key: {new_key()}", body=raw
        ).read()
        assert (answer.status, json.loads(answer.content)["code"]) == (
            400,
            "idempotency_key_missing",
        )
        own = f"Idempotency-Key: {new_key()}"
        answer = wire.send(
            "POST /api/v1/sessions", *counted, own, "Idempotency_Key: other", body=raw
        ).read()
        assert answer.status == 201


@pytest.mark.once
def test_a_proxy_s_word_for_https_is_not_taken_from_an_underscore(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        serve(tmp_path_factory.mktemp("https"), GATEBOOK_HTTPS="1") as server,
        Wire(server.url) as wire,
    ):
        assert wire.send("GET /sign-in/", "X-Forwarded-Proto: https").read().status == 200
        assert wire.send("GET /sign-in/", "X_Forwarded_Proto: https").read().status == 301
        both = wire.send(
            "GET /sign-in/", "X-Forwarded-Proto: http", "X_Forwarded_Proto: https"
        ).read()
        assert both.status == 301
