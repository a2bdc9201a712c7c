"""Batches of 500 events over HTTP from two clients, and their floors: bare COPY and executemany."""

import sys
from typing import Final

from evaluation.bench import clients, db_baseline
from evaluation.bench.installation import Installation, Server, clone
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import WORKLOADS, Writer

CLIENTS: Final = 2
AGENT: Final = "bench"
BARS: Final = {
    "postgresql": (0.09, 2.0),
    "sqlite": (0.10, 2.2),
}  # CPU-s per 1,000 events, and times the floor
BARE: Final = {
    ("postgresql", "once"): "COPY",
    ("postgresql", "written"): "COPY, the ledger through a temporary table",
    ("sqlite", "once"): "executemany",
    ("sqlite", "written"): "executemany, the ledger as an upsert",
}


def clone_targets(measured: Installation) -> list[Installation]:
    """Make the databases for the floors: copies of `measured`, which must not be running."""
    measured.issue_token(AGENT)  # all copies need the agent
    return [clone(measured, "floor_once"), clone(measured, "floor_written")]


def measure(
    report: Report, server: Server, targets: list[Installation], *, rounds: int, batches: int
) -> None:
    """Measure both workloads; `targets` are from `clone_targets`.

    `batches` is the number per client and round, a multiple of three.
    """
    vendor = server.installation.vendor
    token = server.installation.issue_token(AGENT)
    recorder = db_baseline.Recorder(server.installation)
    seen: dict[tuple[str, str], list[float]] = {}
    _warm_up(server, token, min(batches, 6))
    for number in range(rounds):
        for workload in WORKLOADS:
            sys.stderr.write(f"{vendor}: {workload}, round {number + 1} of {rounds}\n")
            _measure_floors(
                server, token, recorder, targets, workload, number, CLIENTS * batches, seen
            )
            _measure_server(server, token, workload, number, batches, seen)
    _add_figures(report, vendor, seen)


def _warm_up(server: Server, token: str, batches: int) -> None:
    """Run every statement once in every worker of the server, unmeasured."""
    works = [
        clients.post_batches(server.port, token, Writer(f"warm{n}").split(batches))
        for n in range(2 * CLIENTS)
    ]
    clients.run_together(works)


def _measure_floors(
    server: Server,
    token: str,
    recorder: db_baseline.Recorder,
    targets: list[Installation],
    workload: str,
    number: int,
    batches: int,
    seen: dict[tuple[str, str], list[float]],
) -> None:
    written = []
    for batch in Writer(f"f{workload[0]}{number}").batches(workload, batches):
        post = clients.post_batches(server.port, token, [batch])
        written.append(recorder.record(post, batch.items))
    items = sum(batch.items for batch in written)
    for name, target in zip(("once", "written"), targets, strict=True):
        if name == "written" and workload == "mixed":
            continue  # its rows are written once
        db_baseline.copy_sessions(recorder.installation, target)
        rows = db_baseline.merge_rows(recorder, written) if name == "once" else written
        cpu_s, wall_s = db_baseline.write_rows(target, recorder, rows, upsert=name == "written")
        seen.setdefault((workload, f"floor {name} cpu"), []).append(1000 * cpu_s / items)
        seen.setdefault((workload, f"floor {name} rate"), []).append(items / wall_s)


def _measure_server(
    server: Server,
    token: str,
    workload: str,
    number: int,
    batches: int,
    seen: dict[tuple[str, str], list[float]],
) -> None:
    sent = [Writer(f"c{workload[0]}{number}{n}").batches(workload, batches) for n in range(CLIENTS)]
    items = sum(batch.items for part in sent for batch in part)
    for kind, status in (("", "created"), ("again ", "duplicate")):
        before, database = server.cpu_s(), server.database_cpu_s()
        spent = clients.run_together(
            [clients.post_batches(server.port, token, part, status=status) for part in sent]
        )
        used = server.cpu_s() - before
        seen.setdefault((workload, f"{kind}cpu"), []).append(1000 * used / items)
        seen.setdefault((workload, f"{kind}database"), []).append(
            1000 * (server.database_cpu_s() - database) / items
        )
        seen.setdefault((workload, f"{kind}rate"), []).append(items / spent.wall_s)
        seen.setdefault((workload, f"{kind}p50"), []).append(1000 * percentile(spent.all, 0.5))
        seen.setdefault((workload, f"{kind}p99"), []).append(1000 * percentile(spent.all, 0.99))


def _add_figures(report: Report, vendor: str, seen: dict[tuple[str, str], list[float]]) -> None:
    most, times = BARS[vendor]
    for workload in WORKLOADS:
        figures = {name: values for (of, name), values in seen.items() if of == workload}
        title = f"batch {workload}"
        report.add(vendor, f"{title}: CPU", "CPU-s per 1,000 events", figures["cpu"], bar=most)
        if vendor == "postgresql":
            report.add(
                vendor,
                f"{title}: CPU of the database alone",
                "CPU-s per 1,000 events",
                figures["database"],
            )
        report.add(vendor, f"{title}: rate", "events/s", figures["rate"])
        report.add(vendor, f"{title}: p50", "ms per batch", figures["p50"])
        report.add(vendor, f"{title}: p99", "ms per batch", figures["p99"])
        for name in ("once", "written"):
            if f"floor {name} cpu" not in figures:
                continue
            bare = figures[f"floor {name} cpu"]
            where = (
                f"{title}: floor, each row {'once' if name == 'once' else 'as often as written'}"
            )
            report.add(vendor, where, "CPU-s per 1,000 events", bare, note=BARE[vendor, name])
            ratios = [server / floor for server, floor in zip(figures["cpu"], bare, strict=True)]
            # In `split` an effect is written three times, so the bar applies to the "written" floor.
            barred = name == "written" or "floor written cpu" not in figures
            report.add(vendor, f"{title}: × that floor", "×", ratios, bar=times if barred else None)
        report.add(
            vendor, f"{title}: sent again, CPU", "CPU-s per 1,000 events", figures["again cpu"]
        )
        report.add(vendor, f"{title}: sent again, p99", "ms per batch", figures["again p99"])
