"""Words of a command, as far as their values are known without running anything. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

MAX_SHOWN: Final = 500  # characters of a word's text in arguments


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command. `value` is None if it is only known when the command runs.

    `text` is the word as written. `prefix` is the known beginning of an unknown value. A word that
    `splits` can become any number of words: an unquoted variable, a glob.
    """

    value: str | None
    text: str
    prefix: str = ""
    splits: bool = False

    @property
    def is_unknown(self) -> bool:
        """True if its value is only known when the command runs."""
        return self.value is None

    @property
    def may_be_option(self) -> bool:
        """True if it is, or can become, an option."""
        beginning = self.prefix if self.value is None else self.value
        return beginning.startswith("-") or (self.value is None and not self.prefix)


def make_word(value: str) -> Word:
    """Return a word with a known value."""
    return Word(value, value)


def describe_unknown(text: str | Sequence[str]) -> dict[str, Any]:
    """Return what arguments hold in place of an unknown value.

    An object equals no text, so that a rule on this argument cannot be evaluated and never allows.
    """
    if isinstance(text, str):
        return {"unknown": text[:MAX_SHOWN]}
    return {"unknown": [item[:MAX_SHOWN] for item in text]}


def is_unknown_value(value: Any) -> bool:
    """True for what `describe_unknown` returned."""
    return isinstance(value, dict) and value.keys() == {"unknown"}


def show_word(word: Word) -> Any:
    """Return the value of a word for arguments: text, or an object if it is unknown."""
    return describe_unknown(word.text) if word.value is None else word.value


def show_words(words: Sequence[Word]) -> Any:
    """Return the values of words as a list, or one object if any of them is unknown."""
    if any(word.value is None for word in words):
        return describe_unknown([word.value or word.text for word in words])
    return [word.value for word in words]
