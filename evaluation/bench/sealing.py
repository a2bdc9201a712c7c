"""What the seal of the journal costs: ingest with and without it, the sealer itself, its lag.

The job clock is stopped while this is measured, so that no other job runs; a process of its own
seals (`manage.py seal_journal --follow`). On PostgreSQL the CPU time of its database connection counts as
the sealer's. The lag is the age of the oldest unsealed entry, sampled every LOOK_S, so most entries
wait less. It is wall time: it shows something only where nothing else uses the processors.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

import psycopg

from evaluation.bench import clients, procfs
from evaluation.bench.installation import ROOT, Installation, Server
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import Batch, Writer

CLIENTS: Final = 2
EVENTS_PER_S: Final = 5_000
LOOK_S: Final = 0.05
JOBS_END_S: Final = 6
TICK_S: Final = 0.01  # the kernel counts CPU time in such steps
MOST_RATIO, LEAST_PER_CPU_S, MOST_LAG_S = 1.05, 20_000, 1.0
_NAME: Final = "gatebook-sealer"  # of the sealer's database connection
_ENDS: Final = {
    "last": "SELECT coalesce(max(position), 0) FROM journal_entry",
    "sealed": "SELECT coalesce(max(entry_id), 0), count(*) FROM proofs_sealedentry",
}
_OLDEST: Final = (
    "SELECT received_us FROM journal_entry WHERE position >"
    " (SELECT coalesce(max(entry_id), 0) FROM proofs_sealedentry) ORDER BY position LIMIT 1"
)


class _Database:
    """A connection of the benchmark, which only reads."""

    def __init__(self, installation: Installation) -> None:
        cluster = installation.cluster
        self._connection: sqlite3.Connection | psycopg.Connection[tuple[int, ...]] = (
            sqlite3.connect(installation.sqlite_file, timeout=30, check_same_thread=False)
            if cluster is None
            else psycopg.connect(
                cluster.address(installation.url.rpartition("/")[2]), autocommit=True
            )
        )

    def fetch_row(self, query: str) -> tuple[int, ...] | None:
        """Return the first row of a query."""
        row: tuple[int, ...] | None = self._connection.execute(query).fetchone()
        return row

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@dataclass
class _Sealer:
    """The process that seals: its id, and that of its database connection."""

    process: int
    backend: int | None

    def cpu_s(self) -> float:
        """Return the CPU seconds of both so far."""
        return procfs.cpu_s([self.process]) + self.backend_cpu_s()

    def backend_cpu_s(self) -> float:
        """Return the CPU seconds of its database connection so far; 0 on SQLite."""
        return procfs.cpu_s([self.backend]) if self.backend else 0.0


@dataclass
class _Seen:
    ratios: list[float] = field(default_factory=list)
    with_seal: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    per_cpu_s: list[float] = field(default_factory=list)
    backlog: list[float] = field(default_factory=list)


def measure(report: Report, server: Server, *, rounds: int, batches: int, paced_s: int) -> None:
    """Measure `rounds` of `batches` per client, and `paced_s` seconds of EVENTS_PER_S."""
    vendor, token = server.installation.vendor, server.installation.issue_token("bench")
    with closing(_Database(server.installation)) as database, stopped_jobs(server):
        _post(server, token, Writer("warm").mixed(6), 1)
        seen = _Seen()
        for number in range(rounds):
            sys.stderr.write(f"{vendor}: seal, round {number + 1} of {rounds}\n")
            _measure_round(server, database, token, number, batches, seen)
        lags, rate = _measure_lag(server, database, token, paced_s)
    unit = "CPU-s per 1,000 events"
    report.add(vendor, "ingest without sealing: CPU", unit, seen.without)
    report.add(vendor, "ingest with sealing: CPU, without the sealer's", unit, seen.with_seal)
    report.add(vendor, "ingest with sealing", "× without", seen.ratios, bar=MOST_RATIO)
    note = f"at least {LEAST_PER_CPU_S:,} required"
    report.add(vendor, "sealer beside ingest", "entries per CPU-s", seen.per_cpu_s, note=note)
    report.add(vendor, "sealer with a backlog", "entries per CPU-s", seen.backlog, note=note)
    if lags:
        name = f"age of the oldest unsealed entry, {rate:,.0f} events/s"
        load = f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} processors"
        report.add(vendor, f"{name}: p50", "s", [percentile(lags, 0.5)], note=load)
        report.add(vendor, f"{name}: p99", "s", [percentile(lags, 0.99)], bar=MOST_LAG_S, note=load)


def _measure_round(
    server: Server, database: _Database, token: str, number: int, batches: int, seen: _Seen
) -> None:
    """Measure ingest without the sealer, the sealer on that backlog, and both together.

    The order of with and without changes every round.
    """
    order = ("without", "with") if number % 2 == 0 else ("with", "without")
    cost: dict[str, float] = {}
    for kind in order:
        sent = [Writer(f"s{kind}{number}{n}").mixed(batches) for n in range(CLIENTS)]
        items = sum(batch.items for part in sent for batch in part)
        if kind == "without":
            before = server.cpu_s()
            _post(server, token, *sent)
            cost[kind] = 1000 * (server.cpu_s() - before) / items
            with _sealing(server) as sealer:
                sealed, used = _wait_until_sealed(database, sealer)
            seen.backlog.append(sealed / used)
        else:
            with _sealing(server) as sealer:
                before, own, start = server.cpu_s(), sealer.cpu_s(), _count_sealed(database)
                backend = sealer.backend_cpu_s()
                _post(server, token, *sent)
                ingest = server.cpu_s() - before - (sealer.backend_cpu_s() - backend)
                _wait_until_sealed(database, sealer)
                used = max(sealer.cpu_s() - own, TICK_S)
                seen.per_cpu_s.append((_count_sealed(database) - start) / used)
            cost[kind] = 1000 * ingest / items
    seen.without.append(cost["without"])
    seen.with_seal.append(cost["with"])
    seen.ratios.append(cost["with"] / max(cost["without"], TICK_S))


def _post(server: Server, token: str, *parts: list[Batch] | int) -> None:
    works = [
        clients.post_batches(server.port, token, part) for part in parts if isinstance(part, list)
    ]
    clients.run_together(works)


def _count_sealed(database: _Database) -> int:
    row = database.fetch_row(_ENDS["sealed"])
    return row[1] if row else 0


def _wait_until_sealed(database: _Database, sealer: _Sealer) -> tuple[int, float]:
    """Wait until all entries are sealed; return how many were, and the sealer's CPU seconds."""
    start, own = _count_sealed(database), sealer.cpu_s()
    until = time.monotonic() + clients.LONGEST_S
    while True:
        last, sealed = database.fetch_row(_ENDS["last"]), database.fetch_row(_ENDS["sealed"])
        if last and sealed and sealed[0] >= last[0]:
            return sealed[1] - start, max(sealer.cpu_s() - own, TICK_S)
        if time.monotonic() > until:
            raise RuntimeError("the entries were not sealed")
        time.sleep(0.02)


def _measure_lag(
    server: Server, database: _Database, token: str, seconds: int
) -> tuple[list[float], float]:
    """Return ages of the oldest unsealed entry, in seconds, and the rate that was reached."""
    lags: list[float] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            row = database.fetch_row(_OLDEST)
            lags.append(time.time() - row[0] / 1_000_000 if row else 0.0)

    parts = [_make_paced(server.port, token, n, seconds) for n in range(CLIENTS)]
    with _sealing(server):
        observer = threading.Thread(target=look)
        observer.start()
        try:
            spent = clients.run_together(parts)
        finally:
            ended.set()
            observer.join()
    items = sum(spent.answers.values())
    return lags, items / spent.wall_s


def _make_paced(port: int, token: str, number: int, seconds: int) -> clients.Work:
    """Return the work of a client that posts its share of EVENTS_PER_S, evenly spread."""
    drafts = Writer(f"paced{number}").mixed(4)
    per_batch = sum(batch.items for batch in drafts) / len(drafts)
    every_s = per_batch * CLIENTS / EVENTS_PER_S
    batches = Writer(f"lag{number}").mixed(max(4, int(seconds / every_s)))

    def work() -> clients.Timings:
        started, items, latencies = time.monotonic(), 0, []
        for turn, batch in enumerate(batches):
            time.sleep(max(0.0, started + turn * every_s - time.monotonic()))
            timings = clients.post_batches(port, token, [batch])()
            latencies += timings.all
            items += batch.items
        return clients.Timings(time.monotonic() - started, {"batches": latencies}, {number: items})

    return work


@contextmanager
def stopped_jobs(server: Server) -> Iterator[None]:
    """Stop the job clock within the block, and wait until the worker has ended its jobs."""
    clocks = [
        process
        for process in procfs.tree(server.supervisor.pid)
        if {"celery", "beat"} <= set(procfs.command_line(process))
    ]
    for process in clocks:
        os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(JOBS_END_S if clocks else 0)
        yield
    finally:
        for process in clocks:
            os.kill(process, signal.SIGCONT)


@contextmanager
def _sealing(server: Server) -> Iterator[_Sealer]:
    """Run the sealer in a process of its own within the block."""
    installation = server.installation
    started = subprocess.Popen(
        [sys.executable, "manage.py", "seal_journal", "--follow", str(clients.LONGEST_S)],
        cwd=ROOT,
        env={**installation.environment, "PGAPPNAME": _NAME},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if started.stdout is None or not started.stdout.readline():
            raise RuntimeError("the sealer did not start")
        yield _Sealer(started.pid, _find_backend(installation))
    finally:
        started.terminate()
        started.wait(10)


def _find_backend(installation: Installation) -> int | None:
    """Return the process of the sealer's database connection; None on SQLite."""
    if installation.cluster is None:
        return None
    query = f"SELECT pid FROM pg_stat_activity WHERE application_name = '{_NAME}'"
    with closing(_Database(installation)) as database:
        row = database.fetch_row(query)
    if row is None:
        raise RuntimeError("the sealer has no connection")
    return row[0]
