"""Slow clients: ordinary ingest without and with them, in turns, on the real server.

    python -m evaluation.slow_clients [--vendor sqlite] [--clients 1000] [--rounds 5]

There are eight kinds of slow clients in equal numbers. They announce a body and send none (without
and with a token, and to the sign-in page), send a body one byte a second (with and without a
token), send endless headers, read no response, or send nothing. 200 connect per second, and ingest
begins when all are connected. A disconnected client reconnects after a second. All traffic stays on
127.0.0.1. Prints a line for each round and exits with 1 if a bar is not met.
"""

import argparse
import hashlib
import http.client
import json
import multiprocessing
import os
import resource
import selectors
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from evaluation.bench import clients
from evaluation.bench import installation as bench_installation
from evaluation.bench.workload import Batch

P99_BAR: Final = 2.0  # times the p99 without slow clients
HEALTH_BAR_S: Final = 0.1  # p99
DRIP_S: Final = 1.0
PER_S: Final = 200  # new connections per second: slow clients are not a flood
RECONNECT_S: Final = 1.0
LONGEST_S: Final = 1_800
HEALTH_EVERY_S: Final = 0.05
ARTIFACT: Final = b"unread" * 1_000_000
_FORK: Final = multiprocessing.get_context("fork")


class _Slow:
    """A slow client of the kind `number` modulo eight."""

    def __init__(self, port: int, token: str, artifact: str, number: int) -> None:
        self.port, self.kind = port, number % 8
        bearer = f"Authorization: Bearer {token}\r\n"
        post = (
            "POST /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        )
        self.hello = [
            f"{post}Content-Length: 4000\r\n\r\n",
            f"{post}{bearer}Content-Length: 4000\r\n\r\n",
            "POST /sign-in/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000\r\n\r\n",
            f"{post}{bearer}Transfer-Encoding: chunked\r\n\r\nffff\r\n",
            f"{post}Content-Length: 4000\r\n\r\n",
            "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ",
            f"GET {artifact} HTTP/1.1\r\nHost: 127.0.0.1\r\n{bearer}\r\n",
            "",
        ][self.kind].encode()
        self.socket: socket.socket | None = None
        self.due = 0.0

    @property
    def is_dripping(self) -> bool:
        """Whether it sends a byte from time to time."""
        return self.kind in (3, 4, 5)

    def connect(self) -> socket.socket:
        """Connect and send the first bytes."""
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        self.socket.sendall(self.hello)
        self.socket.setblocking(False)
        return self.socket

    def close(self) -> None:
        """Disconnect."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def _run_slow_clients(
    port: int, token: str, artifact: str, number: int, ready: Any, stop: Any
) -> None:
    """Keep `number` slow clients connected until `stop`."""
    slow = [_Slow(port, token, artifact, each) for each in range(number)]
    for place, client in enumerate(slow):
        client.due = time.monotonic() + place / PER_S
    selector, until, is_ready = selectors.DefaultSelector(), time.monotonic() + LONGEST_S, False
    while not stop.is_set() and time.monotonic() < until:
        now = time.monotonic()
        for client in slow:
            if client.due > now:
                continue
            client.due = now + DRIP_S
            try:
                if client.socket is None:
                    connected = client.connect()
                    if client.kind != 6:  # kind 6 reads no response
                        selector.register(connected, selectors.EVENT_READ, client)
                elif client.is_dripping:
                    client.socket.send(b"x")
            except OSError:
                _drop(selector, client)
        if not is_ready and all(client.socket is not None for client in slow):
            is_ready = True
            ready.set()
        for key, _events in selector.select(0.02):
            try:
                is_closed = not key.data.socket.recv(65_536)
            except OSError:
                is_closed = True
            if is_closed:
                _drop(selector, key.data)
                key.data.due = time.monotonic() + RECONNECT_S
    for client in slow:
        client.close()


def _drop(selector: selectors.BaseSelector, slow: _Slow) -> None:
    if slow.socket is not None:
        with suppress(KeyError, ValueError):
            selector.unregister(slow.socket)
    slow.close()


def _probe_health(port: int, stop: Any, results: Any) -> None:
    """Request /healthz on new connections until `stop`; send the durations."""
    took: list[float] = []
    until = time.monotonic() + LONGEST_S
    while not stop.is_set() and time.monotonic() < until:
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/healthz")
            fine = connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            fine = False
        finally:
            connection.close()
        took.append(time.perf_counter() - began if fine else 30.0)
        time.sleep(HEALTH_EVERY_S)
    results.send(took)


def _make_batches(name: str) -> list[Batch]:
    batches = []
    for number in range(10):
        items = [
            {
                "id": f"{name}-{number}-{item}",
                "kind": "moon.risen",
                "session": "slow",
                "n": item,
                "text": "x" * 300,
            }
            for item in range(100)
        ]
        batches.append(Batch(json.dumps(items).encode(), len(items)))
    return batches


def _measure(port: int, token: str, name: str, sizes: tuple[int, int]) -> dict[str, float]:
    """Run ordinary ingest and health requests; return 99th percentiles in seconds."""
    stop, (receiving, sending) = _FORK.Event(), _FORK.Pipe(duplex=False)
    probing = _FORK.Process(target=_probe_health, args=(port, stop, sending), daemon=True)
    probing.start()
    agents, effects = sizes
    spent = clients.run_together(
        [
            clients.make_life_cycles(port, token, f"{name}-a", agents, effects),
            clients.post_batches(port, token, _make_batches(name)),
        ]
    )
    stop.set()
    health = receiving.recv()
    probing.join(10)
    commands = [value for kind in clients.COMMANDS for value in spent.latencies[kind]]
    return {
        "commands": compute_p99(commands),
        "batches": compute_p99(spent.latencies["batch"]),
        "health": compute_p99(health),
    }


def compute_p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def _store_artifact(port: int, token: str) -> str:
    api = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(method: str, path: str, body: bytes, key: str) -> Any:
        api.request(method, path, body, {**headers, "Idempotency-Key": key})
        answer = api.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{path} was answered {answer.status}: {text[:300]!r}")
        return json.loads(text)

    ask("POST", "/api/v1/sessions", b'{"key": "slow"}', "slow-session")
    about = {"session": "slow", "type": "log", "media_type": "text/plain", "size": len(ARTIFACT)}
    body = json.dumps({**about, "sha256": hashlib.sha256(ARTIFACT).hexdigest()}).encode()
    upload = str(ask("POST", "/api/v1/artifacts", body, "slow-artifact")["upload"])
    ask("PUT", upload, ARTIFACT, "")
    api.close()
    return upload


def run(vendor: str, number: int, rounds: int, sizes: tuple[int, int] = (8, 25)) -> bool:
    """Measure on one database; return whether the bars are met."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, number + 200), hard), hard))
    folder = Path(tempfile.mkdtemp(prefix="gatebook-slow-"))
    ratios: dict[str, list[float]] = {"commands": [], "batches": []}
    health: list[float] = []
    try:
        # PostgreSQL's folder is outside, because as root it runs as another user without access to ours.
        with bench_installation.provide_cluster(
            vendor, folder, folder.with_name(f"{folder.name}-pg")
        ) as cluster:
            installation = bench_installation.install(vendor, folder / "slow", cluster)
            token = installation.issue_token("slow")
            with bench_installation.serve(installation) as server:
                artifact = _store_artifact(server.port, token)
                _measure(server.port, token, "warm", sizes)
                for each in range(rounds):
                    without = _measure(server.port, token, f"{each}-0", sizes)
                    ready, stop = _FORK.Event(), _FORK.Event()
                    arguments = (server.port, token, artifact, number, ready, stop)
                    slow = _FORK.Process(target=_run_slow_clients, args=arguments, daemon=True)
                    slow.start()
                    if not ready.wait(120):
                        raise RuntimeError("the slow clients did not connect")
                    loaded = _measure(server.port, token, f"{each}-1", sizes)
                    stop.set()
                    slow.join(30)
                    time.sleep(RECONNECT_S)  # until the server has seen that they are is_closed
                    health.append(loaded["health"])
                    for kind, values in ratios.items():
                        values.append(loaded[kind] / without[kind])
                    parts = [
                        f"{kind} {without[kind] * 1000:.0f} -> {loaded[kind] * 1000:.0f} ms"
                        for kind in without
                    ]
                    sys.stdout.write(
                        f"{vendor}: p99 of {', '.join(parts)} (load {os.getloadavg()[0]:.1f})\n"
                    )
                    sys.stdout.flush()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    medians = {kind: statistics.median(values) for kind, values in ratios.items()}
    met = (
        all(value <= P99_BAR for value in medians.values())
        and statistics.median(health) <= HEALTH_BAR_S
    )
    summary = ", ".join(f"{kind} {value:.2f} x" for kind, value in medians.items())
    sys.stdout.write(
        f"{vendor}: {number} slow clients, p99 with against without: {summary} (bar {P99_BAR:.0f} "
        "x); health "
        f"{statistics.median(health) * 1000:.0f} ms (bar {HEALTH_BAR_S * 1000:.0f}): "
        f"{'met' if met else 'not met'}\n"
    )
    return met


def main() -> int:
    """Measure on each database."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.slow_clients")
    parser.add_argument("--vendor", choices=bench_installation.VENDORS, action="append")
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    met = [
        run(vendor, options.clients, options.rounds)
        for vendor in options.vendor or bench_installation.VENDORS
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
