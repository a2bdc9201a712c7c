"""Tests that queries compile to, and the context in which fields compile them.

A `RowTest` has two forms: a condition for the database, and plain Python for one row that was
rebuilt as of a past moment. Request data is only ever a value: columns are named by the registry
alone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import Q

from accounts.models import Project
from display.index_progress import IndexProgress
from investigation.fulltext.sql import SearchTerm as Words

NO_ROWS: Final = Q(pk__in=())
ALL_ROWS: Final = ~NO_ROWS


@dataclass(frozen=True, slots=True)
class CompileContext:
    """Inputs of compilation, which adds the names, notes and indexes that it looked up.

    Notes are for the answer and do not stop the query.
    """

    project: Project
    now_us: int
    # Journal position of a query as of a moment; None for the current state.
    upto: int | None = None
    notes: list[str] = field(default_factory=list)
    # Names are resolved once.
    names: dict[tuple[str, str, bool], list[Any]] = field(default_factory=dict)
    # For queries as of a moment: returns the condition that a test of an entity (by name) was then,
    # or None if too much has changed.
    as_of: "Callable[[str, RowTest], Q | None] | None" = None
    people: bool = True  # False for readers who may not learn who decided.
    grouped: bool = False  # All rows are read, not only the newest.
    # By the time range, no row below this position can match; None if unknown.
    lowest: int | None = None
    # Progress of the indexes that follow the journal, by name.
    indexes: dict[str, IndexProgress] = field(default_factory=dict)

    def goes_by(self, progress: IndexProgress) -> None:
        """Record the progress of an index that this answer uses; the least one counts."""
        known_progress = self.indexes.get(progress.index)
        if known_progress is None or progress.missing >= known_progress.missing:
            self.indexes[progress.index] = progress


@dataclass(frozen=True, slots=True)
class RowTest:
    """A compiled condition.

    `q` is the database condition. `holds` is the same for one row, or None if only the database can
    evaluate it.
    `arms` are disjoint conditions whose union is `q`; each can be served by an index. `indexed` is
    True if one index finds few rows; `in_project` if rows of other projects cannot match.
    `lasts` is True if the test reads only rows that never change, up to the position of the
    context; its result is then permanent. `of` gives the operator (any, all, not) and tests that
    this test is composed of, if only the database can evaluate some of them.
    `words` are full-text terms of an effect. `by_age` are disjoint like arms, and all rows of each
    are older than those of the one before.
    `named` is the number of matching rows, or at least so many if `more`; None if they were not
    counted.
    """

    q: Q
    holds: Callable[[Any], bool] | None = None
    arms: tuple[Q, ...] = ()
    indexed: bool = False
    in_project: bool = False
    lasts: bool = False
    of: "tuple[str, tuple[RowTest, ...]] | None" = None
    words: tuple[Words, ...] = ()
    by_age: tuple[Q, ...] = ()
    named: int | None = None
    more: bool = False

    @property
    def leaves(self) -> "tuple[RowTest, ...]":
        """Return the tests that this test is composed of, or the test itself."""
        return (
            (self,)
            if self.of is None
            else tuple(leaf for test in self.of[1] for leaf in test.leaves)
        )

    @property
    def works_as_of(self) -> bool:
        """Return True if the test can be evaluated as of a past moment."""
        return all(leaf.holds is not None or leaf.lasts or bool(leaf.words) for leaf in self.leaves)


def union_tests(tests: Iterable[RowTest]) -> RowTest:
    """Return the union of the tests; without tests, no row matches."""
    test_list = list(tests)
    if len(test_list) == 1:  # with what it knows of indexes
        return test_list[0]
    q = NO_ROWS
    for number, test in enumerate(test_list):
        q = _explicit(test.q) if number == 0 else q | _explicit(test.q)
    row_tests = [test.holds for test in test_list]
    if any(row_test is None for row_test in row_tests):
        return RowTest(
            q,
            lasts=bool(test_list) and all(test.lasts for test in test_list),
            of=("any", tuple(test_list)),
        )
    return RowTest(
        q, lambda row: any(row_test(row) for row_test in row_tests if row_test is not None)
    )


def intersect_tests(tests: Iterable[RowTest]) -> RowTest:
    """Return the intersection of the tests; without tests, every row matches."""
    test_list = list(tests)
    q = Q()
    for test in test_list:
        q &= test.q
    row_tests = [test.holds for test in test_list]
    in_project = any(test.in_project for test in test_list)
    indexed = any(test.indexed for test in test_list)
    if any(row_test is None for row_test in row_tests):
        lasts = all(test.lasts for test in test_list)
        return RowTest(
            q, indexed=indexed, in_project=in_project, lasts=lasts, of=("all", tuple(test_list))
        )

    def holds(row: Any) -> bool:
        return all(row_test(row) for row_test in row_tests if row_test is not None)

    return RowTest(q, holds, indexed=indexed, in_project=in_project)


def negate(test: RowTest) -> RowTest:
    """Return the negation of the test."""
    row_test = test.holds
    if row_test is None:
        return RowTest(~_explicit(test.q), lasts=test.lasts, of=("not", (test,)))
    return RowTest(~_explicit(test.q), lambda row: not row_test(row), lasts=test.lasts)


def _explicit(q: Q) -> Q:
    """Return an explicit condition for "every row".

    Django drops an empty condition together with its `NOT` or `OR`.
    """
    return q or ALL_ROWS
