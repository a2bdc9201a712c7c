"""What growth and the expiry of texts cost: ingest and expiry at two sizes, then searches.

Two databases are filled from one seed over five months (evaluation/bench/bulk_seed.py), and a retention
set of 30 days is put in force. Batches are posted to both in turns. `manage.py run_retention --seconds`
then removes bodies of both in turns; on PostgreSQL the CPU time of its database connection counts too.
Ingest is measured again during an expiry. The job clock is stopped during all of it.
The full sizes take about two hours and LEAST_BYTES of disk an effect; `--quick` takes some minutes.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import psycopg

from evaluation.bench import bulk_seed, clients, pages, procfs, sealing
from evaluation.bench.installation import ROOT, Installation, Server, clone, serve
from evaluation.bench.person import Person
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import Writer

LARGE: Final = {"postgresql": 10_000_000, "sqlite": 3_000_000}  # effects
SMALL, QUICK_SIZES = 100_000, (10_000, 20_000)
SPREAD_US: Final = 150 * 86_400_000_000  # the oldest text is five months old
LEAST_BYTES: Final = 5_000  # of free disk for an effect with its indexes
RATIO_BAR, INGEST_BAR = 1.2, 2.0
WRITERS: Final = 2
RULES: Final = """\
name: bench
classes: [{name: short, keep: 30 days}]
rules: [{class: short, kind: effect.*}]
"""
_NAME: Final = "gatebook-expiry"  # of the command's database connection
_RESULT: Final = re.compile(r"(\d+) bodies expired in (\d+) batches, ([0-9.]+) s of CPU")


def measure(
    report: Report, fresh: Installation, *, rounds: int, seconds: int, batches: int, quick: bool
) -> None:
    """Fill two databases and measure each step; a step that fails leaves the earlier figures."""
    vendor = fresh.vendor
    sizes = QUICK_SIZES if quick else (SMALL, _fit_on_disk(fresh, LARGE[vendor]))
    installations = _fill(fresh, sizes)
    for size, installation in installations.items():
        rules = installation.folder / "retention.yaml"
        rules.write_text(RULES)
        started = time.monotonic()
        installation.manage("load_retention", str(rules), "--activate")
        spent = time.monotonic() - started
        report.add(vendor, f"retention, {size:,} effects: dry run", "s", [spent])
    _measure_ingest_cost(report, installations, rounds=rounds, batches=max(batches // 10, 3))
    _measure_batches(report, installations, rounds=rounds, seconds=seconds)
    with ExitStack() as stack:
        servers = {size: stack.enter_context(serve(installations[size])) for size in sizes}
        for server in servers.values():
            stack.enter_context(sealing.stopped_jobs(server))
        _measure_ingest(report, servers[sizes[-1]], sizes[-1], batches)
        _measure_searches(report, servers, reads=3 if quick else 12)


def _fit_on_disk(installation: Installation, wanted: int) -> int:
    """Return how many effects fit, at most `wanted`; the copies of the small size need some too."""
    folder = Path("/var/tmp") if installation.cluster else installation.folder  # noqa: S108
    fitting = shutil.disk_usage(folder).free // LEAST_BYTES
    if fitting < wanted:
        sys.stderr.write(f"{installation.vendor}: only {fitting:,} effects fit on the disk\n")
    return int(min(wanted, max(fitting, 2 * SMALL)))


def _fill(fresh: Installation, sizes: tuple[int, int]) -> dict[int, Installation]:
    plans = bulk_seed.plan_fillings(sizes, spread_us=SPREAD_US)
    small = clone(fresh, "expiring")
    token = small.issue_token("bench")
    bulk_seed.raise_positions(small, plans[0].first)
    with serve(small) as server:
        bulk_seed.post_seed(server, token, plans[0].seed)
    small.manage("update_search_index")
    filled = {sizes[0]: small, sizes[1]: clone(small, "expiring-large")}
    for (size, installation), filling in zip(filled.items(), plans, strict=True):
        started = time.monotonic()
        bulk_seed.copy_seed(installation, filling)
        spent = time.monotonic() - started
        sys.stderr.write(f"{fresh.vendor}: {size:,} effects filled in {spent:.0f} s\n")
    return filled


def _measure_ingest_cost(
    report: Report, installations: dict[int, Installation], *, rounds: int, batches: int
) -> None:
    """Post batches to each size in turns, and compare the CPU time of a thousand events."""
    costs: dict[int, list[float]] = {size: [] for size in installations}
    vendor = next(iter(installations.values())).vendor
    with ExitStack() as stack:
        servers: dict[int, tuple[Server, str]] = {}
        for size, installation in installations.items():
            server = stack.enter_context(serve(installation))
            stack.enter_context(sealing.stopped_jobs(server))
            servers[size] = server, installation.issue_token("bench")
        for number in range(rounds + 1):  # the first round warms up and is not counted
            sys.stderr.write(f"{vendor}: ingest at two sizes, round {number} of {rounds}\n")
            for size, (server, token) in servers.items():
                sent = [Writer(f"size{number}{n}").mixed(batches) for n in range(WRITERS)]
                items = sum(batch.items for part in sent for batch in part)
                before = server.cpu_s()
                clients.run_together(
                    [clients.post_batches(server.port, token, part) for part in sent]
                )
                if number:
                    costs[size].append(1000 * (server.cpu_s() - before) / items)
    _report_ratio(report, vendor, "ingest", "CPU-s per 1,000 events", costs)


def _report_ratio(
    report: Report, vendor: str, what: str, unit: str, costs: dict[int, list[float]]
) -> None:
    """Report the costs of the small and the large size, and their ratio with its bar."""
    small, large = costs
    for size, values in costs.items():
        report.add(vendor, f"{what}, {size:,} effects", unit, values)
    ratios = [more / less for more, less in zip(costs[large], costs[small], strict=False)]
    report.add(vendor, f"{what}: {large:,} against {small:,}", "×", ratios, bar=RATIO_BAR)


def _measure_batches(
    report: Report, installations: dict[int, Installation], *, rounds: int, seconds: int
) -> None:
    """Let texts of each size expire in turns, and compare the CPU time of a thousand."""
    costs: dict[int, list[float]] = {size: [] for size in installations}
    vendor = next(iter(installations.values())).vendor
    for number in range(rounds + 1):  # the first round warms up and is not counted
        sys.stderr.write(f"{vendor}: expiry, round {number} of {rounds}\n")
        for size, installation in installations.items():
            bodies, _, cpu = expire_texts(installation, seconds)
            if number and bodies:
                costs[size].append(1000 * cpu / bodies)
    _report_ratio(report, vendor, "expiry", "CPU-s per 1,000 texts", costs)


def expire_texts(installation: Installation, seconds: int) -> tuple[int, int, float]:
    """Run the command; return bodies, batches, and CPU seconds with those of the database."""
    with _expiring(installation, seconds) as child:
        in_database = dict[int, float]()  # by connection, whose time is gone with it
        while child.poll() is None:
            for process in _find_connections(installation):
                in_database[process] = max(in_database.get(process, 0), procfs.cpu_s([process]))
            time.sleep(0.05)
        text = child.stdout.read() if child.stdout else ""
    match = _RESULT.search(text)
    if child.returncode or match is None:
        raise RuntimeError(f"run_retention ended with {child.returncode}: {text[-500:]}")
    return int(match[1]), int(match[2]), float(match[3]) + sum(in_database.values())


@contextmanager
def _expiring(installation: Installation, seconds: int) -> Iterator["subprocess.Popen[str]"]:
    child = subprocess.Popen(
        [sys.executable, "manage.py", "run_retention", "--seconds", str(seconds)],
        cwd=ROOT,
        env={**installation.environment, "PGAPPNAME": _NAME},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
        child.wait(30)


def _find_connections(installation: Installation) -> list[int]:
    """Return the processes of the command's database connections; none on SQLite."""
    if installation.cluster is None:
        return []
    with psycopg.connect(installation.url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s", [_NAME]
        ).fetchall()
    return [int(process) for (process,) in rows]


def _measure_ingest(report: Report, server: Server, size: int, batches: int) -> None:
    """Compare the p99 of posted batches without and during the expiry."""
    installation = server.installation
    token = installation.issue_token("bench")
    latencies: dict[str, list[float]] = {}
    for kind in ("warm", "without", "during"):
        sent = [Writer(f"x{kind}{n}").mixed(batches) for n in range(WRITERS)]
        works = [clients.post_batches(server.port, token, part) for part in sent]
        if kind == "during":
            with _expiring(installation, 3_600):
                time.sleep(3)  # Python starts
                latencies[kind] = clients.run_together(works).all
        else:
            latencies[kind] = clients.run_together(works).all
    p99 = {kind: 1000 * percentile(values, 0.99) for kind, values in latencies.items()}
    vendor = installation.vendor
    load = f"{2 * batches} batches; load {os.getloadavg()[0]:.1f}"
    for kind in ("without", "during"):
        name = f"ingest {kind} expiry, {size:,} effects: p99"
        report.add(vendor, name, "ms per batch", [p99[kind]], note=load)
    ratio = p99["during"] / p99["without"]
    report.add(vendor, "ingest: p99 during expiry", "× without", [ratio], bar=INGEST_BAR)


def _measure_searches(report: Report, servers: dict[int, Server], *, reads: int) -> None:
    """Read the searches of the other parts in turns on both databases, whose texts expired."""
    people = {
        size: Person(server.port, server.installation.administrator, server.installation.password)
        for size, server in servers.items()
    }
    small, large = servers
    vendor = servers[large].installation.vendor
    queries = {f"search: {name}": query for name, query in pages.SEARCHES.items()}
    queries |= {f"words, {name}": query for name, query in pages.WORDS.items()}
    for what, query in queries.items():
        address = f"/search/?{urlencode({'q': query})}"
        spent: dict[int, list[float]] = {size: [] for size in servers}
        for turn in range(reads + 3):  # the first three warm up
            for size, person in people.items():
                started = time.perf_counter()
                person.get(address)
                if turn >= 3:
                    spent[size].append(1000 * (time.perf_counter() - started))
        for size, share in product(servers, (50, 95)):
            report.add(
                vendor,
                f"{what}, {size:,} effects, after expiry: p{share}",
                "ms",
                [percentile(spent[size], share / 100)],
                bar=pages.find_bar(vendor, what, share) if size == large else None,
            )
        ratio = percentile(spent[large], 0.5) / percentile(spent[small], 0.5)
        report.add(vendor, f"{what}: p50, {large:,} against {small:,}", "×", [ratio])
