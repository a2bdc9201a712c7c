"""The walks of docs/architecture.md, compared with the calls of a real request."""

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from django.db import connection

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = ROOT / "docs" / "architecture.md"
STEPS: Final = ("receive", "load", "decide", "write", "answer")
MOST_FILES: Final = 12  # files that a reader opens for one flow
_ROW: Final = re.compile(r"^\| (\w+) \| `([\w/]+\.py)` \| `([\w.]+)` \| .+ \|$")


class Step(NamedTuple):
    """A row of a walk: what kind of step it is, and the function that takes it."""

    kind: str
    file: str
    function: str  # its qualified name


def read_walk(heading: str) -> list[Step]:
    """Return the rows of the table below `heading` in docs/architecture.md."""
    _, _, section = DOCUMENT.read_text().partition(f"\n## {heading}\n")
    rows = section.partition("\n## ")[0].splitlines()
    return [Step(*match.groups()) for row in rows if (match := _ROW.match(row))]


def assert_walk(heading: str, request: Callable[[], Any]) -> None:
    """Assert that `request` calls the functions of a walk in its order.

    A walk names at most MOST_FILES files, and no step of the kind `decide` queries the database.
    """
    walk = read_walk(heading)
    assert len(walk) > 3, f"docs/architecture.md has no table below “{heading}”."
    assert {step.kind for step in walk} | {"write"} == set(STEPS)  # some flows only read
    assert len({step.file for step in walk}) <= MOST_FILES
    with _trace_calls() as calls, _forbid_queries(walk):
        request()
    first_calls = {call: position for position, call in reversed(list(enumerate(calls)))}
    missing = [step for step in walk if (step.file, step.function) not in first_calls]
    assert not missing, f"The request does not call {missing}."
    order = sorted(walk, key=lambda step: first_calls[step.file, step.function])
    assert walk == order, "The request calls the functions in another order."


@contextmanager
def _trace_calls() -> Iterator[list[tuple[str, str]]]:
    """Collect the calls of Gatebook's functions, in all threads: file and qualified name."""
    calls: list[tuple[str, str]] = []

    def record(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and (file := _relative(frame)) is not None:
            calls.append((file, frame.f_code.co_qualname))

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@contextmanager
def _forbid_queries(walk: list[Step]) -> Iterator[None]:
    """Fail when a query runs inside a function that only decides."""
    pure = {(step.file, step.function) for step in walk if step.kind == "decide"}

    def check(execute: Any, sql: str, *arguments: Any) -> Any:
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            place = _relative(frame), frame.f_code.co_qualname
            assert place not in pure, f"{place} decides, and queries the database: {sql[:200]}"
            frame = frame.f_back
        return execute(sql, *arguments)

    with connection.execute_wrapper(check):
        yield


def _relative(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    prefix = f"{ROOT}/"
    if not name.startswith(prefix) or name.startswith((f"{prefix}tests/", f"{prefix}.venv/")):
        return None
    return name.removeprefix(prefix)
