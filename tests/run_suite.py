"""Run the suite on SQLite and PostgreSQL in parallel; print one line of counts for both.

    python -m tests.run_suite [--matrices] [pytest's options]

With `--matrices` it runs what the suite leaves out: see docs/decisions/0038-matrices.md.

The PostgreSQL is the embedded one unless GATEBOOK_TEST_DATABASE names another. The exit code is 0
only when every test passed in both runs; a run that did not finish counts as one failure.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import IO

from tests.matrices import load_sqlite_files

ROOT = Path(__file__).resolve().parent.parent
# Which tests run, by their marks. Those marked `once` do not depend on the database.
CORE = {
    "SQLite": "not matrix",
    "PostgreSQL": "not once and not matrix and not matrix_on_postgresql",
}
MATRICES = {
    "SQLite": "matrix or deepened",
    "PostgreSQL": "not once and (matrix or deepened or matrix_on_postgresql)",
}
NO_TESTS_COLLECTED = 5
WORKERS = 2
WORKERS_ON_SQLITE = 5  # also runs the tests that do not depend on the database
SCHEMA = "schema"
IN_MEMORY = Path("/dev/shm")
WANTED_IN_MEMORY = 4 * 2**30  # bytes; a run uses about 25 % of that


def main(options: list[str]) -> int:
    """Run both databases in parallel, print the results, return the exit code.

    One after the other takes 50 % longer: the workers of each wait for servers, browsers and disks.
    The output of the second is printed after the first has ended.
    """
    started = time.monotonic()
    selected = CORE
    if "--matrices" in options:
        options = [option for option in options if option != "--matrices"]
        selected = MATRICES
        os.environ["TESTS_MATRICES"] = "1"
    with tempfile.TemporaryDirectory(prefix="gatebook-tests-", dir=home()) as made:
        folder = Path(made)
        folder.chmod(0o711)  # PostgreSQL runs as another user, where we are root
        postgresql = os.environ.get("GATEBOOK_TEST_DATABASE") or own_postgresql(folder)
        make_schemas(postgresql, folder)
        output_file = folder / "PostgreSQL.txt"
        with output_file.open("w") as out:
            # The second run may still use databases of the first: end it before the folder is
            # removed.
            marks = {name: ["-m", words, *options] for name, words in selected.items()}
            if selected is CORE:  # the marks would leave them out after they were collected
                files = load_sqlite_files()
                marks["PostgreSQL"] += [f"--ignore={file}" for file in files if not files[file]]
            second = start(postgresql, marks["PostgreSQL"], folder, "PostgreSQL", out)
            try:
                print("== SQLite", flush=True)  # noqa: T201
                first = start("", marks["SQLite"], folder, "SQLite")
                total = ended(first, folder / "SQLite.xml")
                print("== PostgreSQL", flush=True)  # noqa: T201
                total += ended(second, folder / "PostgreSQL.xml")
            finally:
                second.terminate()
                second.wait()
        print(output_file.read_text(), flush=True)  # noqa: T201
    words = ", ".join(f"{total[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
    print(f"{words} on SQLite and PostgreSQL in {time.monotonic() - started:.0f} s", flush=True)  # noqa: T201
    return 1 if total["failed"] or not total["passed"] else 0


def home() -> str:
    """Return the folder of databases and files of the run: in memory if possible, because no file
    outlives the run."""
    if os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free >= WANTED_IN_MEMORY:
        return str(IN_MEMORY)
    # the embedded PostgreSQL keeps its data outside home folders, and its socket's path is short
    return "/var/tmp"


def make_schemas(postgresql: str, folder: Path) -> None:
    """Make the schema once on each database. Otherwise every worker and every server makes its own,
    which takes seconds."""
    made = [
        subprocess.Popen(
            [sys.executable, "manage.py", "migrate", "--skip-checks", "--verbosity", "0"],
            cwd=ROOT,
            env={
                **surroundings(url, folder, f"schema-{number}"),
                "GATEBOOK_VAR": str(folder / SCHEMA),
            },
        )
        for number, url in enumerate(
            ["", *([postgresql] if postgresql == own_postgresql(folder) else [])]
        )
    ]
    codes = [process.wait() for process in made]
    if any(codes):
        raise SystemExit("The migrations failed, as the error above says; no test ran.")
    with closing(sqlite3.connect(folder / SCHEMA / "gatebook.sqlite3")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def start(
    url: str, options: list[str], folder: Path, name: str, out: IO[str] | None = None
) -> subprocess.Popen[bytes]:
    """Start the suite with DATABASE_URL set to `url` and its files in `folder`, where its report
    becomes `name`.xml."""
    report = folder / f"{name}.xml"
    workers = WORKERS if url else WORKERS_ON_SQLITE
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            f"--workers={workers}",
            f"--junit-xml={report}",
            *options,
        ],
        cwd=ROOT,
        env=surroundings(url, folder, name),
        stdout=out,
        stderr=out,
    )


def own_postgresql(folder: Path) -> str:
    """Return the DATABASE_URL of the run's own PostgreSQL. Databases of another one are no
    templates."""
    return f"embedded:{folder / 'postgresql'}"


def template(folder: Path) -> str:
    """Return the file with SQLite's schema."""
    return str(folder / SCHEMA / "gatebook.sqlite3")


def surroundings(url: str, folder: Path, name: str) -> dict[str, str]:
    """Return the environment of one run."""
    environment = {
        key: value for key, value in os.environ.items() if key not in {"DATABASE_OWNER_URL", "PORT"}
    }
    # Without cached modules every child of the tests would compile them.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for part in ("files", "var"):
        (folder / name / part).mkdir(parents=True)
    own = {
        "TMPDIR": str(folder / name / "files"),
        "GATEBOOK_VAR": str(folder / name / "var"),
        # The template of test databases: a file, or the name of a database.
        "TESTS_TEMPLATE": {"": template(folder), own_postgresql(folder): "gatebook"}.get(url, ""),
    }
    return {**environment, **own, "DATABASE_URL": url}


def ended(suite: subprocess.Popen[bytes], report: Path) -> Counter[str]:
    """Wait for the suite and return how many tests passed, failed and were skipped."""
    code = suite.wait()
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
            counts.update(
                failed=failed, skipped=skipped, passed=int(suite.get("tests", 0)) - failed - skipped
            )
    return counts


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
