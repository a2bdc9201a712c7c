"""Many sessions that beat as they do in life: each every thirty seconds, a hundred in a request,
spread over the time.

The processor time is that of the whole installation, the database and the job worker included,
while nothing else happens; what it uses when nothing beats at all is told beside it.
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
TTL_S: Final = 3600  # so that nothing expires while the others are still being opened


def measure(report: Report, server: Server, *, sessions: int, rounds: int) -> None:
    """Open `sessions` and hold them; then measure `rounds` of a minute each, in which every one of
    them beats twice."""
    vendor, token = server.installation.vendor, server.installation.token("fleet")
    sys.stderr.write(f"{vendor}: {sessions} sessions that beat\n")
    works = [
        _opens(server.port, token, range(number, sessions, OPENERS)) for number in range(OPENERS)
    ]
    opened = clients.together(works)
    leases = _leases(server.port, token, sessions)
    before = server.cpu_s()
    time.sleep(IDLE_S)
    idle = 100 * (server.cpu_s() - before) / IDLE_S
    shares, latencies = [], []
    for number in range(rounds):
        before, started = server.cpu_s(), time.monotonic()
        spent = clients.together([_heartbeats(server.port, token, leases, number)])
        shares.append(100 * (server.cpu_s() - before) / (time.monotonic() - started))
        latencies += spent.latencies["heartbeats"]
    name = f"{sessions} sessions beating every {EVERY_S} s"
    bar = BAR if sessions >= BARRED else None
    report.add(
        vendor,
        f"{name}: CPU",
        "% of one core",
        shares,
        bar=bar,
        note=f"{idle:.1f} % when nothing beats",
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
        vendor, "opening a session and taking its lease", "per s", [sessions / opened.wall_s]
    )


class _Agent:
    """One connection that stays open."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, body: Any, key: str = "") -> Any:
        """POST and return what was answered; RuntimeError unless it was done."""
        headers = {**self._headers, "Idempotency-Key": key} if key else self._headers
        self._connection.request("POST", f"/api/v1{path}", body=json.dumps(body), headers=headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{path} was answered {answer.status}: {text[:300]!r}")
        return json.loads(text)


def _opens(port: int, token: str, numbers: Sequence[int]) -> clients.Work:
    """Return the work of one client that opens its part of the sessions and takes their leases."""

    def work() -> clients.Spent:
        agent, latencies = _Agent(port, token), []
        started = time.monotonic()
        for number in numbers:
            sent = time.perf_counter()
            agent.ask("/sessions", {"key": f"beating-{number}", "mode": "leased"}, f"open-{number}")
            wish = {"session": f"beating-{number}", "process": f"p-{number}", "ttl_s": TTL_S}
            agent.ask("/leases", wish, f"hold-{number}")
            latencies.append(time.perf_counter() - sent)
        return clients.Spent(time.monotonic() - started, {"open": latencies})

    return work


def _leases(port: int, token: str, sessions: int) -> list[str]:
    """The ids of all the leases."""
    api, found, after = clients.Api(port, token), [], ""
    while True:
        page = json.loads(api.get(f"/api/v1/leases?kind=session&limit=200{after}"))
        found += [lease["id"] for lease in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    api.close()
    if len(found) != sessions:
        raise RuntimeError(f"{len(found)} leases instead of {sessions}")
    return found


def _heartbeats(port: int, token: str, leases: Sequence[str], number: int) -> clients.Work:
    """Return the work of a minute: every lease beats twice, and of three beats one brings a new
    progress token."""

    def work() -> clients.Spent:
        agent, latencies = _Agent(port, token), []
        parts = [
            leases[start : start + IN_A_REQUEST] for start in range(0, len(leases), IN_A_REQUEST)
        ]
        started = time.monotonic()
        for turn in range(2 * len(parts)):
            time.sleep(max(0.0, started + turn * EVERY_S / len(parts) - time.monotonic()))
            part = parts[turn % len(parts)]
            told = [
                {
                    "lease": lease,
                    "epoch": 1,
                    "progress": f"{number}.{turn}" if index % 3 == 0 else "same",
                }
                for index, lease in enumerate(part)
            ]
            sent = time.perf_counter()
            results = agent.ask("/heartbeats", {"heartbeats": told})["results"]
            latencies.append(time.perf_counter() - sent)
            if any(one["status"] != "ok" for one in results):
                raise RuntimeError("a beat was lost")
        time.sleep(max(0.0, started + 2 * EVERY_S - time.monotonic()))
        return clients.Spent(time.monotonic() - started, {"heartbeats": latencies})

    return work
