"""Matrices keep a core in `make test`."""

import re
from pathlib import Path

import pytest

from tests.conftest import FILES_WITH_A_BROWSER
from tests.matrices import keep_core, load_sqlite_files

ROOT = Path(__file__).resolve().parents[2]
BROWSER_PARAMETER = re.compile(r"\b(?:new_page: Callable|browser_page: Page|browser: Browser)\b")


def test_files_that_run_on_sqlite_only_exist_and_are_a_minority() -> None:
    files = load_sqlite_files()
    every = {file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py")}
    assert files.keys() <= every
    for file, functions in files.items():
        text = (ROOT / file).read_text()
        assert not [name for name in functions if f"def {name}(" not in text], file
    assert 0 < len(files) < len(every) / 2


def test_every_file_with_a_browser_is_named() -> None:
    """All of them run in one worker. Another worker would start a browser and a server of its own."""
    files = {file.name: file.read_text() for file in (ROOT / "tests").rglob("test_*.py")}
    this_file = Path(__file__).name
    opened = {
        name for name, text in files.items() if name != this_file and BROWSER_PARAMETER.search(text)
    }
    named = {name for name in files if "browser" in name} | FILES_WITH_A_BROWSER
    assert opened - named == set()
    assert files.keys() >= FILES_WITH_A_BROWSER


def test_the_cases_outside_the_core_are_marked() -> None:
    cases = keep_core(["a", "b", ("c", 1)], ["b"])
    assert [case.values for case in cases] == [("a",), ("b",), ("c", 1)]
    assert [[mark.name for mark in case.marks] for case in cases] == [["matrix"], [], ["matrix"]]
    thirds = keep_core(range(7), one_in=3)
    assert [case.values[0] for case in thirds if not case.marks] == [0, 3, 6]


@pytest.mark.parametrize("keep", [(), ("d",)], ids=["empty", "unknown"])
def test_a_core_without_a_case_is_refused(keep: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError, match="the core"):
        keep_core(["a", "b"], keep)
