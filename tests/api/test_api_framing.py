"""The real server: complete, chunked, truncated and miscounted bodies over a socket."""

import gzip
import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.api.api_client import Caller, code, new_key
from tests.config.server import Server


@pytest.fixture(scope="module")
def agent(live_server_process: Server) -> Caller:
    agent = Caller(live_server_process.token("framing"), address=live_server_process.url)
    agent.session("s-1")
    return agent


def send_raw(
    agent: Caller,
    head: str,
    *parts: bytes,
    method: str = "POST",
    path: str = "/sessions",
    key: str = "",
    hang_up: bool = False,
) -> tuple[int, Any]:
    """Send a request byte for byte and return the status and the JSON of the answer (0 and None for
    no answer).

    With `hang_up` the client closes its side after the last byte.
    """
    address = urlsplit(str(agent.client.base_url))
    lines = [
        f"{method} /api/v1{path} HTTP/1.1",
        f"Host: {address.netloc}",
        f"Authorization: Bearer {agent.token}",
        f"Idempotency-Key: {key or new_key()}",
        *([] if "Content-Type" in head else ["Content-Type: application/json"]),
        *([head] if head else []),
        "Connection: close",
    ]
    with socket.create_connection((address.hostname or "", address.port or 80), timeout=30) as wire:
        answer = b""
        try:
            wire.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
            for part in parts:
                wire.sendall(part)
            if hang_up:
                wire.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # the server has read enough and answered already
        try:
            while data := wire.recv(65_536):
                answer += data
        except ConnectionError:
            pass
    if not answer:
        return 0, None
    top, _, body = answer.partition(b"\r\n\r\n")
    status = int(top.split(b" ")[1])
    if b"transfer-encoding: chunked" in top.lower():
        body = b"".join(body.split(b"\r\n")[1::2])
    try:
        return status, json.loads(body)
    except ValueError:
        return status, None


def chunks(data: bytes, size: int = 7) -> list[bytes]:
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    return [b"%x\r\n%s\r\n" % (len(part), part) for part in parts]


def keys(agent: Caller) -> set[str]:
    return {session["key"] for session in agent.get("/sessions", limit=200).json()["items"]}


def session(key: str) -> bytes:
    return json.dumps({"key": key, "title": "\u00e9" * 50}).encode()


CHUNKED = "Transfer-Encoding: chunked"


def test_a_body_in_chunks_is_read_to_its_end(agent: Caller) -> None:
    key = new_key()
    assert send_raw(agent, CHUNKED, *chunks(session(key)), b"0\r\n\r\n")[0] == 201
    assert agent.get("/sessions", key=key).json()["items"][0]["title"] == "\u00e9" * 50
    items = [{"id": new_key(), "kind": "moon.risen", "session": key, "n": n} for n in range(500)]

    def stream() -> Iterator[bytes]:
        for item in items:
            yield json.dumps(item).encode() + b"\n"

    answer = agent.client.post(
        "/events", content=stream(), headers={"Content-Type": "application/x-ndjson"}
    )
    assert (answer.status_code, answer.json()["accepted"]) == (200, 500)
    data = b"\0\xff" * 500_000
    about = {"session": key, "type": "log", "media_type": "text/plain", "size": len(data)}
    artifact = agent.post(
        "/artifacts", {**about, "sha256": hashlib.sha256(data).hexdigest()}
    ).json()
    path = artifact["upload"].removeprefix("/api/v1")
    parts = [data[start : start + 99_999] for start in range(0, len(data), 99_999)]
    assert agent.client.put(path, content=iter(parts)).json()["stored"] is True
    assert agent.client.get(path).content == data


def test_an_empty_body_in_chunks_is_empty(agent: Caller) -> None:
    assert send_raw(agent, CHUNKED, b"0\r\n\r\n")[0] == 422
    task = agent.post(f"/sessions/{agent.session('s-1')['id']}/tasks", {"key": new_key()}).json()
    assert send_raw(agent, CHUNKED, b"0\r\n\r\n", path=f"/tasks/{task['id']}/done")[0] == 200
    assert send_raw(agent, "Content-Length: 0", path=f"/tasks/{task['id']}/done")[0] == 200
    assert send_raw(agent, "", path=f"/tasks/{task['id']}/done")[0] == 200


ENDS = {
    "no end": b"",
    "a short chunk": b"5\r\nab",
    "no size": b"zz\r\n",
    "a negative size": b"-1\r\n\r\n",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_document_in_chunks_that_breaks_off_is_not_taken(agent: Caller, end: str) -> None:
    before, raw = keys(agent), session(new_key())
    for cut in (1, len(raw) // 2, len(raw) - 1):
        status, problem = send_raw(agent, CHUNKED, *chunks(raw[:cut]), ENDS[end], hang_up=True)
        assert (status, problem["code"]) == (400, "body_incomplete")
    packed = gzip.compress(raw)
    for cut in (len(packed) // 2, len(packed) - 1):
        head = f"{CHUNKED}\r\nContent-Encoding: gzip"
        assert send_raw(agent, head, *chunks(packed[:cut]), ENDS[end], hang_up=True)[0] == 400
    assert keys(agent) == before


def test_truncated_chunks_of_lines_are_not_stored(agent: Caller) -> None:
    lines = [
        json.dumps({"id": new_key(), "kind": "moon.risen", "session": "s-1"}).encode() + b"\n"
        for _ in range(4)
    ]
    ids = [json.loads(line)["id"] for line in lines]

    def are_recorded() -> list[bool]:
        return [agent.get("/events/receipt", id=event_id).status_code == 200 for event_id in ids]

    def send(query: str) -> tuple[int, Any]:
        head = f"{CHUNKED}\r\nContent-Type: application/x-ndjson"
        return send_raw(
            agent,
            head,
            *chunks(b"".join(lines[:2]) + lines[2][:9]),
            path=f"/events{query}",
            hang_up=True,
        )

    for query in ("?atomic=true", ""):
        status, problem = send(query)
        assert (status, problem["code"]) == (400, "body_incomplete")
        assert are_recorded() == [False] * 4
    head = f"{CHUNKED}\r\nContent-Type: application/x-ndjson"
    assert (
        send_raw(agent, head, *chunks(b"".join(lines)), b"0\r\n\r\n", path="/events?atomic=true")[0]
        == 200
    )
    assert are_recorded() == [True] * 4


def test_a_body_shorter_than_announced_is_not_taken(agent: Caller) -> None:
    before, raw = keys(agent), session(new_key())
    status, problem = send_raw(agent, f"Content-Length: {len(raw) + 1}", raw, hang_up=True)
    assert (status, problem["code"]) == (400, "body_incomplete")
    assert keys(agent) == before


def test_a_body_longer_than_announced_is_cut_where_it_was_announced(agent: Caller) -> None:
    before, raw = keys(agent), session(new_key())
    status, problem = send_raw(agent, f"Content-Length: {len(raw) - 1}", raw)
    assert (status, problem["code"]) == (422, "json_syntax")
    assert keys(agent) == before


@pytest.mark.parametrize(
    "head", ["Content-Length: x", "Content-Length: -1", "Content-Length: 5\r\nContent-Length: 6"]
)
def test_a_length_that_is_none_is_refused(agent: Caller, head: str) -> None:
    before = keys(agent)
    status, _ = send_raw(agent, head, session(new_key()))
    assert status in (0, 400)
    assert keys(agent) == before


def test_length_and_chunks_together_are_one_body_or_none(agent: Caller) -> None:
    inner = new_key()
    raw = session(new_key())
    smuggled = b"POST /api/v1/sessions HTTP/1.1\r\nHost: x\r\n\r\n" + session(inner)
    status, _ = send_raw(
        agent, f"{CHUNKED}\r\nContent-Length: 4", *chunks(raw), b"0\r\n\r\n", smuggled
    )
    assert status in (0, 201, 400)
    assert inner not in keys(agent)


def test_too_large_a_body_is_refused_by_its_announcement_and_by_its_bytes(agent: Caller) -> None:
    big = session("x") + b" " * 300_000
    status, problem = send_raw(agent, f"Content-Length: {len(big)}", big)
    assert (status, problem and problem["code"]) in ((413, "body_too_large"), (0, None))
    answer = agent.client.post(
        "/sessions",
        content=iter([big]),
        headers={"Idempotency-Key": new_key(), "Content-Type": "application/json"},
    )
    assert code(answer) == (413, "body_too_large")


def test_a_key_that_is_not_ascii_is_refused(agent: Caller) -> None:
    raw = session(new_key())
    for key in ("\xe9", "a\tb", "a b", "x" * 65):
        status, problem = send_raw(agent, f"Content-Length: {len(raw)}", raw, key=key)
        assert (status, problem["code"]) == (400, "idempotency_key_invalid")


def test_a_refusal_leaves_the_connection_fit_for_the_next_request(agent: Caller) -> None:
    big = [
        {"id": new_key(), "kind": "moon.risen", "session": "s", "text": "x" * 200_000}
        for _ in range(10)
    ]
    # A separate client, because other tests affect the shared one.
    fresh = Caller(agent.token, address=str(agent.client.base_url).removesuffix("/api/v1/"))
    for _ in range(3):
        refused = fresh.client.post("/events", json=big, headers={"Authorization": "Bearer none"})
        assert refused.status_code == 401
        assert fresh.get("/limits").status_code == 200


def test_a_slow_upload_delays_no_other_request(agent: Caller) -> None:
    data = b"slowly" * 1000
    about = {"session": "s-1", "type": "log", "media_type": "text/plain", "size": len(data)}
    artifact = agent.post(
        "/artifacts", {**about, "sha256": hashlib.sha256(data).hexdigest()}
    ).json()
    address = urlsplit(str(agent.client.base_url))
    with socket.create_connection((address.hostname or "", address.port or 80), timeout=30) as wire:
        wire.sendall(
            f"PUT {artifact['upload']} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
            f"Authorization: Bearer {agent.token}\r\n\r\n".encode()
            + data[:3000]
        )
        # If the upload had the turn of the writer, this would wait.
        for _ in range(5):
            agent.session(new_key())
        wire.sendall(data[3000:])
        assert wire.recv(65_536).startswith(b"HTTP/1.1 200")
    assert agent.client.get(artifact["upload"].removeprefix("/api/v1")).content == data


def test_a_packed_bomb_takes_no_memory(agent: Caller, live_server_process: Server) -> None:
    good = gzip.compress(b"[" + b" " * (4 * 1024 * 1024 - 2) + b"]", 1)
    headers = {"Content_Encoding": "gzip"}
    for _ in range(24):  # until every thread has read its largest body
        assert agent.raw("/events", good, **headers).status_code == 200
    before = peak(live_server_process)
    bomb = gzip.compress(b"[" + b" " * 100_000_000, 1)
    for _ in range(4):
        assert code(agent.raw("/events", bomb, **headers)) == (413, "body_too_large")
    assert peak(live_server_process) - before < 10 * 1024


def peak(server: Server) -> int:
    """Return the sum of the peak memory of all processes of the server, in KiB."""
    assert server.child.process is not None
    group, total = server.child.process.pid, 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = (status.parent / "stat").read_text().rpartition(")")[2].split()
            text = status.read_text()
        except OSError:
            continue  # the process has ended
        if int(fields[2]) == group:
            total += next(
                int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")
            )
    return total


def test_a_hostile_path_is_answered_and_heads_are(agent: Caller) -> None:
    for path in (
        "/%0d%0aX-Injected:%201",
        "/sessions/%00",
        "/%ff%fe",
        "/sessions/..%2f..%2f",
        "/%E2%80%AE",
    ):
        status, problem = send_raw(agent, "", method="GET", path=path)
        assert (status, problem["code"]) == (404, "not_found")
    assert agent.client.head("/sessions").status_code == 200
    assert agent.client.head("/sessions").content == b""
