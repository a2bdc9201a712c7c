"""Run the whole suite twice, on SQLite and on a real PostgreSQL, and end with one line of counts over both.

    python -m tests.both [pytest's options]

The PostgreSQL is the embedded one unless GATEBOOK_TEST_DATABASE names another. The exit code is 0 only when every test
passed in both runs; a run that did not finish counts as one failure.
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The others cannot tell one database from the other; conftest.py marks them.
DATABASE_ONLY = "not once"
NO_TESTS_COLLECTED = 5
# A file stays with one worker, because its tests share a server and a book; conftest.py puts the long files first.
SIDE_BY_SIDE = ("--dist", "loadfile", "--no-loadscope-reorder")
# Browsers and servers leave two cores idle for a quarter of the time when only two workers wait for them.
WORKERS = {"SQLite": "3", "PostgreSQL": "2"}


def main(options: list[str]) -> int:
    """Run both, print the line, return the exit code."""
    started = time.monotonic()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, url, extra in (
            ("SQLite", "", []),
            ("PostgreSQL", os.environ.get("GATEBOOK_TEST_DATABASE") or "embedded:", ["-m", DATABASE_ONLY]),
        ):
            total += run(name, url, [*options, *extra], Path(folder) / f"{name}.xml")
    words = ", ".join(f"{total[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
    print(f"{words} on SQLite and PostgreSQL in {time.monotonic() - started:.0f} s", flush=True)  # noqa: T201
    return 1 if total["failed"] or not total["passed"] else 0


def run(name: str, url: str, options: list[str], report: Path) -> Counter[str]:
    """Run the suite once with DATABASE_URL set to `url` and return how many tests passed, failed and were skipped."""
    print(f"== {name}", flush=True)  # noqa: T201
    environment = {key: value for key, value in os.environ.items() if key not in {"DATABASE_OWNER_URL", "PORT"}}
    # A cached module that was not written would be compiled again by every child that the tests start.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", WORKERS[name], *SIDE_BY_SIDE, f"--junit-xml={report}", *options],
        cwd=ROOT,
        env={**environment, "DATABASE_URL": url},
        check=False,
    ).returncode
    counts = counted(report)
    if code not in {0, NO_TESTS_COLLECTED} and not counts["failed"]:
        counts["failed"] += 1
    return counts


def counted(report: Path) -> Counter[str]:
    """Return the counts of one report of pytest; empty when it was not written."""
    counts: Counter[str] = Counter()
    if report.exists():
        for suite in ElementTree.parse(report).iter("testsuite"):  # noqa: S314 - written a moment ago by pytest
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            counts.update(failed=failed, skipped=skipped, passed=int(suite.get("tests", 0)) - failed - skipped)
    return counts


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
