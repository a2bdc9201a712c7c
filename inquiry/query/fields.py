"""What a field of the registry is, and how a value that stands with it becomes a test of rows.

A `Test` says the same twice: as a condition for the database, and in plain Python of one row, for rows that are judged
as of a past moment. Request data is only ever a value: the registry alone names columns.
"""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from django.db.models import CharField, F, Q, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Concat, Left, StrIndex
from django.db.models.lookups import Exact, GreaterThan

from inquiry.progress import Progress
from inquiry.query.tree import Fault, Term
from inquiry.words.column import Term as Words
from sessions import refs
from sessions.models import Project

LONGEST_VALUE: Final = 300
NARROW: Final = 100_000  # numbers between two ends, up to which an index leads to few rows
NOTHING: Final = Q(pk__in=())
EVERYTHING: Final = ~NOTHING


@dataclass(slots=True)
class Context:
    """What a value may depend on, and what is noted while a query is read: sentences about it that stop nothing."""

    project: Project
    now_us: int
    upto: int | None = None  # the journal position as of which is asked; None: as things stand now
    notes: list[str] = field(default_factory=list)
    names: dict[tuple[str, str, bool], list[Any]] = field(default_factory=dict)  # resolved once
    # As of a moment: the condition that a test of an entity (by its name) then was; None where too much has changed.
    as_of: "Callable[[str, Test], Q | None] | None" = None
    grouped: bool = False  # all rows are looked at, not the newest of them alone
    lowest: int | None = None  # position below which no row can match, by the time that is asked for; None: not known
    indexes: dict[str, Progress] = field(default_factory=dict)  # by name: those that follow the journal, how far

    def goes_by(self, progress: Progress) -> None:
        """Note how far an index has read by which this is answered; of several times the least."""
        known = self.indexes.get(progress.index)
        if known is None or progress.missing >= known.missing:
            self.indexes[progress.index] = progress


@dataclass(frozen=True, slots=True)
class Test:
    """`q` is the condition. `holds` says the same of one row, None where only the database can tell.

    `arms` are disjoint and their union is `q`; each can be served by an index. `indexed` when one index leads to few
    rows; `walled` when rows of other projects cannot meet it. `lasts` when it goes by rows that never change, up to the
    position of the context: it then says what it says ever after. `of` are the tests that a test is made of which only
    the database can tell, and how (any, all, not): each of them may be told otherwise. `words` are those that the text
    of an effect has. `falls` are disjoint as arms are, and each is of rows older than all those of the one before.
    `named` is how many rows meet it, or of `more` how many at least; None where it was not counted.
    """

    q: Q
    holds: Callable[[Any], bool] | None = None
    arms: tuple[Q, ...] = ()
    indexed: bool = False
    walled: bool = False
    lasts: bool = False
    of: "tuple[str, tuple[Test, ...]] | None" = None
    words: tuple[Words, ...] = ()
    falls: tuple[Q, ...] = ()
    named: int | None = None
    more: bool = False

    @property
    def leaves(self) -> "tuple[Test, ...]":
        """The tests that it is made of, itself where it is made of none."""
        return (self,) if self.of is None else tuple(leaf for test in self.of[1] for leaf in test.leaves)

    @property
    def is_told(self) -> bool:
        """True when as of a moment it says what it said then: by plain Python, or by what never changes."""
        return all(leaf.holds is not None or leaf.lasts or bool(leaf.words) for leaf in self.leaves)


@dataclass(frozen=True, slots=True)
class Field:
    """One thing that can be asked of an entity. `kind` says how values are read; a subclass says how they are met."""

    name: str
    label: str
    help: str = ""
    path: str = ""  # the column, as Django's ORM names it from the entity's row
    shows: str = ""  # … that groups and facets show, where it is another
    index: str = ""  # the index that leads to few rows, "" when none does
    choices: tuple[tuple[str, str], ...] = ()
    facet: bool = False
    aliases: tuple[str, ...] = ()
    compared_late: bool = False  # it is found by the chore that compares what was done with what was done before
    unkept: str = ""  # why nobody can know it as of a moment: a sentence; "" where the journal tells it

    kind: ClassVar[str] = "text"
    operators: ClassVar[tuple[str, ...]] = ("", "=")

    def test(self, term: Term, context: Context) -> Test:
        """The test that a term is. Raises Fault."""
        if term.operator not in self.operators or (term.is_range and ">" not in self.operators):
            raise Fault(term.at, term.end - term.at, f"{self.name} is {self.takes()}; it cannot be compared so.")
        for one in (*term.values, term.low, term.high):
            if one is not None and (len(one.text) > LONGEST_VALUE or not one.text.strip()):
                size = f"has at most {LONGEST_VALUE} characters" if one.text.strip() else "is not empty; ask has:field"
                raise Fault(one.at, len(one.text), f"A value {size}.")
            if one is not None and one.prefix and not self.is_textual():
                raise Fault(one.at, len(one.text) + 1, f"{self.name} is {self.takes()}; “*” has no meaning here.")
        return self._read(term, context)

    def is_textual(self) -> bool:
        """Whether values may be beginnings of it."""
        return True

    def takes(self) -> str:
        """What its values are, in words."""
        return "a text"

    def compared(self) -> Combinable | None:
        """What stands in another field's comparison for it; None when it cannot be compared."""
        return F(self.path)

    def grouped(self) -> Combinable | None:
        """What rows are grouped by of a field that is no column; None when they cannot be. It never changes."""
        return None

    def plain(self, row: Any) -> Any:
        """Its value in one row."""
        return getattr(row, self.path)

    def present(self) -> Test:
        """Whether there is a value."""
        path = self.path
        return Test(~Q(**{path: ""}), lambda row: getattr(row, path) not in ("", None))

    def _read(self, term: Term, context: Context) -> Test:
        wholes = [one.text for one in term.values if not one.prefix]
        starts = [one.text for one in term.values if one.prefix]
        path = self.path
        q = Q(**{f"{path}__in": wholes}) if len(wholes) > 1 else Q(**{path: wholes[0]}) if wholes else NOTHING
        for start in starts:
            # Not LIKE: on SQLite it takes letters of either case for the same.
            q |= Q(Exact(Left(path, len(start)), Value(start)))
        meant, beginnings = set(wholes), tuple(starts)
        indexed = bool(self.index) and not starts
        return Test(q, lambda row: _text_is(getattr(row, path), meant, beginnings), indexed=indexed)


def _text_is(value: str, wholes: set[str], beginnings: tuple[str, ...]) -> bool:
    return value in wholes or (bool(beginnings) and value.startswith(beginnings))


@dataclass(frozen=True, slots=True)
class Text(Field):
    """A text column that is "" where there is none. `few` names a partial index that leaves out rows of `common`."""

    common: tuple[str, ...] = ()
    few: Q = field(default_factory=Q)

    def _read(self, term: Term, context: Context) -> Test:
        test = super(Text, self)._read(term, context)
        if not test.indexed or not self.few:
            return test
        if {one.text for one in term.values} & set(self.common):
            return Test(test.q, test.holds)
        return Test(self.few & test.q, test.holds, indexed=True)


@dataclass(frozen=True, slots=True)
class Ref(Text):
    """A ref, found in every spelling by which git moves it: `path` is what was sent, `moves` what git moves."""

    moves: str = "moved_refs"

    def takes(self) -> str:
        """What its values are, in words."""
        return "a branch or a tag, in any spelling"

    def _read(self, term: Term, context: Context) -> Test:
        wholes = [one.text for one in term.values if not one.prefix]
        starts = [one.text for one in term.values if one.prefix]
        meant = {ref for said in wholes for ref in refs.asked(said)}
        # A beginning ends nowhere: with one letter more it is a name, as in `release/`.
        begun = {ref[:-1] for said in starts for ref in refs.asked(f"{said}x")}
        said = super(Ref, self)._read(term, context)
        listed = Concat(Value(" "), F(self.moves), Value(" "), output_field=CharField())
        q = said.q
        for sought in [*(f" {ref} " for ref in sorted(meant)), *(f" {ref}" for ref in sorted(begun))]:
            q |= Q(GreaterThan(StrIndex(listed, Value(sought)), Value(0)))
        beginnings = tuple(sorted(begun))

        def holds(row: Any) -> bool:
            moved = getattr(row, self.moves).split()
            told = said.holds is not None and said.holds(row)
            return told or any(ref in meant or (beginnings and ref.startswith(beginnings)) for ref in moved)

        return Test(q, holds)


@dataclass(frozen=True, slots=True)
class Actor(Text):
    """Who did it, as the journal names them: `actors` turns what people are called into that."""

    actors: "Callable[[Project, str], list[str]] | None" = None

    def takes(self) -> str:
        """What its values are, in words."""
        return "a user name, an agent's name, or what the journal calls them"

    def _read(self, term: Term, context: Context) -> Test:
        if any(one.prefix for one in term.values) or self.actors is None:
            return super(Actor, self)._read(term, context)
        meant = [actor for one in term.values for actor in self.actors(context.project, one.text)]
        people = all(actor.startswith("p_") for actor in meant)
        q = Q(**{f"{self.path}__in": meant}) if len(meant) > 1 else Q(**{self.path: meant[0]})
        path = self.path
        return Test(self.few & q if people else q, lambda row: getattr(row, path) in meant, indexed=people)


@dataclass(frozen=True, slots=True)
class Choice(Field):
    """One of a few known words. `common` are those that so many rows have that no index helps."""

    common: tuple[str, ...] = ()
    narrow: dict[str, Q] = field(default_factory=dict)  # names a partial index, by value

    kind: ClassVar[str] = "choice"

    def is_textual(self) -> bool:
        return False

    def takes(self) -> str:
        return f"one of {', '.join(key for key, _ in self.choices)}"

    def keys(self, term: Term) -> list[str]:
        """The chosen words. Raises Fault with the nearest one."""
        known = dict(self.choices)
        for one in term.values:
            if one.text not in known:
                close = difflib.get_close_matches(one.text.lower(), known, n=1, cutoff=0.5)
                meant = f"; did you mean “{close[0]}”?" if close else "."
                raise Fault(one.at, len(one.text), f"{self.name} is {self.takes()}{meant}")
        return list(dict.fromkeys(one.text for one in term.values))

    def _read(self, term: Term, context: Context) -> Test:
        keys, path = self.keys(term), self.path
        q = Q(**{f"{path}__in": keys}) if len(keys) > 1 else Q(self.narrow.get(keys[0], Q()), **{path: keys[0]})
        indexed = bool(self.index) and not set(keys) & set(self.common)
        return Test(q, lambda row: getattr(row, path) in keys, indexed=indexed)


@dataclass(frozen=True, slots=True)
class Own(Choice):
    """A choice that is no column: `each` says what one word means as disjoint tests."""

    each: Callable[[str, Context], Test] | None = None

    def compared(self) -> Combinable | None:
        return None

    def present(self) -> Test:
        return super(Own, self).present() if self.path else Test(Q(), lambda _row: True)

    def _read(self, term: Term, context: Context) -> Test:
        keys = self.keys(term)
        assert self.each is not None  # noqa: S101 - the registry's own tests make sure
        tests = [self.each(key, context) for key in keys]
        indexed = bool(self.index) and not set(keys) & set(self.common)
        union = any_of(tests)
        arms = tuple(arm for test in tests for arm in (test.arms or (test.q,)))
        return Test(union.q, union.holds, arms, indexed=indexed)


def any_of(tests: Iterable[Test]) -> Test:
    """Their union; of none, what no row meets."""
    given = list(tests)
    if len(given) == 1:  # with what it knows of indexes
        return given[0]
    q = NOTHING
    for number, test in enumerate(given):
        q = _said(test.q) if number == 0 else q | _said(test.q)
    tellers = [test.holds for test in given]
    if any(teller is None for teller in tellers):
        return Test(q, lasts=bool(given) and all(test.lasts for test in given), of=("any", tuple(given)))
    return Test(q, lambda row: any(teller(row) for teller in tellers if teller is not None))


def all_of(tests: Iterable[Test]) -> Test:
    """What all of them hold of; of none, every row."""
    given = list(tests)
    q = Q()
    for test in given:
        q &= test.q
    tellers = [test.holds for test in given]
    walled = any(test.walled for test in given)
    indexed = any(test.indexed for test in given)
    if any(teller is None for teller in tellers):
        lasts = all(test.lasts for test in given)
        return Test(q, indexed=indexed, walled=walled, lasts=lasts, of=("all", tuple(given)))
    plain: Callable[[Any], bool] = lambda row: all(teller(row) for teller in tellers if teller is not None)  # noqa: E731
    return Test(q, plain, indexed=indexed, walled=walled)


def negated(test: Test) -> Test:
    """What it does not hold of."""
    teller = test.holds
    if teller is None:
        return Test(~_said(test.q), lasts=test.lasts, of=("not", (test,)))
    return Test(~_said(test.q), lambda row: not teller(row), lasts=test.lasts)


def _said(q: Q) -> Q:
    """A condition that every row meets, said in words: Django leaves an empty one out, and `NOT` or `OR` with it."""
    return q or EVERYTHING
