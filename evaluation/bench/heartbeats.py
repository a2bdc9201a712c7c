"""Heartbeats of many sessions: each every thirty seconds, a hundred in a request, evenly spread.

The CPU time is that of the installation with database and job worker, while nothing else runs. The
report also shows its CPU time without heartbeats.
"""

import http.client
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from evaluation.bench import clients
from evaluation.bench.installation import Server
from evaluation.bench.report import Report, percentile

EVERY_S: Final = 30
IN_A_REQUEST: Final = 100
BAR: Final = 15.0  # per cent of one core, for BARRED sessions
BARRED: Final = 10_000
OPENERS: Final = 8
IDLE_S: Final = 10
TTL_S: Final = 3600  # longer than the opening of all sessions


def measure(report: Report, server: Server, *, sessions: int, rounds: int) -> None:
    """Open `sessions`; measure `rounds` of a minute with two heartbeats of each session."""
    vendor, token = server.installation.vendor, server.installation.issue_token("fleet")
    sys.stderr.write(f"{vendor}: {sessions} sessions with heartbeats\n")
    works = [
        _make_opening(server.port, token, range(number, sessions, OPENERS))
        for number in range(OPENERS)
    ]
    opened = clients.run_together(works)
    leases = _load_leases(server.port, token, sessions)
    before = server.cpu_s()
    time.sleep(IDLE_S)
    idle = 100 * (server.cpu_s() - before) / IDLE_S
    shares, latencies = [], []
    for number in range(rounds):
        before, started = server.cpu_s(), time.monotonic()
        spent = clients.run_together([_make_heartbeats(server.port, token, leases, number)])
        shares.append(100 * (server.cpu_s() - before) / (time.monotonic() - started))
        latencies += spent.latencies["heartbeats"]
    name = f"{sessions} sessions with heartbeats every {EVERY_S} s"
    bar = BAR if sessions >= BARRED else None
    report.add(
        vendor,
        f"{name}: CPU",
        "% of one core",
        shares,
        bar=bar,
        note=f"{idle:.1f} % without heartbeats",
    )
    report.add(
        vendor,
        f"{name}: {IN_A_REQUEST} in a request, p50",
        "ms",
        [1000 * percentile(latencies, 0.5)],
    )
    report.add(
        vendor,
        f"{name}: {IN_A_REQUEST} in a request, p99",
        "ms",
        [1000 * percentile(latencies, 0.99)],
    )
    report.add(
        vendor, "opening a session and acquiring its lease", "per s", [sessions / opened.wall_s]
    )


class _Agent:
    """An agent on one persistent connection."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, body: Any, key: str = "") -> Any:
        """POST and return the answer; RuntimeError unless the command succeeded."""
        headers = {**self._headers, "Idempotency-Key": key} if key else self._headers
        self._connection.request("POST", f"/api/v1{path}", body=json.dumps(body), headers=headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{path} was answered {answer.status}: {text[:300]!r}")
        return json.loads(text)


def _make_opening(port: int, token: str, numbers: Sequence[int]) -> clients.Work:
    """Return the work of a client that opens its sessions and acquires their leases."""

    def work() -> clients.Timings:
        agent, latencies = _Agent(port, token), []
        started = time.monotonic()
        for number in numbers:
            sent = time.perf_counter()
            agent.ask(
                "/sessions", {"key": f"heartbeat-{number}", "mode": "leased"}, f"open-{number}"
            )
            body = {"session": f"heartbeat-{number}", "process": f"p-{number}", "ttl_s": TTL_S}
            agent.ask("/leases", body, f"lease-{number}")
            latencies.append(time.perf_counter() - sent)
        return clients.Timings(time.monotonic() - started, {"open": latencies})

    return work


def _load_leases(port: int, token: str, sessions: int) -> list[str]:
    """Return the ids of all leases."""
    api, leases, after = clients.Api(port, token), [], ""
    while True:
        page = json.loads(api.get(f"/api/v1/leases?kind=session&limit=200{after}"))
        leases += [lease["id"] for lease in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    api.close()
    if len(leases) != sessions:
        raise RuntimeError(f"{len(leases)} leases instead of {sessions}")
    return leases


def _make_heartbeats(port: int, token: str, leases: Sequence[str], number: int) -> clients.Work:
    """Return the work of a minute: two heartbeats per lease, every third with a new progress token."""

    def work() -> clients.Timings:
        agent, latencies = _Agent(port, token), []
        parts = [
            leases[start : start + IN_A_REQUEST] for start in range(0, len(leases), IN_A_REQUEST)
        ]
        started = time.monotonic()
        for turn in range(2 * len(parts)):
            time.sleep(max(0.0, started + turn * EVERY_S / len(parts) - time.monotonic()))
            part = parts[turn % len(parts)]
            reports = [
                {
                    "lease": lease,
                    "epoch": 1,
                    "progress": f"{number}.{turn}" if index % 3 == 0 else "same",
                }
                for index, lease in enumerate(part)
            ]
            sent = time.perf_counter()
            results = agent.ask("/heartbeats", {"heartbeats": reports})["results"]
            latencies.append(time.perf_counter() - sent)
            if any(result["status"] != "ok" for result in results):
                raise RuntimeError("a heartbeat failed")
        time.sleep(max(0.0, started + 2 * EVERY_S - time.monotonic()))
        return clients.Timings(time.monotonic() - started, {"heartbeats": latencies})

    return work
