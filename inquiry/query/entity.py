"""What an entity of the registry is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, Model, QuerySet

from inquiry.query.fields import Context, Field, Test
from sessions.models import Project


@dataclass(frozen=True, slots=True)
class Flag:
    """A word after `is:`."""

    name: str
    help: str
    test: Callable[[Context], Test]


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of row that can be asked for. `scopes` say which rows of another kind belong to one of its rows."""

    name: str
    plural: str
    help: str
    model: type[Model]
    time: str  # the name of the field that since, until and the histogram go by
    split: str  # the name of the field that a histogram stacks by
    fields: dict[str, Field]
    flags: dict[str, Flag]
    scopes: dict[str, Callable[["QuerySet[Any]"], tuple["QuerySet[Any]", str, str]]] = field(default_factory=dict)
    events: str = ""  # the column of a journal entry that holds its id, for sequences
    many: bool = False  # so many that what no index serves is looked for a stretch at a time

    def rows(self) -> "QuerySet[Any]":
        """All rows, of every project, with what tests go by beside the columns."""
        rows: QuerySet[Any] = self.model._default_manager.all()
        if self.name == "event":  # pages are cut by one name of the position, whatever the rows
            rows = rows.annotate(opened_position=F("position"))
        return rows

    def of(self, project: Project) -> "QuerySet[Any]":
        """The project's rows."""
        return self.rows().filter(project=project.id)

    def known(self, name: str) -> Field | None:
        """The field of that name or alias."""
        return self.fields.get(name) or next((one for one in self.fields.values() if name in one.aliases), None)


def pairs(words: "tuple[str, ...] | Any") -> tuple[tuple[str, str], ...]:
    return tuple((word, word.replace("_", " ")) for word in words)
