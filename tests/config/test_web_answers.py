"""The web server with ambiguous framing of requests and with a faulty application."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluation.bench.installation import own_port
from tests.config.raw_sockets import Wire
from tests.config.server import READY_WITHIN_S, ROOT

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the server with the application of tests/config/faulty_database.py."""
    with own_port() as port:
        yield from serve_faulty(tmp_path_factory.mktemp("faulty"), port)


def serve_faulty(folder: Path, port: int) -> Iterator[str]:
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DATABASE_", "GATEBOOK_"))
        },
        "DJANGO_SETTINGS_MODULE": "tests.config.settings",
        "GATEBOOK_VAR": str(folder),
    }
    command = [
        sys.executable,
        "-m",
        "config.http_server",
        "tests.config.faulty_database:application",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < until, "the server did not become ready"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def raw(wire: Wire, text: str) -> Wire:
    wire.socket.sendall(text.replace("\n", "\r\n").encode("latin-1"))
    return wire


CHUNKS = "2\nab\n0\n\n"


@pytest.mark.parametrize(
    "text",
    [
        "POST / HTTP/1.1\nHost: a\nContent-Length: 5\nTransfer-Encoding: chunked\n\n0\n\n",
        "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nContent-Length: 5\n\n0\n\n",
        "POST / HTTP/1.1\nHost: a\nContent-Length: 2\nContent-Length: 2\n\nab",
        "POST / HTTP/1.1\nHost: a\nContent-Length: 2, 2\n\nab",
        "POST / HTTP/1.1\nHost: a\nContent-Length : 2\n\nab",
        "POST / HTTP/1.1\nHost: a\nContent-Length:\n 2\n\nab",
        "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: gzip, chunked\n\n" + CHUNKS,
        "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: identity\nTransfer-Encoding: chunked\n\n"
        + CHUNKS,
        "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: xchunked\n\n" + CHUNKS,
        "POST / HTTP/1.0\nHost: a\nTransfer-Encoding: chunked\nConnection: keep-alive\n\n" + CHUNKS,
    ],
)
def test_a_body_with_an_ambiguous_end_is_refused(url: str, text: str) -> None:
    with Wire(url) as wire:
        assert raw(wire, text).read().status == 400
        assert wire.socket.recv(1) == b""


@pytest.mark.parametrize("framing", ["Content-Length: 2 ", "Content-Length: 000000000000000000002"])
def test_a_length_may_have_zeros_before_and_blanks_behind_it(url: str, framing: str) -> None:
    with Wire(url) as wire:
        answer = raw(wire, f"POST / HTTP/1.1\nHost: a\n{framing}\n\nab").read()
        assert (answer.status, answer.content) == (200, b"ab")


def test_too_many_pipelined_requests_are_refused(url: str) -> None:
    with Wire(url) as wire:
        raw(wire, 70 * "GET / HTTP/1.1\nHost: a\n\n")
        assert [wire.read().status for _ in range(66)] == [*64 * [200], 429, 0]


def test_an_old_client_gets_no_interim_answer(url: str) -> None:
    with Wire(url) as wire:
        raw(wire, "POST / HTTP/1.0\nExpect: 100-continue\nContent-Length: 2\n\n")
        assert raw(wire, "ab").read().status == 200


def test_a_sender_whose_lookup_fails_is_refused(url: str) -> None:
    with Wire(url) as wire:
        raw(wire, "POST / HTTP/1.1\nHost: a\nContent-Length: 10000\nExpect: 100-continue\n\n")
        assert wire.read().status == 403


def test_trailers_after_the_last_chunk_have_a_limit(url: str) -> None:
    with Wire(url) as wire:
        raw(
            wire,
            "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n0\nX-Long: " + 200_000 * "x",
        )
        assert wire.read().status == 431


def test_a_response_sends_no_more_bytes_than_announced(url: str) -> None:
    with Wire(url) as wire:
        answer = wire.send("GET /more").read()
        assert (answer.content, wire.read().status) == (b"first", 0)


def test_a_finished_response_is_sent_despite_later_faults(url: str) -> None:
    with Wire(url) as wire:
        for _ in range(10):
            assert wire.send("GET /close").read().content == b"whole"


@pytest.mark.parametrize("path", ["/sign", "/break"])
def test_a_head_that_cannot_be_sent_is_a_failure(url: str, path: str) -> None:
    with Wire(url) as wire:
        assert wire.send(f"GET {path}").read().status == 500


def test_a_response_that_breaks_off_ends_in_an_error_for_old_clients_too(url: str) -> None:
    with Wire(url) as wire:
        raw(wire, "GET /half HTTP/1.0\n\n")
        with pytest.raises(ConnectionResetError):
            b"".join(iter(lambda: wire.socket.recv(65_536), b""))


@pytest.mark.parametrize("path", ["/204", "/304"])
def test_a_response_without_content_announces_none(url: str, path: str) -> None:
    with Wire(url) as wire:
        assert "content-length" not in wire.send(f"GET {path}").read().head
        assert wire.send("POST /", "Content-Length: 2", body=b"ab").read().content == b"ab"


def test_a_failure_has_no_body_where_the_request_wants_none(url: str) -> None:
    with Wire(url) as wire:
        wire.send("HEAD /sign")
        answer = b"".join(iter(lambda: wire.socket.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert answer.endswith(b"\r\n\r\n")
