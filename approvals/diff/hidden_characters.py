"""Count hidden characters and long runs of blanks in the texts of a plan."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from web import untrusted_text


class HiddenContent(NamedTuple):
    """Number of hidden characters; length of the longest counted blank run."""

    hidden: int
    blanks: int


def iterate_strings(value: Any) -> Iterable[str]:
    """Yield every string of a JSON value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from iterate_strings(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from iterate_strings(item)


def count_hidden_content(listed: Iterable[str]) -> HiddenContent:
    """Count hidden characters and the longest blank run in texts."""
    hidden = blanks = 0
    for text in listed:
        for piece in untrusted_text.split_untrusted(text):
            if piece.hidden:
                hidden += len(piece.raw)
            elif piece.shown:
                blanks = max(blanks, len(piece.raw))
    return HiddenContent(hidden, blanks)
