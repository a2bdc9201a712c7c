"""What a field of the registry is, and how a value that stands with it becomes a test of rows.

A `Test` says the same twice: as a condition for the database, and in plain Python of one row, for rows that are judged
as of a past moment. Request data is only ever a value: the registry alone names columns.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Left
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from inquiry.query import values
from inquiry.query.syntax import Fault, One, Term
from sessions.models import Project

LONGEST_VALUE: Final = 300
NARROW: Final = 100_000  # numbers between two ends, up to which an index leads to few rows
NOTHING: Final = Q(pk__in=())
_COMPARE: Final = {">": GreaterThan, ">=": GreaterThanOrEqual, "<": LessThan, "<=": LessThanOrEqual, "": Exact}
_PLAIN: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "": lambda a, b: a == b,
}


@dataclass(slots=True)
class Context:
    """What a value may depend on, and what is noted while a query is read: sentences about it that stop nothing."""

    project: Project
    now_us: int
    notes: list[str] = field(default_factory=list)
    names: dict[tuple[str, str, bool], list[Any]] = field(default_factory=dict)  # resolved once


@dataclass(frozen=True, slots=True)
class Test:
    """`q` is the condition. `holds` says the same of one row, None where only the database can tell.

    `arms` are disjoint and their union is `q`; each can be served by an index. `indexed` when one index leads to few
    rows; `walled` when rows of other projects cannot meet it.
    """

    q: Q
    holds: Callable[[Any], bool] | None = None
    arms: tuple[Q, ...] = ()
    indexed: bool = False
    walled: bool = False


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
        return Test(Q(), lambda _row: True)

    def _read(self, term: Term, context: Context) -> Test:
        keys = self.keys(term)
        assert self.each is not None  # noqa: S101 - the registry's own tests make sure
        tests = [self.each(key, context) for key in keys]
        indexed = bool(self.index) and not set(keys) & set(self.common)
        union = any_of(tests)
        arms = tuple(arm for test in tests for arm in (test.arms or (test.q,)))
        return Test(union.q, union.holds, arms, indexed=indexed)


@dataclass(frozen=True, slots=True)
class Ordered(Field):
    """Something with an order: numbers, moments, lengths of time. `minus` makes it the length from that column on."""

    nullable: bool = True
    minus: str = ""

    operators: ClassVar[tuple[str, ...]] = ("", "=", ">", ">=", "<", "<=")

    def is_textual(self) -> bool:
        return False

    def compared(self) -> Combinable | None:
        return F(self.path) - F(self.minus) if self.minus else F(self.path)

    def plain(self, row: Any) -> Any:
        value = getattr(row, self.path)
        if not self.minus:
            return value
        begun = getattr(row, self.minus)
        return None if value is None or begun is None else value - begun

    def present(self) -> Test:
        return Test(self._known(), lambda row: self.plain(row) is not None)

    def edges(self, one: One, context: Context) -> tuple[int, int]:
        """The half-open interval that a value covers. Raises Fault."""
        raise NotImplementedError

    def _read(self, term: Term, context: Context) -> Test:
        if term.is_range:
            low = self.edges(term.low, context)[0] if term.low else None
            high = self.edges(term.high, context)[1] if term.high else None
            if low is not None and high is not None and low >= high:
                raise Fault(term.at, term.end - term.at, "This range ends before it begins: nothing lies in it.")
            return self.between([(low, high)])
        if term.operator in ("", "="):
            return self.between([self.edges(one, context) for one in term.values])
        if len(term.values) != 1:
            raise Fault(term.at, term.end - term.at, f"“{term.operator}” is followed by one value.")
        low, high = self.edges(term.values[0], context)
        wanted = {">": (high, None), ">=": (low, None), "<": (None, low), "<=": (None, high)}[term.operator]
        return self.between([wanted])

    def between(self, intervals: Sequence[tuple[int | None, int | None]]) -> Test:
        """Rows whose value lies in one of the half-open `intervals`."""
        q, value = Q(), self.compared()
        for low, high in intervals:
            one = self._known()
            if low is not None:
                one &= Q(GreaterThanOrEqual(value, Value(low))) if self.minus else Q(**{f"{self.path}__gte": low})
            if high is not None:
                one &= Q(LessThan(value, Value(high))) if self.minus else Q(**{f"{self.path}__lt": high})
            q |= one

        def holds(row: Any) -> bool:
            value = self.plain(row)
            return value is not None and any(
                (low is None or value >= low) and (high is None or value < high) for low, high in intervals
            )

        return Test(q, holds, indexed=bool(self.index))

    def _known(self) -> Q:
        q = Q(**{f"{self.path}__isnull": False}) if self.nullable else Q()
        return q & Q(**{f"{self.minus}__isnull": False}) if self.minus else q


@dataclass(frozen=True, slots=True)
class Number(Ordered):
    """A whole number. Above `few_above` rows are few, and `few` names their partial index."""

    few_above: int | None = None
    few: Q = field(default_factory=Q)

    kind: ClassVar[str] = "number"

    def takes(self) -> str:
        return "a whole number"

    def edges(self, one: One, context: Context) -> tuple[int, int]:
        number = values.whole(one)
        return number, number + 1

    def between(self, intervals: Sequence[tuple[int | None, int | None]]) -> Test:
        """Rows whose value lies in one of the half-open `intervals`."""
        test = super(Number, self).between(intervals)
        if self.few_above is None:
            widths = [high - low if low is not None and high is not None else NARROW + 1 for low, high in intervals]
            return Test(test.q, test.holds, indexed=bool(self.index) and max(widths) <= NARROW)
        if not all(low is not None and low > self.few_above for low, _ in intervals):
            return Test(test.q, test.holds)
        return Test(self.few & test.q, test.holds, indexed=True)


@dataclass(frozen=True, slots=True)
class Time(Ordered):
    """A moment in microseconds. A lone age means since then; a day or minute means all of it."""

    kind: ClassVar[str] = "time"

    def takes(self) -> str:
        return values.MOMENTS

    def edges(self, one: One, context: Context) -> tuple[int, int]:
        read = values.moment(one, context.now_us)
        return read.from_us, read.to_us

    def _read(self, term: Term, context: Context) -> Test:
        ages = [one for one in term.values if values.moment(one, context.now_us).is_age]
        if not ages:
            return super(Time, self)._read(term, context)
        if term.operator or len(term.values) > 1:
            sentence = (
                f"An age stands alone, as {self.name}:7d for the last seven days; -{self.name}:7d is before them."
            )
            raise Fault(term.at, term.end - term.at, sentence)
        return self.between([(values.moment(ages[0], context.now_us).from_us, None)])


@dataclass(frozen=True, slots=True)
class Length(Ordered):
    """A length of time in microseconds, mostly from the column `minus` to the column `path`."""

    kind: ClassVar[str] = "length"

    def takes(self) -> str:
        return "a length of time as 500ms, 2s or 10m"

    def edges(self, one: One, context: Context) -> tuple[int, int]:
        us = values.length(one)
        return us, us + 1


@dataclass(frozen=True, slots=True)
class Name(Field):
    """Another row, by its name: an agent, a repository, a person. `known` reads (id, name) of all there are."""

    known: "Callable[[Project], QuerySet[Any, Any]] | None" = None
    column: str = "name"  # of those rows
    called: str = ""  # what they are, for sentences
    nullable: bool = True

    kind: ClassVar[str] = "name"

    def takes(self) -> str:
        return f"the name of {self.called}"

    def present(self) -> Test:
        path = self.path
        return Test(Q(**{f"{path}__isnull": False}), lambda row: getattr(row, path) is not None)

    def ids(self, term: Term, context: Context) -> list[Any]:
        """The ids of what the values name. What nothing is called is noted."""
        found: list[Any] = []
        for one in term.values:
            asked = (self.called, one.text, one.prefix)
            if asked not in context.names:
                context.names[asked] = self._find(one, context)
            found += context.names[asked]
        return found

    def _find(self, one: One, context: Context) -> list[Any]:
        assert self.known is not None  # noqa: S101 - the registry's own tests make sure
        rows = self.known(context.project)
        if one.prefix:
            pairs = rows.filter(**{f"{self.column}__startswith": one.text}).values_list("pk", self.column)
            return [pk for pk, name in pairs if name.startswith(one.text)]
        ids = list(rows.filter(**{self.column: one.text}).values_list("pk", flat=True)[:1])
        if not ids:
            names = list(rows.values_list(self.column, flat=True)[:500])
            close = difflib.get_close_matches(one.text, names, n=1, cutoff=0.6)
            meant = f"; did you mean “{close[0]}”?" if close else "."
            context.notes.append(f"“{one.text[:60]}” is not the name of {self.called} here{meant}")
        return ids

    def _read(self, term: Term, context: Context) -> Test:
        ids, path = self.ids(term, context), self.path
        q = Q(**{path: ids[0]}) if len(ids) == 1 else Q(**{f"{path}__in": ids}) if ids else NOTHING
        return Test(q, lambda row: getattr(row, path) in ids, indexed=bool(self.index))


@dataclass(frozen=True, slots=True)
class Handle(Field):
    """A row by its handle (s_41), id or key. `find` returns its id, or None."""

    find: "Callable[[Project, str], UUID | None] | None" = None
    called: str = ""
    nullable: bool = False
    walled: bool = False

    kind: ClassVar[str] = "handle"

    def is_textual(self) -> bool:
        return False

    def takes(self) -> str:
        return f"{self.called} by its handle, id or key"

    def present(self) -> Test:
        path = self.path
        return Test(Q(**{f"{path}__isnull": False}), lambda row: getattr(row, path) is not None)

    def _read(self, term: Term, context: Context) -> Test:
        assert self.find is not None  # noqa: S101 - the registry's own tests make sure
        ids = []
        for one in term.values:
            asked = (self.called, one.text, False)
            if asked not in context.names:
                found = self.find(context.project, one.text)
                context.names[asked] = [] if found is None else [found]
                if found is None:
                    context.notes.append(f"Nothing here is {self.called} “{one.text[:60]}”.")
            ids += context.names[asked]
        path = self.path
        q = Q(**{path: ids[0]}) if len(ids) == 1 else Q(**{f"{path}__in": ids}) if ids else NOTHING
        indexed = bool(self.index)
        return Test(q, lambda row: getattr(row, path) in ids, indexed=indexed, walled=self.walled and bool(ids))


@dataclass(frozen=True, slots=True)
class Several(Field):
    """A field of rows that belong to the entity's row, of which there may be several: any of them.

    `rows(project)` are all of the project's; `link` is their column that holds the entity's id, and `inner` the field
    as it is of them.
    """

    rows: "Callable[[Project], QuerySet[Any]] | None" = None
    link: str = ""
    to: str = "pk"  # the entity's column that `link` holds
    inner: Field | None = None
    grouped: str = ""  # how the entity's row reaches it, for groups

    @property
    def operators(self) -> tuple[str, ...]:  # type: ignore[override]
        assert self.inner is not None  # noqa: S101 - the registry's own tests make sure
        return self.inner.operators

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "" if self.inner is None else self.inner.kind

    def is_textual(self) -> bool:
        return self.inner is not None and self.inner.is_textual()

    def takes(self) -> str:
        return "" if self.inner is None else self.inner.takes()

    def compared(self) -> Combinable | None:
        return None

    def present(self) -> Test:
        assert self.inner is not None  # noqa: S101
        return Test(self.among(Q()), None)

    def among(self, q: Q, project: Project | None = None) -> Q:
        """The condition that one of its rows meets `q`."""
        assert self.rows is not None  # noqa: S101
        found = self.rows(project) if project is not None else self.rows(None)  # type: ignore[arg-type]
        found = found.filter(q, **{f"{self.link}__isnull": False})
        return Q(**{f"{self.to}__in": found.order_by().values(self.link)})

    def _read(self, term: Term, context: Context) -> Test:
        assert self.inner is not None  # noqa: S101
        inner = self.inner.test(term, context)
        return Test(self.among(inner.q, context.project), None, indexed=bool(self.index))


def any_of(tests: Iterable[Test]) -> Test:
    """Their union; of none, what no row meets."""
    given = list(tests)
    q = NOTHING
    for number, test in enumerate(given):
        q = test.q if number == 0 else q | test.q
    tellers = [test.holds for test in given]
    if any(teller is None for teller in tellers):
        return Test(q)
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
        return Test(q, indexed=indexed, walled=walled)
    plain: Callable[[Any], bool] = lambda row: all(teller(row) for teller in tellers if teller is not None)  # noqa: E731
    return Test(q, plain, indexed=indexed, walled=walled)


def negated(test: Test) -> Test:
    """What it does not hold of."""
    teller = test.holds
    return Test(~test.q, None if teller is None else lambda row: not teller(row))


def compare(left: Field, right: Field, operator: str, *, differs: bool, at: int, end: int) -> Test:
    """`left:@right`: two fields of one row. Rows of which either is unknown do not meet it, whichever way it is asked.

    Of a field of several rows, any of them. Raises Fault.
    """
    sign = "" if operator == "=" else operator
    if differs and sign:
        raise Fault(at, end - at, "!@ asks whether two fields differ; it stands without another sign.")
    if sign and not (isinstance(left, Ordered | Several) and isinstance(right, Ordered | Several)):
        raise Fault(at, end - at, f"{left.name} and {right.name} have no order; ask {left.name}:@{right.name}.")
    if left.kind != right.kind and {left.kind, right.kind} != {"text", "choice"}:
        raise Fault(at, end - at, f"{left.name} is {left.takes()}, {right.name} is {right.takes()}: never the same.")
    if isinstance(left, Several) and isinstance(right, Several):
        raise Fault(at, end - at, f"{left.name} and {right.name} both have several values; compare one of them.")
    if isinstance(left, Several) or isinstance(right, Several):
        several, single = (left, right) if isinstance(left, Several) else (right, left)
        turned = sign if several is left else {">": "<", "<": ">", ">=": "<=", "<=": ">="}.get(sign, sign)
        return _compare_several(several, single, turned, differs=differs, at=at, end=end)  # type: ignore[arg-type]
    one, other = left.compared(), right.compared()
    if one is None or other is None:
        raise Fault(at, end - at, f"{(left if one is None else right).name} cannot be compared with another field.")
    known = left.present().q & right.present().q
    same = Q(_COMPARE[sign](one, other))
    plain = _PLAIN[sign]

    def holds(row: Any) -> bool:
        a, b = left.plain(row), right.plain(row)
        if a in ("", None) or b in ("", None):
            return False
        return plain(a, b) != differs

    return Test(known & (~same if differs else same), holds)


def _compare_several(several: Several, single: Field, sign: str, *, differs: bool, at: int, end: int) -> Test:
    assert several.rows is not None and several.inner is not None  # noqa: S101, PT018
    inner = several.inner.compared()
    if inner is None or single.compared() is None or getattr(single, "minus", ""):
        raise Fault(at, end - at, f"{several.name} and {single.name} cannot be compared.")
    rows = several.rows(None).filter(**{several.link: OuterRef(several.to)})  # type: ignore[arg-type]
    rows = rows.filter(several.inner.present().q)
    same = Q(_COMPARE[sign](inner, OuterRef(single.path)))
    rows = rows.filter(~same if differs else same)
    return Test(single.present().q & Q(Exists(rows)))
