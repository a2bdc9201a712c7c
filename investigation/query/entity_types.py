"""The types of a registry entry: Entity and Flag."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, Model, QuerySet

from accounts.models import Project
from investigation.query.fields.row_tests import CompileContext, RowTest
from investigation.query.fields.types import Field


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
