"""Column types of query results: Column, its constructors by kind, and the Reader of values."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from accounts.models import Person, Project
from investigation.query.fields.row_tests import CompileContext
from investigation.query.registry import common

Value = Any  # str, int, float, bool, None, or a list or object of them
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of rows, and the moment. With `people` False, names of voters are left out.

    Agents see decisions, never who made them.
    """

    project: Project
    now_us: int
    people: bool = True
    upto: int | None = None  # Later entries are left out.
    _called: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of_context(cls, context: CompileContext, *, people: bool = True) -> "Reader":
        """Return a reader at the moment of a compiled query."""
        return cls(context.project, context.now_us, people, context.upto)

    def called(self, actor: str) -> str:
        """Return the displayed name of a journal actor. Two queries for all actors."""
        if not self._called:
            agent_names = self.project.agents.values_list("id", "name")
            self._called.update((f"agent:{pk.hex}", name) for pk, name in agent_names)
            if self.people:
                persons = Person.objects.filter(user__in=common.project_people(self.project))
                self._called.update(persons.values_list("pseudonym", "user__username"))
            self._called.setdefault("", "")  # Names were read, even if there are none.
        if not self.people and actor.startswith("p_"):
            return "a person"
        return self._called.get(actor, actor)


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `main` columns are in the page's table; the others only in exports and the API.

    `kind` says how a page shows the values: handle, text (by an agent), word, number, time, length
    or list.
    """

    name: str
    label: str
    kind: str
    value: Callable[[Any, Reader], Value]
    main: bool = True
    people: bool = False  # Tells who decided.


def format_moment_us(us: int | None) -> str | None:
    """Return a UTC time to the microsecond, or None."""
    return (
        None
        if us is None
        else (_EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    )


def us_to_seconds(us: int | None) -> float | None:
    """Return a duration in seconds, or None."""
    return None if us is None else us / _US


def text_column(
    name: str,
    label: str,
    path: str = "",
    *,
    kind: str = "text",
    main: bool = False,
    people: bool = False,
) -> Column:
    path = path or name
    return Column(name, label, kind, lambda row, _reader: getattr(row, path), main, people)


def word_column(name: str, label: str, path: str = "", *, main: bool = False) -> Column:
    return text_column(name, label, path, kind="word", main=main)


def number_column(name: str, label: str, path: str = "", *, main: bool = False) -> Column:
    return text_column(name, label, path, kind="number", main=main)


def time_column(name: str, label: str, path: str, *, main: bool = False) -> Column:
    return Column(
        name, label, "time", lambda row, _reader: format_moment_us(getattr(row, path)), main
    )


def duration_column(
    name: str, label: str, start_path: str, end_path: str, *, main: bool = False
) -> Column:
    def value(row: Any, _reader: Reader) -> Value:
        first, last = getattr(row, start_path), getattr(row, end_path)
        return None if first is None or last is None else us_to_seconds(last - first)

    return Column(name, label, "length", value, main)


def handle_column(letter: str, name: str, label: str, path: str, *, main: bool = True) -> Column:
    def value(row: Any, _reader: Reader) -> Value:
        position = getattr(row, path)
        return None if position is None else f"{letter}_{position}"

    return Column(name, label, "handle", value, main)
