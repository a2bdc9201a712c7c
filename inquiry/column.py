"""What a column of a table of rows is, and those of the usual kinds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from inquiry.query import parts
from inquiry.query.fields import Context
from sessions.models import Person, Project

Value = Any  # str, int, float, bool, None, or a list or object of them
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = 1_000_000


@dataclass(slots=True)
class Reader:
    """Who reads, and when. `people` False leaves out who decided: agents are told what was ruled, never by whom."""

    project: Project
    now_us: int
    people: bool = True
    upto: int | None = None  # what came after this position is not told
    _called: dict[str, str] | None = field(default=None, repr=False)

    def follow(self, context: Context) -> None:
        """Tell rows as of the moment that a query was asked as of."""
        self.now_us, self.upto = context.now_us, context.upto

    def called(self, actor: str) -> str:
        """What people call an actor of the journal; two queries for all of them."""
        if self._called is None:
            robots = self.project.agents.values_list("id", "name")
            self._called = {f"agent:{pk.hex}": name for pk, name in robots}
            if self.people:
                known = Person.objects.filter(user__in=parts.people(self.project))
                self._called |= dict(known.values_list("pseudonym", "user__username"))
        if not self.people and actor.startswith("p_"):
            return "a person"
        return self._called.get(actor, actor)


@dataclass(frozen=True, slots=True)
class Column:
    """One thing that is shown of a row. `main` ones stand in the page's table, the others in exports and the API too.

    `kind` says how a page shows it: handle, text (an agent's words), word, number, time, length or list.
    """

    name: str
    label: str
    kind: str
    value: Callable[[Any, Reader], Value]
    main: bool = True
    people: bool = False  # says who decided


def moment(us: int | None) -> str | None:
    """A moment in UTC to the microsecond; None for none."""
    return None if us is None else (_EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds(us: int | None) -> float | None:
    """A length in seconds; None for none."""
    return None if us is None else us / _US


def text(
    name: str, label: str, path: str = "", *, kind: str = "text", main: bool = False, people: bool = False
) -> Column:
    path = path or name
    return Column(name, label, kind, lambda row, _reader: getattr(row, path), main, people)


def word(name: str, label: str, path: str = "", *, main: bool = False) -> Column:
    return text(name, label, path, kind="word", main=main)


def number(name: str, label: str, path: str = "", *, main: bool = False) -> Column:
    return text(name, label, path, kind="number", main=main)


def time(name: str, label: str, path: str, *, main: bool = False) -> Column:
    return Column(name, label, "time", lambda row, _reader: moment(getattr(row, path)), main)


def length(name: str, label: str, begun: str, ended: str, *, main: bool = False) -> Column:
    def value(row: Any, _reader: Reader) -> Value:
        first, last = getattr(row, begun), getattr(row, ended)
        return None if first is None or last is None else seconds(last - first)

    return Column(name, label, "length", value, main)


def handle(letter: str, name: str, label: str, path: str, *, main: bool = True) -> Column:
    def value(row: Any, _reader: Reader) -> Value:
        position = getattr(row, path)
        return None if position is None else f"{letter}_{position}"

    return Column(name, label, "handle", value, main)
