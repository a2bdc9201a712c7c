"""`make evaluate`: run a tier, write one JSON file and the page that shows it.

python -m evaluation.crashtest [--tier T0|T1|T2] [--database sqlite|postgresql] [--only PART …]
[--publish] python -m evaluation.crashtest --replay "probeable" 000100001 [--depth 1] [--database
sqlite]
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from evaluation.bench.installation import ROOT, VENDORS, ground
from evaluation.crashtest import agent_crashes, report, server, suites
from evaluation.crashtest.checker import Found
from evaluation.crashtest.clock import Clock
from evaluation.crashtest.domain import CASES
from evaluation.crashtest.remote import Oracle, oracle
from evaluation.crashtest.runner import run
from evaluation.crashtest.schedules import Choices
from evaluation.crashtest.server import House

TIERS: Final = ("T0", "T1", "T2")
PARTS: Final = (
    "baselines",
    "crashes",
    "killed",
    "deep",
    "killed deep",
    "falls",
    "interleavings",
    "meetings",
    "orders",
)
_SOME: Final = tuple(
    case for case in CASES if case.name in ("idempotency_key", "probeable", "opaque")
)


def main() -> int:
    """Run what was asked for; the exit code is 0 only when every bar holds."""
    asked = _arguments()
    if asked.publish_from:
        report.publish(_together([json.loads(file.read_text()) for file in asked.publish_from]))
        return 0
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that everything that was started is also ended
    began = time.time()
    folder = Path(tempfile.mkdtemp(prefix="rig-"))
    results: dict[str, Any] = {"about": about(asked.tier), "databases": {}}
    name = f"evaluation-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(began))}-{asked.database or 'both'}.json"
    file = asked.out / name
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with oracle(folder) as remote:
            if asked.replay:
                return _replay(asked, folder, remote)
            if "baselines" in asked.only and asked.database != "postgresql":
                clock = Clock(folder / "clock")
                deep = 2 if asked.tier == "T2" else 1
                results["baselines"] = suites.baselines(remote, clock, crashed=deep)
            for vendor in VENDORS:
                if not asked.database or vendor == asked.database:
                    for so_far in _on(vendor, folder, remote, asked):
                        results["databases"][vendor] = so_far
                        results["about"]["minutes"] = round((time.time() - began) / 60, 1)
                        file.write_text(report.as_json(results))  # what comes later may fail
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results["about"]["minutes"] = round((time.time() - began) / 60, 1)
    file.write_text(report.as_json(results))
    if asked.publish:
        report.publish(results)
    sys.stdout.write(
        f"{report.tables(results)}\n{results['about']['minutes']} minutes; as JSON in {file}\n"
    )
    broken = report.broken(results)
    for sentence in broken:
        sys.stdout.write(f"NOT HELD: {sentence}\n")
    return 1 if broken else 0


def _on(
    vendor: str, folder: Path, remote: Oracle, asked: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Everything on one database; what there is so far after each part."""
    told: dict[str, Any] = {}
    # PostgreSQL keeps its data outside home folders, and a socket's path must be short.
    cluster = Path(f"/var/tmp/gatebook-rig-{os.getpid()}")  # noqa: S108 - made by `embedded:`, which refuses another's
    with (
        ground(vendor, folder / "keeper", cluster) as found,
        server.serve(vendor, folder / vendor, found) as served,
    ):
        for name, work in _plan(served, remote, asked.tier):
            if name in asked.only:
                told[name] = suites.timed(work)
                yield told


def _plan(
    served: House, remote: Oracle, tier: str
) -> list[tuple[str, Callable[[], suites.Figures]]]:
    lines: dict[int, list[str]] = {}

    def crash(depth: int, tricks: int = 1) -> suites.Figures:
        figures, lines[depth] = suites.crashes_by_raising(
            served, remote, depth=depth, tricks=tricks
        )
        return figures

    def kill(depth: int) -> suites.Figures:
        if depth not in lines:
            crash(depth)
        return suites.crashes_by_killing(served, remote, lines[depth], depth=depth)

    plan: list[tuple[str, Callable[[], suites.Figures]]] = [
        ("crashes", lambda: crash(1)),
        ("interleavings", lambda: suites.interleaved(served)),
        ("orders", lambda: suites.delivered(served)),
        ("mutants", lambda: suites.mutants(served, remote)),
        (
            "meetings",
            lambda: suites.met(
                served, remote, rounds=20 if tier == "T0" else 200, gates=5 if tier == "T0" else 50
            ),
        ),
    ]
    if tier != "T0":
        plan += [
            ("client", lambda: suites.the_client(served, remote)),
            ("killed", lambda: kill(1)),
            ("falls", lambda: suites.server_falls(served, remote)),
            ("server killed", lambda: suites.server_falls(served, remote, cases=_SOME, real=True)),
        ]
    if tier == "T2":
        plan += [
            ("deep", lambda: crash(2)),
            ("killed deep", lambda: kill(2)),
            ("tricked twice", lambda: crash(1, 2)),
        ]
    return plan


def _replay(asked: argparse.Namespace, folder: Path, remote: Oracle) -> int:
    """One run again, with all that the oracle saw of it."""
    name, line = asked.replay
    case = next(case for case in CASES if case.name == name)
    vendor, found = asked.database or "sqlite", Found()
    cluster = Path(f"/var/tmp/gatebook-rig-{os.getpid()}")  # noqa: S108 - see above
    with (
        ground(vendor, folder / "keeper", cluster) as cl,
        server.serve(vendor, folder / vendor, cl) as served,
    ):
        made = agent_crashes.gatebook(remote, served)
        world, choices = (
            made.world(),
            Choices(asked.depth, asked.tricks, line=[int(one) for one in line.strip("-")]),
        )
        run(made, case, world, choices)
        log = remote.log()
        found.judge(log, world, case, line)
        for row in log.execute(
            "SELECT what, key, reference, detail FROM log WHERE world = ? ORDER BY seq", (world,)
        ):
            sys.stdout.write(" · ".join(part for part in row if part) + "\n")
        log.close()
    sys.stdout.write(f"{', '.join(choices.told)}\n{json.dumps(found.counters)}\n")
    return 0 if found.clean else 1


def _together(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Several runs as one: the first says what it was measured on."""
    made: dict[str, Any] = {"about": {**runs[0]["about"]}, "databases": {}}
    made["about"]["minutes"] = round(sum(one["about"].get("minutes", 0) for one in runs), 1)
    for one in runs:
        made |= {"baselines": one["baselines"]} if "baselines" in one else {}
        for vendor, told in one["databases"].items():
            made["databases"].setdefault(vendor, {}).update(told)
    return made


def about(tier: str) -> dict[str, Any]:
    """What a reader of the figures must know about the run."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "tier": tier,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
    }


def _arguments() -> argparse.Namespace:
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
        help="write the page from earlier runs",
    )
    parser.add_argument("--replay", nargs=2, metavar=("CASE", "LINE"))
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--tricks", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
