"""`make evaluate`: run a tier and write one JSON file and the page of its figures.

python -m evaluation.crashtest [--tier T0|T1|T2] [--database sqlite|postgresql] [--only PART …]
[--publish] python -m evaluation.crashtest --replay "probeable" 000100001 [--depth 1] [--database
sqlite]
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from evaluation.bench.installation import ROOT, VENDORS, describe_run, provide_cluster
from evaluation.crashtest import agent_crashes, report, server, suites
from evaluation.crashtest.checker import Findings
from evaluation.crashtest.clock import Clock
from evaluation.crashtest.domain import CASES
from evaluation.crashtest.remote import Oracle, run_oracle
from evaluation.crashtest.runner import run
from evaluation.crashtest.schedules import Choices
from evaluation.crashtest.server import Installation

TIERS: Final = ("T0", "T1", "T2")
PARTS: Final = (
    "baselines",
    "crashes",
    "killed",
    "deep",
    "killed deep",
    "server crashes",
    "interleavings",
    "races",
    "orders",
)
_SOME: Final = tuple(
    case for case in CASES if case.name in ("idempotency_key", "probeable", "opaque")
)


def main() -> int:
    """Run the chosen parts; the exit code is 0 only if every requirement is met."""
    options = _parse_arguments()
    if options.publish_from:
        report.publish(_merge_runs([json.loads(file.read_text()) for file in options.publish_from]))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends all child processes
    began = time.time()
    folder = Path(tempfile.mkdtemp(prefix="rig-"))
    results: dict[str, Any] = {
        "about": {"tier": options.tier} | describe_run(),
        "databases": {},
    }
    name = f"evaluation-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(began))}-{options.database or 'both'}.json"
    file = options.out / name
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with run_oracle(folder) as remote:
            if options.replay:
                return _replay(options, folder, remote)
            if "baselines" in options.only and options.database != "postgresql":
                clock = Clock(folder / "clock")
                deep = 2 if options.tier == "T2" else 1
                results["baselines"] = suites.run_baselines(remote, clock, crashed=deep)
            for vendor in VENDORS:
                if not options.database or vendor == options.database:
                    for so_far in _run_parts(vendor, folder, remote, options):
                        results["databases"][vendor] = so_far
                        results["about"]["minutes"] = round((time.time() - began) / 60, 1)
                        file.write_text(report.to_json(results))  # later parts may fail
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results["about"]["minutes"] = round((time.time() - began) / 60, 1)
    file.write_text(report.to_json(results))
    if options.publish:
        report.publish(results)
    sys.stdout.write(
        f"{report.render_tables(results)}\n{results['about']['minutes']} minutes; as JSON in {file}\n"
    )
    broken = report.list_violations(results)
    for sentence in broken:
        sys.stdout.write(f"NOT MET: {sentence}\n")
    return 1 if broken else 0


def _run_parts(
    vendor: str, folder: Path, remote: Oracle, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Run the chosen parts on one database; yield the figures after each part."""
    figures: dict[str, Any] = {}
    # PostgreSQL keeps its data outside home folders, and a socket's path must be short.
    cluster = Path(f"/var/tmp/gatebook-rig-{os.getpid()}")  # noqa: S108 - `embedded:` creates it and refuses an existing one
    with (
        provide_cluster(vendor, folder / "keeper", cluster) as cluster_at,
        server.serve_installation(vendor, folder / vendor, cluster_at) as installation,
    ):
        for name, work in _plan_parts(installation, remote, options.tier):
            if name in options.only:
                figures[name] = suites.measure_part(work)
                yield figures


def _plan_parts(
    installation: Installation, remote: Oracle, tier: str
) -> list[tuple[str, Callable[[], suites.Figures]]]:
    lines: dict[int, list[str]] = {}

    def crash(depth: int, tricks: int = 1) -> suites.Figures:
        figures, lines[depth] = suites.run_crashes_by_raising(
            installation, remote, depth=depth, tricks=tricks
        )
        return figures

    def kill(depth: int) -> suites.Figures:
        if depth not in lines:
            crash(depth)
        return suites.run_crashes_by_killing(installation, remote, lines[depth], depth=depth)

    plan: list[tuple[str, Callable[[], suites.Figures]]] = [
        ("crashes", lambda: crash(1)),
        ("interleavings", lambda: suites.run_interleavings(installation)),
        ("orders", lambda: suites.run_delivery_orders(installation)),
        ("mutants", lambda: suites.run_mutants(installation, remote)),
        (
            "races",
            lambda: suites.run_races(
                installation,
                remote,
                rounds=20 if tier == "T0" else 200,
                gates=5 if tier == "T0" else 50,
            ),
        ),
    ]
    if tier != "T0":
        plan += [
            ("client", lambda: suites.run_client(installation, remote)),
            ("killed", lambda: kill(1)),
            ("server crashes", lambda: suites.run_server_crashes(installation, remote)),
            (
                "server killed",
                lambda: suites.run_server_crashes(installation, remote, cases=_SOME, real=True),
            ),
        ]
    if tier == "T2":
        plan += [
            ("deep", lambda: crash(2)),
            ("killed deep", lambda: kill(2)),
            ("tricked twice", lambda: crash(1, 2)),
        ]
    return plan


def _replay(options: argparse.Namespace, folder: Path, remote: Oracle) -> int:
    """Replay one run and print the oracle's log of it."""
    name, line = options.replay
    case = next(case for case in CASES if case.name == name)
    vendor, findings = options.database or "sqlite", Findings()
    cluster = Path(f"/var/tmp/gatebook-rig-{os.getpid()}")  # noqa: S108 - see above
    with (
        provide_cluster(vendor, folder / "keeper", cluster) as cluster_at,
        server.serve_installation(vendor, folder / vendor, cluster_at) as installation,
    ):
        context = agent_crashes.make_gatebook_context(remote, installation)
        world, choices = (
            context.world(),
            Choices(options.depth, options.tricks, line=[int(digit) for digit in line.strip("-")]),
        )
        run(context, case, world, choices)
        log = remote.log()
        findings.check_run(log, world, case, line)
        for row in log.execute(
            "SELECT what, key, reference, detail FROM log WHERE world = ? ORDER BY seq", (world,)
        ):
            sys.stdout.write(" · ".join(part for part in row if part) + "\n")
        log.close()
    sys.stdout.write(f"{', '.join(choices.events)}\n{json.dumps(findings.counters)}\n")
    return 0 if findings.clean else 1


def _merge_runs(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge several runs; the first describes the machine."""
    merged: dict[str, Any] = {"about": {**runs[0]["about"]}, "databases": {}}
    merged["about"]["minutes"] = round(sum(part["about"].get("minutes", 0) for part in runs), 1)
    for part in runs:
        merged |= {"baselines": part["baselines"]} if "baselines" in part else {}
        for vendor, figures in part["databases"].items():
            merged["databases"].setdefault(vendor, {}).update(figures)
    return merged


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m evaluation.crashtest", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--tier", choices=TIERS, default="T1")
    parser.add_argument("--database", choices=VENDORS)
    every = (*PARTS, "mutants", "client", "server killed", "tricked twice")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=every,
        default=list(every),
        metavar="PART",
        help=", ".join(every),
    )
    parser.add_argument("--out", type=Path, default=ROOT / "var" / "evaluation")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="write docs/evaluation.json and docs/explanation/evaluation.md",
    )
    parser.add_argument(
        "--publish-from",
        nargs="+",
        type=Path,
        metavar="JSON",
        help="write the page from the results of earlier runs",
    )
    parser.add_argument("--replay", nargs=2, metavar=("CASE", "LINE"))
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--tricks", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
