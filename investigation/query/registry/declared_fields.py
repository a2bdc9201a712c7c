"""Declared fields: `field.ticket:OPS-204` finds effects and gates by an argument of their plan.

Which fields exist is declared per tool (`fields:` in tools.yaml), so any name parses; a name that
no tool of the project declares gets a note.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, Subquery, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Left
from django.db.models.lookups import Exact

from db import raw_sql
from investigation.fulltext import field_index, indexer
from investigation.models import FieldValue
from investigation.query.fields.row_tests import NO_ROWS, CompileContext, RowTest
from investigation.query.fields.types import Field
from investigation.query.parser.ast import Term
from investigation.query.parser.query_parser import DECLARED_PREFIX
from ledger.tools.argument_values import MAX_FIELD_CHARACTERS

# Most effects that are selected by a list of positions; with more, each row is tested.
MAX_LISTED_POSITIONS: Final = 10_000
_RECENT_ROWS: Final = 1_000  # newest values of all projects that are offered while typing


@dataclass(frozen=True, slots=True)
class DeclaredField(Field):
    """A field of effects, or with `of_gates` of the gates of these effects."""

    of_gates: bool = False

    @property
    def declared_name(self) -> str:
        """The name in the declaration: ticket for field.ticket."""
        return self.name.removeprefix(DECLARED_PREFIX)

    def compared(self) -> Combinable | None:
        return None

    def grouped(self) -> Combinable | None:
        """Return the first of an effect's values."""
        effect = OuterRef("effect") if self.of_gates else OuterRef("pk")
        rows = FieldValue.objects.filter(effect=effect, field=self.declared_name)
        return Subquery(rows.order_by("value").values("value")[:1])

    def present(self) -> RowTest:
        effect = OuterRef("effect") if self.of_gates else OuterRef("pk")
        rows = FieldValue.objects.filter(effect=effect, field=self.declared_name)
        return RowTest(Q(Exists(rows)), lasts=True)

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        self._add_notes(context)
        rows = FieldValue.objects.filter(project=context.project, field=self.declared_name)
        rows = rows.filter(self._value_condition(term)).order_by()
        if context.upto is not None:
            rows = rows.filter(plan_position__lte=context.upto)
        if context.lowest is not None and not self.of_gates:
            rows = rows.filter(position__gt=context.lowest)
        if self.of_gates:
            return RowTest(Q(effect__in=rows.values("effect")), indexed=True, lasts=True)
        listed = rows.values_list("position", flat=True)[: MAX_LISTED_POSITIONS + 1]
        positions = frozenset(listed)
        if len(positions) <= MAX_LISTED_POSITIONS:
            q = Q(opened_position__listed=array("q", positions)) if positions else NO_ROWS
            return RowTest(q, lambda row: row.opened_position in positions, indexed=True)
        lookup = "gathered" if context.grouped else "in"
        return RowTest(
            Q(**{f"opened_position__{lookup}": rows.values("position")}), indexed=True, lasts=True
        )

    def _value_condition(self, term: Term) -> Q:
        """Return the condition on stored values, which are at most MAX_FIELD_CHARACTERS long."""
        most = MAX_FIELD_CHARACTERS
        exact = [value.text[:most] for value in term.values if not value.prefix]
        condition = Q(value__in=exact)
        for value in term.values:
            if value.prefix:  # Not LIKE: on SQLite, LIKE ignores case.
                condition |= Q(Exact(Left("value", len(value.text)), Value(value.text)))
        return condition

    def _add_notes(self, context: CompileContext) -> None:
        name_key = ("declared fields", "", False)
        if name_key not in context.names:
            context.names[name_key] = list(field_index.list_declared_names(context.project.id))
            context.goes_by(indexer.load_fields_progress(context.project.id, context.upto))
        names = context.names[name_key]
        if self.declared_name not in names:
            declared = f"Declared are {', '.join(names)}." if names else "None is declared."
            context.notes.append(
                f"No tool of this project declares the field “{self.declared_name}”. {declared}"
            )
        else:
            note = field_index.describe_incomplete_fields(context.project.id, self.declared_name)
            if note and note not in context.notes:
                context.notes.append(note)


@lru_cache(maxsize=1024)
def find_effect_field(name: str) -> DeclaredField | None:
    """Return the declared field with that name, field.ticket, or None."""
    return _build_field(name, of_gates=False)


@lru_cache(maxsize=1024)
def find_gate_field(name: str) -> DeclaredField | None:
    """Return the field of gates whose effect has the declared field."""
    return _build_field(name, of_gates=True)


def _build_field(name: str, *, of_gates: bool) -> DeclaredField | None:
    if not name.startswith(DECLARED_PREFIX):
        return None
    label = name.removeprefix(DECLARED_PREFIX)
    help_text = "argument that the tool's declaration names"
    return DeclaredField(name, label.replace("_", " ").capitalize(), help_text, of_gates=of_gates)


# The unique index on effect, field and value has all columns: no row is fetched.
_COUNTED: Final = (
    "SELECT stored.field, stored.value, count(*)"
    " FROM {} CROSS JOIN investigation_fieldvalue stored WHERE stored.effect_id = wanted.key"
    " GROUP BY stored.field, stored.value"
)


def count_declared_values(effects: Sequence[UUID]) -> dict[str, Counter[str]]:
    """Return how often each value of each declared field occurs in these effects. One query."""
    ids = [raw_sql.uuid_as_cast_text(effect) for effect in effects]
    rows = raw_sql.fetch_rows(
        _COUNTED.format(raw_sql.wanted_table("uuid")), [raw_sql.to_array_parameter(ids)]
    )
    counted: dict[str, Counter[str]] = {}
    for name, value, number in sorted(rows):
        counted.setdefault(f"{DECLARED_PREFIX}{name}", Counter())[value] = number
    return counted


def list_recent_values(project: UUID, field: DeclaredField) -> list[str]:
    """Return values of a field among those stored last, without repeats. One query."""
    newest = FieldValue.objects.order_by("-id").values_list("project", "field", "value")
    return list(
        dict.fromkeys(
            value
            for row_project, name, value in newest[:_RECENT_ROWS]
            if row_project == project and name == field.declared_name
        )
    )
