"""Entries of a form that no version of Gatebook writes: the error that names them by position."""

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
