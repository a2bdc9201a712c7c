"""The types of the registry: Field and its kinds, Flag, and Entity, which has fields and flags.

A field parses the values of a term and compiles them to a `RowTest`. Kinds of fields are texts,
choices, ordered values, names and handles of rows, and multi-value fields.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import UUID

from django.db.models import BigIntegerField, CharField, F, Model, Q, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Concat, Left, StrIndex
from django.db.models.lookups import (
    Exact,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
)

from accounts import git_refs
from accounts.models import Project
from investigation.query.fields.row_tests import (
    NO_ROWS,
    CompileContext,
    RowTest,
    intersect_tests,
    union_tests,
)
from investigation.query.parser import values
from investigation.query.parser.ast import QueryError, QueryValue, Term
from investigation.query.spelling import find_nearest_word

MAX_VALUE_CHARACTERS: Final = 300
NARROW_RANGE: Final = 100_000  # Width of a number range up to which an index finds few rows.


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
                nearest = find_nearest_word(value.text, known_words)
                suggestion = f"; did you mean “{nearest}”?" if nearest else "."
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


@dataclass(frozen=True, slots=True)
class Ordered(Field):
    """A number, time or length; with `minus`, the difference from that column."""

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
        start = getattr(row, self.minus)
        return None if value is None or start is None else value - start

    def present(self) -> RowTest:
        return RowTest(self._known(), lambda row: self.plain(row) is not None)

    def edges(self, value: QueryValue, context: CompileContext) -> tuple[int, int]:
        """Return the half-open interval that a value covers. Raises QueryError."""
        raise NotImplementedError

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        if term.is_range:
            low = self.edges(term.low, context)[0] if term.low else None
            high = self.edges(term.high, context)[1] if term.high else None
            if low is not None and high is not None and low >= high:
                raise QueryError(
                    term.at,
                    term.end - term.at,
                    "The range is empty because it ends before it starts. Swap its ends.",
                )
            return self.between([(low, high)])
        if term.operator in ("", "="):
            return self.between([self.edges(value, context) for value in term.values])
        if len(term.values) != 1:
            raise QueryError(
                term.at, term.end - term.at, f"“{term.operator}” takes exactly one value."
            )
        low, high = self.edges(term.values[0], context)
        interval = {">": (high, None), ">=": (low, None), "<": (None, low), "<=": (None, high)}[
            term.operator
        ]
        return self.between([interval])

    def between(self, intervals: Sequence[tuple[int | None, int | None]]) -> RowTest:
        """Return the test that the value is in one of the half-open `intervals`."""
        q, value = Q(), self.compared()
        for low, high in intervals:
            interval_q = self._known()
            if low is not None:
                interval_q &= (
                    Q(GreaterThanOrEqual(value, Value(low, BigIntegerField())))
                    if self.minus
                    else Q(**{f"{self.path}__gte": low})
                )
            if high is not None:
                interval_q &= (
                    Q(LessThan(value, Value(high, BigIntegerField())))
                    if self.minus
                    else Q(**{f"{self.path}__lt": high})
                )
            q |= interval_q

        def holds(row: Any) -> bool:
            value = self.plain(row)
            return value is not None and any(
                (low is None or value >= low) and (high is None or value < high)
                for low, high in intervals
            )

        return RowTest(q, holds, indexed=bool(self.index))

    def _known(self) -> Q:
        q = Q(**{f"{self.path}__isnull": False}) if self.nullable else Q()
        return q & Q(**{f"{self.minus}__isnull": False}) if self.minus else q


@dataclass(frozen=True, slots=True)
class Number(Ordered):
    """A whole number. Few rows are above `few_above`, and `few` names their partial index."""

    few_above: int | None = None
    few: Q = field(default_factory=Q)

    kind: ClassVar[str] = "number"

    def takes(self) -> str:
        return "a whole number"

    def edges(self, value: QueryValue, context: CompileContext) -> tuple[int, int]:
        number = values.parse_number_value(value)
        return number, number + 1

    def between(self, intervals: Sequence[tuple[int | None, int | None]]) -> RowTest:
        """Return the test that the value is in one of the half-open `intervals`."""
        test = super(Number, self).between(intervals)
        if self.few_above is None:
            widths = [
                high - low if low is not None and high is not None else NARROW_RANGE + 1
                for low, high in intervals
            ]
            return RowTest(
                test.q, test.holds, indexed=bool(self.index) and max(widths) <= NARROW_RANGE
            )
        if not all(low is not None and low > self.few_above for low, _ in intervals):
            return RowTest(test.q, test.holds)
        return RowTest(self.few & test.q, test.holds, indexed=True)


@dataclass(frozen=True, slots=True)
class Time(Ordered):
    """A time in microseconds. An age means since then; a day or minute all of it."""

    kind: ClassVar[str] = "time"

    def takes(self) -> str:
        return values.MOMENTS

    def edges(self, value: QueryValue, context: CompileContext) -> tuple[int, int]:
        interval = values.parse_time(value, context.now_us)
        return interval.from_us, interval.to_us

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        ages = [value for value in term.values if values.parse_time(value, context.now_us).is_age]
        if not ages:
            return super(Time, self)._read(term, context)
        if term.operator or len(term.values) > 1:
            sentence = (
                f"An age cannot be combined with operators or other values. Use {self.name}:7d for "
                f"the last seven days or -{self.name}:7d for the time before."
            )
            raise QueryError(term.at, term.end - term.at, sentence)
        return self.between([(values.parse_time(ages[0], context.now_us).from_us, None)])


@dataclass(frozen=True, slots=True)
class ComputedTime(Time):
    """A time that is not a column; only the database can evaluate it."""

    expression: "Callable[[], Combinable] | None" = None

    def compared(self) -> Combinable | None:
        assert self.expression is not None  # noqa: S101 - the registry's own tests make sure
        return self.expression()

    def present(self) -> RowTest:
        return RowTest(self._known())

    def between(self, intervals: Sequence[tuple[int | None, int | None]]) -> RowTest:
        """Return the test that the value is in one of the half-open `intervals`."""
        q, value = Q(), self.compared()
        for low, high in intervals:
            interval_q = self._known()
            if low is not None:
                interval_q &= Q(GreaterThanOrEqual(value, Value(low, BigIntegerField())))
            if high is not None:
                interval_q &= Q(LessThan(value, Value(high, BigIntegerField())))
            q |= interval_q
        return RowTest(q)

    def _known(self) -> Q:
        return Q(IsNull(self.compared(), False))


@dataclass(frozen=True, slots=True)
class Duration(Ordered):
    """A length of time in microseconds, usually from the column `minus` to the column `path`."""

    kind: ClassVar[str] = "length"

    def takes(self) -> str:
        return "a length of time, such as 500ms, 2s or 10m"

    def edges(self, value: QueryValue, context: CompileContext) -> tuple[int, int]:
        us = values.parse_duration(value)
        return us, us + 1


@dataclass(frozen=True, slots=True)
class NamedRow(Field):
    """A reference to another row by its name, such as an agent, repository or person.

    `candidates` returns (id, name) of all candidates.
    """

    candidates: "Callable[[Project], QuerySet[Any, Any]] | None" = None
    column: str = "name"  # The name column of those rows.
    called: str = ""  # What the rows are, for messages.
    nullable: bool = True

    kind: ClassVar[str] = "name"

    def takes(self) -> str:
        return f"the name of {self.called}"

    def present(self) -> RowTest:
        path = self.path
        holds = None if "__" in path else lambda row: getattr(row, path) is not None
        return RowTest(Q(**{f"{path}__isnull": False}), holds)

    def ids(self, term: Term, context: CompileContext) -> list[Any]:
        """Return the ids of the named rows. Adds a note for each unknown name."""
        row_ids: list[Any] = []
        for value in term.values:
            name_key = (self.called, value.text, value.prefix)
            if name_key not in context.names:
                context.names[name_key] = self._find(value, context)
            row_ids += context.names[name_key]
        return row_ids

    def _find(self, value: QueryValue, context: CompileContext) -> list[Any]:
        assert self.candidates is not None  # noqa: S101 - the registry's own tests make sure
        rows = self.candidates(context.project)
        if value.prefix:
            pairs = rows.filter(**{f"{self.column}__startswith": value.text}).values_list(
                "pk", self.column
            )
            return [pk for pk, name in pairs if name.startswith(value.text)]
        ids = list(rows.filter(**{self.column: value.text}).values_list("pk", flat=True)[:1])
        if not ids:
            names = list(rows.values_list(self.column, flat=True)[:500])
            nearest = find_nearest_word(value.text, names, most=1)
            suggestion = f"; did you mean “{nearest}”?" if nearest else "."
            context.notes.append(
                f"“{value.text[:60]}” is not the name of {self.called} in this project{suggestion}"
            )
        return ids

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        ids, path = self.ids(term, context), self.path
        q = Q(**{path: ids[0]}) if len(ids) == 1 else Q(**{f"{path}__in": ids}) if ids else NO_ROWS
        # Only the database can evaluate a column of another row.
        holds = None if "__" in path else lambda row: getattr(row, path) in ids
        return RowTest(q, holds, indexed=bool(self.index))


@dataclass(frozen=True, slots=True)
class Handle(Field):
    """A row by its handle (s_41), id or key. `find` returns its id or None."""

    find: "Callable[[Project, str], UUID | None] | None" = None
    called: str = ""
    nullable: bool = False
    in_project: bool = False

    kind: ClassVar[str] = "handle"

    def is_textual(self) -> bool:
        return False

    def takes(self) -> str:
        return f"{self.called} by its handle, id or key"

    def present(self) -> RowTest:
        path = self.path
        return RowTest(Q(**{f"{path}__isnull": False}), lambda row: getattr(row, path) is not None)

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        assert self.find is not None  # noqa: S101 - the registry's own tests make sure
        ids = []
        for value in term.values:
            name_key = (self.called, value.text, False)
            if name_key not in context.names:
                row_id = self.find(context.project, value.text)
                context.names[name_key] = [] if row_id is None else [row_id]
                if row_id is None:
                    context.notes.append(
                        f"There is no {self.called.split(' ', 1)[1]} “{value.text[:60]}” in this "
                        "project."
                    )
            ids += context.names[name_key]
        path = self.path
        q = Q(**{path: ids[0]}) if len(ids) == 1 else Q(**{f"{path}__in": ids}) if ids else NO_ROWS
        indexed = bool(self.index)
        return RowTest(
            q,
            lambda row: getattr(row, path) in ids,
            indexed=indexed,
            in_project=self.in_project and bool(ids),
        )


@dataclass(frozen=True, slots=True)
class MultiValue(Field):
    """A field of related rows, of which there may be several; it matches if any of them does.

    `rows(project)` are all related rows of the project; `link` is their column with the entity's
    id, and `inner` is the field of these rows.
    """

    rows: "Callable[[Project], QuerySet[Any]] | None" = None
    link: str = ""
    to: str = "pk"  # The entity's column that `link` refers to.
    inner: Field | None = None
    reach: str = ""  # The ORM path from the entity's row, for groups.
    # Column with the journal position at which a related row was added.
    reported_at: str = "opened_position"
    lasts: bool = False  # The related rows never change.
    some: bool = False  # `rows` is a subset of the rows at `reach`:
    left: tuple[tuple[str, Any], ...] = ()  # those for which these lookups hold.
    # The entity's model, if no index leads from its row to the related rows.
    of: "type[Model] | None" = None
    entity: str = ""  # The name of their entity, if the related rows change.
    only: RowTest | None = None  # The test that selects `rows` among all rows of that entity.

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

    def present(self) -> RowTest:
        assert self.inner is not None  # noqa: S101
        return RowTest(self.among(Q()), None)

    def reached(self, path: str) -> str:
        """Return the ORM path of a column of the related rows."""
        return f"{self.reach}__{path}"

    def among(self, q: Q, context: CompileContext | None = None) -> Q:
        """Return the condition that one of the related rows meets `q`."""
        assert self.rows is not None  # noqa: S101
        related = self.rows(context.project if context is not None else None)  # type: ignore[arg-type]
        related = related.filter(q, **{f"{self.link}__isnull": False})
        if context is not None and context.upto is not None:
            related = related.filter(**{f"{self.reported_at}__lte": context.upto})
        return Q(**{f"{self.to}__in": related.order_by().values(self.link)})

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        assert self.inner is not None  # noqa: S101
        inner = self.inner.test(term, context)
        past_test = self._as_of(inner, context)
        return past_test or RowTest(
            self.among(inner.q, context), None, indexed=bool(self.index), lasts=self.lasts
        )

    def _as_of(self, inner: RowTest, context: CompileContext) -> RowTest | None:
        """Return the test on related rows as of a moment, or None if it is unknown."""
        if not self.entity or context.as_of is None or self.rows is None:
            return None
        row_test = intersect_tests([inner, *([self.only] if self.only is not None else [])])
        condition = context.as_of(self.entity, row_test)
        if condition is None or not row_test.works_as_of:
            return None
        all_related = self.rows(context.project).model._default_manager.filter(
            condition, project=context.project
        )
        related = all_related.filter(
            **{f"{self.reported_at}__lte": context.upto, f"{self.link}__isnull": False}
        )
        return RowTest(
            Q(**{f"{self.to}__in": related.order_by().values(self.link)}),
            indexed=bool(self.index),
            lasts=True,
        )


def list_field_choices(known_field: Field) -> list[str]:
    """Return the words that a field accepts, empty for a field of other values."""
    inner = known_field.inner if isinstance(known_field, MultiValue) else known_field
    return [] if inner is None else [word for word, _ in inner.choices]


@dataclass(frozen=True, slots=True)
class Flag:
    """A value of `is:`."""

    name: str
    help: str
    test: Callable[[CompileContext], RowTest]


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of row that can be searched. `scopes` give the related rows of another kind."""

    name: str
    plural: str
    help: str
    model: type[Model]
    time: str  # Name of the field that `since:`, `until:` and the histogram use.
    split: str  # Name of the field that the histogram stacks by.
    fields: dict[str, Field]
    flags: dict[str, Flag]
    scopes: dict[str, Callable[["QuerySet[Any]"], tuple["QuerySet[Any]", str, str]]] = field(
        default_factory=dict
    )
    events: str = ""  # Column of a journal entry with the entity's id, for sequences.
    # True if there are so many rows that unindexed searches read one window at a time.
    many: bool = False
    # Finds a field that tool declarations name, such as field.ticket.
    find_declared: Callable[[str], Field | None] | None = None

    def select_all_rows(self) -> "QuerySet[Any]":
        """Return all rows of every project, annotated with what tests need."""
        rows: QuerySet[Any] = self.model._default_manager.all()
        if self.name == "event":  # Pagination uses one name for the position of every entity.
            rows = rows.annotate(opened_position=F("position"))
        return rows

    def select_project_rows(self, project: Project) -> "QuerySet[Any]":
        """Return the project's rows."""
        return self.select_all_rows().filter(project=project.id)

    def find_field(self, name: str) -> Field | None:
        """Return the field with that name or alias, or a declared field, or None."""
        built_in = self.fields.get(name) or next(
            (known_field for known_field in self.fields.values() if name in known_field.aliases),
            None,
        )
        if built_in is None and self.find_declared is not None:
            return self.find_declared(name)
        return built_in


def label_choices(values: "tuple[str, ...] | Any") -> tuple[tuple[str, str], ...]:
    return tuple((value, value.replace("_", " ")) for value in values)
