"""Entries of a form that no version of Gatebook writes: the error that names them by position."""

from collections.abc import Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from django.core.exceptions import ObjectDoesNotExist, ValidationError

# What a fold raises for facts, and for values of rows, that no version of Gatebook wrote. SQLite
# stores any number in place of bytes, and Python makes so many bytes of it.
READING_ERRORS: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    ObjectDoesNotExist,
    ValidationError,
)


class UnreadableEntry(KeyError):
    """An entry cannot be folded. `words` say why."""

    def __init__(self, position: int, words: str) -> None:
        super().__init__(position, words)
        self.position = position
        self.words = words

    def __str__(self) -> str:
        return f"entry {self.position}: {self.words}"


@dataclass(slots=True)
class EntryFilter:
    """Which entries a comparison does not read: those in `left_out`, and those after `last`."""

    left_out: Set[int] = frozenset()
    last: int = 2**63
    read: set[int] = field(default_factory=set)  # the positions of those that it reads


_filter: Final[ContextVar[EntryFilter | None]] = ContextVar("entry_filter", default=None)


@contextmanager
def filter_entries(chosen: EntryFilter) -> Iterator[None]:
    """Let the block read only the entries that a filter lets through."""
    token = _filter.set(chosen)
    try:
        yield
    finally:
        _filter.reset(token)


def is_left_out(position: int) -> bool:
    """Return True if the comparison that runs must pass over an entry; note it otherwise."""
    chosen = _filter.get()
    if chosen is None:
        return False
    if position in chosen.left_out or position > chosen.last:
        return True
    chosen.read.add(position)
    return False


class EntryFacts(dict[str, Any]):
    """The facts of an entry. One that is required and not there names the entry."""

    __slots__ = ("position",)

    def __init__(self, position: int, facts: dict[str, Any]) -> None:
        super().__init__(facts)
        self.position = position

    def __missing__(self, name: str) -> Any:
        raise UnreadableEntry(self.position, f"its facts lack {name}")


def read_entry_facts(position: int, text: str) -> EntryFacts:
    """Return the facts of an entry. Raises UnreadableEntry."""
    try:
        facts = orjson.loads(text)
    except ValueError as error:
        raise UnreadableEntry(position, "its facts are no JSON") from error
    if not isinstance(facts, dict):
        raise UnreadableEntry(position, "its facts are no JSON object")
    return EntryFacts(position, facts)


def read_counted_facts(position: int, text: str) -> EntryFacts:
    """Return the facts of an entry, none of one that is left out. Raises UnreadableEntry."""
    return EntryFacts(position, {}) if is_left_out(position) else read_entry_facts(position, text)
