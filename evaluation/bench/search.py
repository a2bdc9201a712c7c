"""Cost of search for writers: the upkeep of search indexes, and costly queries.

Upkeep is measured on two equal installations; one has no search indexes, and its text index is
marked as up to date. Twenty agents at once run the costly queries on the database of the page
measurements.
"""

import http.client
import sqlite3
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from typing import Final
from urllib.parse import urlencode

import psycopg

from evaluation.bench import clients, procfs
from evaluation.bench.installation import Installation, Server, clone, serve
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import Writer

UPKEEP_BAR: Final = 1.5
COSTLY_BAR: Final = 2.0
SEARCHERS: Final = 20
WRITERS: Final = 2
WORST: Final = "since:30d | group tool | max(attempts), p95(took), count"
INDEXES: Final = ("entry_by_kind", "entry_by_person", "effect_tried_again")
POLL_S: Final = 2.0
QUIET_SHARE: Final = 0.1  # of one processor
QUIET_WITHIN_S: Final = 90
_DISABLE_UPKEEP: Final = (
    *(f"DROP INDEX {name}" for name in INDEXES),
    "UPDATE monitoring_jobheartbeat SET position = 1000000000000 WHERE name = 'search_index'",
)


def measure_upkeep(report: Report, fresh: Installation, *, rounds: int, batches: int) -> None:
    """Measure writing with and without the upkeep of searches. `fresh` must not be running."""
    spent: dict[str, list[float]] = {}
    for name in ("with", "without"):
        installation = clone(fresh, f"{name}_search")
        installation.manage("update_search_index")
        if name == "without":
            _disable_upkeep(installation)
        token = installation.issue_token("bench")
        with serve(installation) as server:
            for number in range(rounds + 1):  # the first round warms up and is not counted
                sys.stderr.write(
                    f"{fresh.vendor}: writing {name} upkeep of searches, round {number} of "
                    f"{rounds}\n"
                )
                sent = [Writer(f"u{number}{n}").mixed(batches) for n in range(WRITERS)]
                items = sum(batch.items for part in sent for batch in part)
                before = _cpu_s(server)
                clients.run_together(
                    [clients.post_batches(server.port, token, part) for part in sent]
                )
                wait_until_quiet(server)
                if number:
                    spent.setdefault(name, []).append(1000 * (_cpu_s(server) - before) / items)
    for name, values in spent.items():
        report.add(
            fresh.vendor,
            f"writing {name} upkeep of searches: CPU",
            "CPU-s per 1,000 events",
            values,
        )
    ratios = [cost / bare for cost, bare in zip(spent["with"], spent["without"], strict=True)]
    note = "with the job worker, until the text index is up to date"
    report.add(
        fresh.vendor, "writing: with upkeep against without", "×", ratios, bar=UPKEEP_BAR, note=note
    )


def measure_costly_queries(
    report: Report, server: Server, token: str, *, rounds: int, batches: int
) -> None:
    """Measure the latency of evidence while twenty agents run the costly query.

    Each part begins after the job worker has indexed the previous one. With fewer than a hundred
    batches the p99 would be the slowest batch, and a part could end before the first query does.
    """
    vendor = server.installation.vendor
    tokens = [server.installation.issue_token(f"searcher-{n}") for n in range(SEARCHERS)]
    seen: dict[int, list[float]] = {0: [], SEARCHERS: []}
    answers: Counter[int] = Counter()
    for number in range(rounds):
        for asking, values in seen.items():
            sys.stderr.write(
                f"{vendor}: evidence during {asking} searches, round {number + 1} of {rounds}\n"
            )
            sent = [Writer(f"h{number}{asking}{n}").mixed(batches) for n in range(WRITERS)]
            wait_until_quiet(server, database=False)
            over = threading.Event()
            threads = [
                threading.Thread(
                    target=_search_until, args=(server.port, agent_token, over, answers)
                )
                for agent_token in tokens[:asking]
            ]
            for thread in threads:
                thread.start()
            time.sleep(1.0 if threads else 0.0)
            works = [clients.post_batches(server.port, token, part) for part in sent]
            values += [1000 * value for value in clients.run_together(works).all]
            over.set()
            for thread in threads:
                thread.join()
    for asking, values in seen.items():
        report.add(
            vendor,
            f"evidence during {asking} searches: p99",
            "ms per batch",
            [percentile(values, 0.99)],
        )
    ratio = percentile(seen[SEARCHERS], 0.99) / percentile(seen[0], 0.99)
    statuses = ", ".join(f"{number} of {status}" for status, number in sorted(answers.items()))
    name = f"evidence: p99 during {SEARCHERS} searches against none"
    report.add(vendor, name, "×", [ratio], bar=COSTLY_BAR, note=f"answers: {statuses}")


def _search_until(port: int, token: str, over: threading.Event, answers: "Counter[int]") -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    path = f"/api/v1/search?{urlencode({'q': WORST})}"
    while not over.is_set():
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        answers[answer.status] += 1
        if answer.status == 429:
            time.sleep(0.1)
    connection.close()


def _disable_upkeep(installation: Installation) -> None:
    if installation.cluster is None:
        with closing(sqlite3.connect(installation.sqlite_file, isolation_level=None)) as file:
            for statement in _DISABLE_UPKEEP:
                file.execute(statement)
        return
    with psycopg.connect(installation.url, autocommit=True) as connection:
        for statement in _DISABLE_UPKEEP:
            connection.execute(statement)


def _cpu_s(server: Server) -> float:
    """Return the CPU seconds of the installation, the job worker included."""
    return procfs.cpu_s([server.supervisor.pid, *server.installation.database_roots()])


def wait_until_quiet(server: Server, *, database: bool = True) -> None:
    """Wait until the job worker has indexed all entries; RuntimeError after a timeout.

    Without `database`, do not wait for PostgreSQL's own jobs, which take minutes after a bulk seed.
    """
    roots = [server.supervisor.pid, *(server.installation.database_roots() if database else [])]
    until, used = time.monotonic() + QUIET_WITHIN_S, procfs.cpu_s(roots)
    while time.monotonic() < until:
        time.sleep(POLL_S)
        before, used = used, procfs.cpu_s(roots)
        if used - before < QUIET_SHARE * POLL_S:
            return
    raise RuntimeError("the job worker did not become idle")
