"""Field base classes, and the tests that their values compile to.

A `RowTest` has two forms: a condition for the database, and plain Python for one row that was
rebuilt as of a past moment. Request data is only ever a value: columns are named by the registry
alone.
"""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from django.db.models import CharField, F, Q, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Concat, Left, StrIndex
from django.db.models.lookups import Exact, GreaterThan

from accounts import git_refs
from accounts.models import Project
from display.index_progress import IndexProgress
from investigation.fulltext.sql import SearchTerm as Words
from investigation.query.parser.ast import QueryError, Term

MAX_VALUE_CHARACTERS: Final = 300
NARROW_RANGE: Final = 100_000  # Width of a number range up to which an index finds few rows.
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
    True if one index finds few rows; `walled` if rows of other projects cannot match.
    `lasts` is True if the test reads only rows that never change, up to the position of the
    context; its result is then permanent. `of` gives the operator (any, all, not) and tests that
    this test is composed of, if only the database can evaluate some of them.
    `words` are full-text terms of an effect. `falls` are disjoint like arms, and all rows of each
    are older than those of the one before.
    `named` is the number of matching rows, or at least so many if `more`; None if they were not
    counted.
    """

    q: Q
    holds: Callable[[Any], bool] | None = None
    arms: tuple[Q, ...] = ()
    indexed: bool = False
    walled: bool = False
    lasts: bool = False
    of: "tuple[str, tuple[RowTest, ...]] | None" = None
    words: tuple[Words, ...] = ()
    falls: tuple[Q, ...] = ()
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
    def is_told(self) -> bool:
        """Return True if the test can be evaluated as of a past moment."""
        return all(leaf.holds is not None or leaf.lasts or bool(leaf.words) for leaf in self.leaves)


@dataclass(frozen=True, slots=True)
class Field:
    """A searchable property of an entity, parsed by `kind`; subclasses compile tests."""

    name: str
    label: str
    help: str = ""
    path: str = ""  # The column, as a Django ORM path from the entity's row.
    shows: str = ""  # The column that groups and facets show, if different.
    index: str = ""  # The index that finds few rows, or "".
    choices: tuple[tuple[str, str], ...] = ()
    facet: bool = False
    aliases: tuple[str, ...] = ()
    # The job that compares calls with earlier calls maintains the values.
    compared_late: bool = False
    # A sentence why the past value is unknown, or "" if the journal records it.
    unkept: str = ""

    kind: ClassVar[str] = "text"
    operators: ClassVar[tuple[str, ...]] = ("", "=")

    def test(self, term: Term, context: CompileContext) -> RowTest:
        """Compile a term. Raises QueryError."""
        if term.operator not in self.operators or (term.is_range and ">" not in self.operators):
            raise QueryError(
                term.at,
                term.end - term.at,
                f"{self.name} is {self.takes()}. It does not support this operator.",
            )
        for value in (*term.values, term.low, term.high):
            if value is not None and (
                len(value.text) > MAX_VALUE_CHARACTERS or not value.text.strip()
            ):
                problem = (
                    f"A value can have at most {MAX_VALUE_CHARACTERS} characters."
                    if value.text.strip()
                    else "A value is empty. Use has:field to test for a value."
                )
                raise QueryError(value.at, len(value.text), problem)
            if value is not None and value.prefix and not self.is_textual():
                raise QueryError(
                    value.at,
                    len(value.text) + 1,
                    f"{self.name} is {self.takes()}. It does not support “*”.",
                )
        return self._read(term, context)

    def is_textual(self) -> bool:
        """Return True if a value can be a prefix with `*`."""
        return True

    def takes(self) -> str:
        """Return a description of the accepted values."""
        return "a text"

    def compared(self) -> Combinable | None:
        """Return the expression for comparison with another field, or None."""
        return F(self.path)

    def grouped(self) -> Combinable | None:
        """Return the expression to group by if the field is not a column, or None.

        The value must never change.
        """
        return None

    def format_group_key(self, key: Any) -> Any:
        """Return a group key as readers see it. Groups are ordered by the key itself."""
        return key

    def plain(self, row: Any) -> Any:
        """Return the field's value in one row."""
        return getattr(row, self.path)

    def present(self) -> RowTest:
        """Return the test that the field has a value."""
        path = self.path
        return RowTest(~Q(**{path: ""}), lambda row: getattr(row, path) not in ("", None))

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        exact_values = [value.text for value in term.values if not value.prefix]
        prefixes = [value.text for value in term.values if value.prefix]
        path = self.path
        q = (
            Q(**{f"{path}__in": exact_values})
            if len(exact_values) > 1
            else Q(**{path: exact_values[0]})
            if exact_values
            else NO_ROWS
        )
        for prefix in prefixes:
            # Not LIKE: on SQLite, LIKE ignores case.
            q |= Q(Exact(Left(path, len(prefix)), Value(prefix)))
        exact_set, prefix_tuple = set(exact_values), tuple(prefixes)
        indexed = bool(self.index) and not prefixes
        return RowTest(
            q,
            lambda row: _matches_text(getattr(row, path), exact_set, prefix_tuple),
            indexed=indexed,
        )


def _matches_text(value: str, exact_values: set[str], prefixes: tuple[str, ...]) -> bool:
    return value in exact_values or (bool(prefixes) and value.startswith(prefixes))


@dataclass(frozen=True, slots=True)
class Text(Field):
    """A text column that is "" if there is no value.

    `few` names a partial index that excludes rows with a `common` value.
    """

    common: tuple[str, ...] = ()
    few: Q = field(default_factory=Q)

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        test = super(Text, self)._read(term, context)
        if not test.indexed or not self.few:
            return test
        if {value.text for value in term.values} & set(self.common):
            return RowTest(test.q, test.holds)
        return RowTest(self.few & test.q, test.holds, indexed=True)


@dataclass(frozen=True, slots=True)
class Ref(Text):
    """A ref, found in every spelling of the ref that git moves.

    `path` holds what was sent; `moves` holds what git moves.
    """

    moves: str = "moved_refs"

    def takes(self) -> str:
        """Return a description of the accepted values."""
        return "a branch or tag, in any spelling"

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        exact_values = [value.text for value in term.values if not value.prefix]
        prefixes = [value.text for value in term.values if value.prefix]
        exact_refs = {
            ref for text_test in exact_values for ref in git_refs.parse_searched_refs(text_test)
        }
        # A prefix is incomplete: append one letter to make it a ref name, as in `release/`.
        ref_prefixes = {
            ref[:-1]
            for text_test in prefixes
            for ref in git_refs.parse_searched_refs(f"{text_test}x")
        }
        text_test = super(Ref, self)._read(term, context)
        moved_list = Concat(Value(" "), F(self.moves), Value(" "), output_field=CharField())
        q = text_test.q
        for part in [
            *(f" {ref} " for ref in sorted(exact_refs)),
            *(f" {ref}" for ref in sorted(ref_prefixes)),
        ]:
            q |= Q(GreaterThan(StrIndex(moved_list, Value(part)), Value(0)))
        prefix_tuple = tuple(sorted(ref_prefixes))

        def holds(row: Any) -> bool:
            moved = getattr(row, self.moves).split()
            is_sent_match = text_test.holds is not None and text_test.holds(row)
            return is_sent_match or any(
                ref in exact_refs or (prefix_tuple and ref.startswith(prefix_tuple))
                for ref in moved
            )

        return RowTest(q, holds)


@dataclass(frozen=True, slots=True)
class Actor(Text):
    """The actor of an entry. `actors` maps a displayed name to the journal's names."""

    actors: "Callable[[Project, str], list[str]] | None" = None

    def takes(self) -> str:
        """Return a description of the accepted values."""
        return "a user name, an agent's name, or the journal's name for them"

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        if any(value.prefix for value in term.values) or self.actors is None:
            return super(Actor, self)._read(term, context)
        actor_names = [
            actor for value in term.values for actor in self.actors(context.project, value.text)
        ]
        people = all(actor.startswith("p_") for actor in actor_names)
        q = (
            Q(**{f"{self.path}__in": actor_names})
            if len(actor_names) > 1
            else Q(**{self.path: actor_names[0]})
        )
        path = self.path
        return RowTest(
            self.few & q if people else q,
            lambda row: getattr(row, path) in actor_names,
            indexed=people,
        )


@dataclass(frozen=True, slots=True)
class Choice(Field):
    """One of a few known words. `common` words match so many rows that no index helps."""

    common: tuple[str, ...] = ()
    # The condition of a partial index, by value.
    narrow: dict[str, Q] = field(default_factory=dict)

    kind: ClassVar[str] = "choice"

    def is_textual(self) -> bool:
        return False

    def takes(self) -> str:
        return f"one of {', '.join(key for key, _ in self.choices)}"

    def keys(self, term: Term) -> list[str]:
        """Return the chosen words. Raises QueryError with the closest known word."""
        known_words = dict(self.choices)
        for value in term.values:
            if value.text not in known_words:
                close = difflib.get_close_matches(value.text.lower(), known_words, n=1, cutoff=0.5)
                suggestion = f"; did you mean “{close[0]}”?" if close else "."
                sentence = f"“{value.text[:40]}” is not valid for {self.name}. Use {self.takes()}"
                raise QueryError(value.at, len(value.text), sentence + suggestion)
        return list(dict.fromkeys(value.text for value in term.values))

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        keys, path = self.keys(term), self.path
        q = (
            Q(**{f"{path}__in": keys})
            if len(keys) > 1
            else Q(self.narrow.get(keys[0], Q()), **{path: keys[0]})
        )
        indexed = bool(self.index) and not set(keys) & set(self.common)
        return RowTest(q, lambda row: getattr(row, path) in keys, indexed=indexed)


@dataclass(frozen=True, slots=True)
class ComputedChoice(Choice):
    """A choice that is not a column. `each` compiles one word to disjoint tests."""

    each: Callable[[str, CompileContext], RowTest] | None = None

    def compared(self) -> Combinable | None:
        return None

    def present(self) -> RowTest:
        return (
            super(ComputedChoice, self).present() if self.path else RowTest(Q(), lambda _row: True)
        )

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        keys = self.keys(term)
        assert self.each is not None  # noqa: S101 - the registry's own tests make sure
        tests = [self.each(key, context) for key in keys]
        indexed = bool(self.index) and not set(keys) & set(self.common)
        union = union_tests(tests)
        arms = tuple(arm for test in tests for arm in (test.arms or (test.q,)))
        return RowTest(union.q, union.holds, arms, indexed=indexed)


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
    walled = any(test.walled for test in test_list)
    indexed = any(test.indexed for test in test_list)
    if any(row_test is None for row_test in row_tests):
        lasts = all(test.lasts for test in test_list)
        return RowTest(q, indexed=indexed, walled=walled, lasts=lasts, of=("all", tuple(test_list)))

    def holds(row: Any) -> bool:
        return all(row_test(row) for row_test in row_tests if row_test is not None)

    return RowTest(q, holds, indexed=indexed, walled=walled)


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
