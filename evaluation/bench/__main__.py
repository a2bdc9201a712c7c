"""`python -m evaluation.bench`: measure Gatebook on SQLite and PostgreSQL and compare with the bars.

Prints a table and writes the same as JSON. `--quick` does less of everything; `--only` and
`--database` choose parts.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evaluation.bench import (
    agent_hooks,
    approvals,
    batches,
    cards,
    commands,
    heartbeats,
    memory_growth,
    overview_page,
    pages,
    proof_pages,
    resume,
    sealing,
    search,
    span_batches,
    text_expiry,
    write_contention,
)
from evaluation.bench.installation import (
    ROOT,
    VENDORS,
    Installation,
    clone,
    describe_run,
    install,
    provide_cluster,
    serve,
)
from evaluation.bench.report import Report


@dataclass(frozen=True)
class Size:
    """How much of everything a run does."""

    rounds: int
    batches: int  # of one client in one round
    effects: int  # of one agent in one round of single commands
    sizes: tuple[int, ...]  # effects in the databases that are read, the smallest first
    reads: int  # of each page in one round
    costly_batches: int  # batches of one client in one round, during costly queries
    calls: int  # of one importer, and of one coding agent
    starts: int  # of the command of hooks
    growth_batches: int  # of one client and workload in a tenth
    growth_effects: int  # of one agent in a tenth
    gates: int  # pending at once
    cards: int  # of them whose pages are read
    heartbeat_sessions: int  # sessions
    resumed: int  # effects of the longest session that is resumed


FULL = Size(
    3,
    20,
    60,
    (10_000, 100_000, 1_000_000),
    12,
    60,
    4_000,
    40,
    20,
    40,
    5_000,
    200,
    heartbeats.BARRED,
    100_000,
)
QUICK = Size(1, 5, 12, (2_000, 10_000), 3, 5, 250, 10, 3, 5, 50, 10, 1_000, 2_000)
_spent: dict[str, int] = {}  # seconds, by database and part
PARTS = (
    "batch",
    "traces",
    "hooks",
    "command",
    "heartbeats",
    "memory",
    "busy",
    "seal",
    "read",
    "resume",
    "gates",
    "cards",
    "overview",
    "proofs",
    "upkeep",
    "retention",
)
MAX_HOOK_CALLS = 500  # tool calls in one round
NOT_QUICK = ("memory", "heartbeats", "resume", "cards", "overview", "proofs", "upkeep", "retention")


def main() -> int:
    """Run the chosen parts. Missed bars are shown in the table; the exit code stays 0."""
    parser = argparse.ArgumentParser(
        prog="python -m evaluation.bench", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a little of everything but memory, heartbeats, resume, cards, overview, proofs, upkeep; four minutes",
    )
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="this part only; may be repeated"
    )
    parser.add_argument("--database", choices=["sqlite", "postgres"], help="this database only")
    parser.add_argument("--rounds", type=int, help="rounds whose median is reported")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "var" / "bench", help="folder of the JSON file"
    )
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    if options.rounds:
        size = Size(**{**vars(size), "rounds": options.rounds})
    # A short run skips these parts: memory shows only first-request costs and takes 25 % of the time,
    # heartbeats take a minute each round; a small journal shows nothing of the others.
    # Retention fills two large databases, and runs only when it is named.
    parts = options.only or [
        part for part in PARTS if part != "retention" and not (options.quick and part in NOT_QUICK)
    ]
    vendors = [
        vendor for vendor in VENDORS if not options.database or vendor.startswith(options.database)
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends all child processes
    began = time.time()
    report = Report(
        describe_run() | {"load_before": round(os.getloadavg()[0], 2), "size": vars(size)}
    )
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=_make_folder(options.out)))
    # PostgreSQL keeps its data outside home folders, and a socket's path must be short.
    # `embedded:` creates the folder and refuses an existing one.
    cluster = f"/var/tmp/gatebook-bench-{os.getpid()}"  # noqa: S108 - guarded as described above
    try:
        for vendor in vendors:
            measure(report, vendor, folder / vendor, Path(cluster), size, parts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        # Report what was measured before a failure.
        report.about["minutes"] = round((time.time() - began) / 60, 1)
        report.about["seconds_of"] = _spent
        path = options.out / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(began))}.json"
        report.write(path)
        sys.stdout.write(
            f"{report.render_table()}\n{report.about['minutes']} minutes; the same as JSON in {path}\n"
        )
    return 0


def measure(
    report: Report, vendor: str, folder: Path, cluster: Path, size: Size, parts: Sequence[str]
) -> None:
    """Measure `parts` on one database.

    Creates `folder` and `cluster` (PostgreSQL's folder), and removes `cluster`.
    """
    with provide_cluster(vendor, folder, cluster) as cluster_at:
        fresh = install(vendor, folder / "fresh", cluster_at)
        if {"batch", "traces", "command", "heartbeats", "memory", "busy"} & set(parts):
            _measure_writing(report, clone(fresh, "measured"), size, parts)
        if "seal" in parts:
            with _record_time(vendor, "seal"), serve(clone(fresh, "sealed")) as server:
                sealing.measure(
                    report,
                    server,
                    rounds=3
                    * size.rounds,  # one round differs from the next by more than a seal costs
                    batches=size.batches,
                    paced_s=30 if size.rounds > 1 else 5,
                )
        if "hooks" in parts:
            with _record_time(vendor, "hooks"), serve(clone(fresh, "hooked")) as server:
                agent_hooks.measure(
                    report,
                    server,
                    rounds=size.rounds,
                    calls=min(size.calls, MAX_HOOK_CALLS),
                    starts=size.starts,
                )
        if "gates" in parts:
            with _record_time(vendor, "gates"), serve(clone(fresh, "inbox")) as server:
                approvals.measure(
                    report, server, pending=size.gates, rounds=size.rounds, batches=size.batches
                )
        if "resume" in parts:
            with _record_time(vendor, "resume"):
                resume.measure(
                    report,
                    clone(fresh, "resumed"),
                    rounds=min(size.rounds, 2),
                    effects=size.resumed,
                )
        if "read" in parts:
            with _record_time(vendor, "read"):
                small = clone(fresh, "small")
                options = {"batches": size.costly_batches}
                pages.measure(
                    report, small, rounds=size.rounds, reads=size.reads, sizes=size.sizes, **options
                )
        if "cards" in parts:
            with _record_time(vendor, "cards"):
                cards.measure(
                    report,
                    clone(fresh, "cards"),
                    effects=size.sizes[-1],
                    pending=size.gates,
                    reads=size.cards,
                )
        if "overview" in parts:
            with _record_time(vendor, "overview"):
                overview_page.measure(
                    report,
                    clone(fresh, "overview"),
                    effects=size.sizes[-1],
                    pending=size.cards,
                    reads=size.cards,
                )
        if "proofs" in parts:
            with _record_time(vendor, "proofs"):
                proof_pages.measure(
                    report, clone(fresh, "proved"), entries=size.sizes[-1], reads=size.cards
                )
        if "retention" in parts:
            with _record_time(vendor, "retention"):
                is_small = size.rounds < FULL.rounds
                text_expiry.measure(
                    report,
                    fresh,
                    rounds=min(size.rounds, 2) if is_small else size.rounds,
                    seconds=1 if is_small else 4,  # four rounds leave texts in the small database
                    batches=20 * size.batches if is_small else 10 * size.batches,
                    quick=is_small,
                )
        if "upkeep" in parts:
            with _record_time(vendor, "upkeep"):
                search.measure_upkeep(report, fresh, rounds=1, batches=size.batches)


def _measure_writing(
    report: Report, measured: Installation, size: Size, parts: Sequence[str]
) -> None:
    floors = batches.clone_targets(measured) if "batch" in parts else []
    if {"batch", "traces", "command", "heartbeats"} & set(parts):
        with serve(measured) as server:
            if "traces" in parts:
                with _record_time(measured.vendor, "traces"):
                    span_batches.measure(report, server, rounds=size.rounds, batches=size.batches)
            if "batch" in parts:
                with _record_time(measured.vendor, "batch"):
                    batches.measure(
                        report, server, floors, rounds=size.rounds, batches=size.batches
                    )
            if "command" in parts:
                # The job worker's share of a burst is measured by search.measure_upkeep.
                search.wait_until_quiet(server)
                with _record_time(measured.vendor, "command"):
                    commands.measure(report, server, rounds=size.rounds, effects=size.effects)
            if "heartbeats" in parts:
                with _record_time(measured.vendor, "heartbeats"):  # a minute; rounds differ by 2 %
                    heartbeats.measure(report, server, sessions=size.heartbeat_sessions, rounds=1)
    # Memory is measured on a fresh server. Only on SQLite do all writers wait for each other.
    with_person = "busy" in parts and measured.vendor == "sqlite"
    if "memory" in parts or with_person:
        with serve(measured) as server:
            if "memory" in parts:
                # In a short run the first tenth ends before every thread has done its first work.
                barred = size.growth_batches >= FULL.growth_batches
                work = {"batches": size.growth_batches, "effects": size.growth_effects}
                with _record_time(measured.vendor, "memory"):
                    memory_growth.measure(report, server, **work, barred=barred)
            if with_person:
                with _record_time(measured.vendor, "busy"):
                    write_contention.measure(report, server, calls=size.calls)


@contextmanager
def _record_time(vendor: str, part: str) -> Iterator[None]:
    """Record how long a part took."""
    started = time.monotonic()
    try:
        yield
    finally:
        _spent[f"{vendor}: {part}"] = round(time.monotonic() - started)


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    raise SystemExit(main())
