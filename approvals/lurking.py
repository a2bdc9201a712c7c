"""What the texts of a plan could hide: characters that show nothing, and blanks that push the rest out of sight."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from journal import untrusted


class Lurking(NamedTuple):
    """How many hidden characters texts hold, and the length of the longest run of blanks shown as a count."""

    hidden: int
    blanks: int


def texts(value: Any) -> Iterable[str]:
    """Every text within a JSON value, names too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from texts(one)


def found(listed: Iterable[str]) -> Lurking:
    """What lurks in texts."""
    hidden = blanks = 0
    for text in listed:
        for piece in untrusted.pieces(text):
            if piece.hidden:
                hidden += len(piece.raw)
            elif piece.shown:
                blanks = max(blanks, len(piece.raw))
    return Lurking(hidden, blanks)
