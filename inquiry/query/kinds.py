"""Fields with an order, fields that name other rows, fields of several rows."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import F, Model, Q, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.lookups import GreaterThanOrEqual, LessThan

from inquiry.query import values
from inquiry.query.fields import NARROW, NOTHING, Context, Field, Test, all_of
from inquiry.query.tree import Fault, One, Term
from sessions.models import Project


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
        holds = None if "__" in path else lambda row: getattr(row, path) is not None
        return Test(Q(**{f"{path}__isnull": False}), holds)

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
        # A column of another row is for the database to tell.
        holds = None if "__" in path else lambda row: getattr(row, path) in ids
        return Test(q, holds, indexed=bool(self.index))


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
    reach: str = ""  # how the ORM goes there from the entity's row, for groups
    told_at: str = "opened_position"  # their column with the journal position that brought them
    lasts: bool = False  # they never change
    some: bool = False  # `rows` leaves out some of what `reach` leads to …
    left: tuple[tuple[str, Any], ...] = ()  # … all but those of which these lookups of their columns are true
    of: "type[Model] | None" = None  # the entity's model, where no index leads from its row to these
    entity: str = ""  # the name of the entity that they are rows of, where they change
    only: Test | None = None  # what `rows` leaves them at, of all rows of that entity

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

    def reached(self, path: str) -> str:
        """A column of its rows as the ORM names it from the entity's row."""
        return f"{self.reach}__{path}"

    def among(self, q: Q, context: Context | None = None) -> Q:
        """The condition that one of its rows meets `q`."""
        assert self.rows is not None  # noqa: S101
        found = self.rows(context.project if context is not None else None)  # type: ignore[arg-type]
        found = found.filter(q, **{f"{self.link}__isnull": False})
        if context is not None and context.upto is not None:
            found = found.filter(**{f"{self.told_at}__lte": context.upto})
        return Q(**{f"{self.to}__in": found.order_by().values(self.link)})

    def _read(self, term: Term, context: Context) -> Test:
        assert self.inner is not None  # noqa: S101
        inner = self.inner.test(term, context)
        then = self._as_of(inner, context)
        return then or Test(self.among(inner.q, context), None, indexed=bool(self.index), lasts=self.lasts)

    def _as_of(self, inner: Test, context: Context) -> Test | None:
        """The same of rows that change, as of a moment; None where that cannot be told."""
        if not self.entity or context.as_of is None or self.rows is None:
            return None
        wanted = all_of([inner, *([self.only] if self.only is not None else [])])
        met = context.as_of(self.entity, wanted)
        if met is None or not wanted.is_told:
            return None
        whole = self.rows(context.project).model._default_manager.filter(met, project=context.project)
        found = whole.filter(**{f"{self.told_at}__lte": context.upto, f"{self.link}__isnull": False})
        return Test(Q(**{f"{self.to}__in": found.order_by().values(self.link)}), indexed=bool(self.index), lasts=True)
