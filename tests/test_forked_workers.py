"""Workers report each test once, whatever it does."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
MIXED = """
import os, warnings
import pytest

@pytest.fixture(scope="module", autouse=True)
def file(tmp_path_factory):
    yield
    print("torn down", tmp_path_factory.mktemp("one").name)

def test_passes(): print("unseen")
def test_fails():
    print("seen")
    assert 1 == 2
@pytest.mark.skip(reason="no")
def test_is_skipped(): ...
def test_warns(): warnings.warn("look out")
def test_ends_its_worker(): os._exit(3)
def test_follows(): ...
def test_subtests(subtests):
    with subtests.test("inner"):
        assert 0
"""
EACH_ITS_OWN = """
import os, pytest, pathlib

@pytest.mark.parametrize("number", range(3))
def test_writes(number, request):
    with open("pids", "a") as file:
        file.write(f"{request.path.name} {os.getpid()} {request.config.workerinput['workerid']}\\n")
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with tests."""
    (tmp_path / "test_mixed.py").write_text(MIXED)
    for number in range(4):
        (tmp_path / f"test_own_{number}.py").write_text(EACH_ITS_OWN)
    return tmp_path


def run_pytest(files: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of the folder in two workers."""
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir=.", "-c", "/dev/null", "-ra"]
    plugins = ["-p", "tests.forked_workers", "-p", "no:django", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *plugins, "--workers=2", "--junit-xml=report.xml", *options],
        cwd=files,
        env={
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(files),
            "PATH": "/usr/bin:/bin",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # most of the start otherwise
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_each_test_is_reported_once(files: Path) -> None:
    done = run_pytest(files)
    assert done.returncode == 1, done.stdout + done.stderr
    suite = next(ElementTree.parse(files / "report.xml").iter("testsuite"))  # noqa: S314
    results = {
        case.get("name"): [child.tag for child in case if child.tag != "system-out"]
        for case in suite.iter("testcase")
        if case.get("classname") == "test_mixed"
    }
    assert results == {
        "test_passes": [],
        "test_fails": ["failure"],
        "test_is_skipped": ["skipped"],
        "test_warns": [],
        "test_ends_its_worker": ["failure"],
        "test_follows": [],
        "test_subtests": ["failure"],
    }
    assert "the worker ended during this test" in done.stdout
    assert "UserWarning: look out" in done.stdout
    assert "seen" in done.stdout
    assert "unseen" not in done.stdout
    assert "3 failed, 16 passed, 1 skipped, 1 warning" in done.stdout, done.stdout


def test_a_file_runs_in_one_worker(files: Path) -> None:
    run_pytest(files, "--ignore=test_mixed.py")
    lines = [line.split() for line in (files / "pids").read_text().splitlines()]
    assert len(lines) == 12
    assert len({(file, pid) for file, pid, _ in lines}) == 4
    assert {name for _, _, name in lines} == {"worker0", "worker1"}


def test_an_end_at_the_first_failure(files: Path) -> None:
    done = run_pytest(files, "-x", "test_mixed.py")
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "stopping after 1 failures" in done.stdout


def test_without_workers_the_process_runs_its_tests(files: Path) -> None:
    done = run_pytest(files, "--workers=0", "test_mixed.py::test_passes")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
