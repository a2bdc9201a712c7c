"""Matrices: `make test` runs a core of them, `make test-matrices` all that the core leaves out.

docs/decisions/0038-matrices.md says what runs when, and why.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, permutations
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T")

# tests/run_suite.py sets it for `make test-matrices`.
IN_FULL: Final = bool(os.environ.get("TESTS_MATRICES"))

LIST_OF_FILES: Final = Path(__file__).with_name("sqlite_in_core.txt")


def load_sqlite_files() -> dict[str, frozenset[str]]:
    """Return the test files that `make test` runs on SQLite only, but for the functions named."""
    files = {}
    for line in LIST_OF_FILES.read_text().splitlines():
        if line and not line.startswith("#"):
            file, _, functions = line.partition(" except ")
            files[file] = frozenset(functions.split())
    return files


def keep_core(
    cases: Iterable[Any],
    keep: Collection[Any] = (),
    *,
    one_in: int = 0,
    mark: pytest.MarkDecorator = pytest.mark.matrix,
) -> list[ParameterSet]:
    """Return all cases for `parametrize`; those outside the core get `mark`.

    The core is what `keep` lists, and every `one_in`-th case. It is never empty. The mark is
    `matrix`, or `matrix_on_postgresql` where SQLite runs every case.
    """
    every = list(cases)
    missing = [case for case in keep if case not in every]
    assert not missing, f"the core names cases that do not exist: {missing}"
    core = [
        case in keep or bool(one_in and number % one_in == 0) for number, case in enumerate(every)
    ]
    assert any(core), "the core is empty"
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if in_core else mark,
        )
        for case, in_core in zip(every, core, strict=True)
    ]


def keep_orders(facts: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Return the orders of some facts: all with `make test-matrices`, else every fifth.

    A test of them has the mark `deepened`. Every fifth, since five divides none of 2, 6 and 24: each
    pair of the last four facts occurs in either order.
    """
    return islice(permutations(facts), 0, None, 1 if IN_FULL else 5)


def count_examples(core: int, full: int) -> int:
    """Return how many examples a property draws now: `core` in `make test`.

    Its test has the mark `deepened`, so that `make test-matrices` runs it again, with `full`.
    """
    return full if IN_FULL else core
