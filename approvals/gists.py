"""What a plan says in a line, and what it could hide, from the beginning of its body as the journal keeps it."""

from collections.abc import Iterable
from typing import Any, Final

import orjson

from journal import untrusted

_LINE: Final = 160
_FIRST: Final = ("command", "cmd", "code", "file_path", "path", "url", "query", "subject", "name")


def arguments(text: str) -> Any:
    """The arguments in a plan's body; None when it is longer than what is read here."""
    try:
        return orjson.loads(text).get("arguments")
    except orjson.JSONDecodeError:
        return None


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


def lurking(listed: Iterable[str]) -> tuple[int, int]:
    """How many hidden characters texts hold, and the length of the longest run of blanks shown as a count."""
    hidden = blanks = 0
    for text in listed:
        for piece in untrusted.pieces(text):
            if piece.hidden:
                hidden += len(piece.raw)
            elif piece.shown:
                blanks = max(blanks, len(piece.raw))
    return hidden, blanks


def gist(value: Any) -> str:
    """What tells this call from its neighbours, in a line."""
    if not isinstance(value, dict):
        return "" if value is None else _line(value)
    first = next((value[name] for name in _FIRST if name in value), None)
    if first is not None:
        return _line(first)
    return "  ".join(f"{name}={_line(one)}" for name, one in list(value.items())[:4])[:_LINE]


def _line(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = " ".join(value)
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text[:_LINE].replace("\n", " ⏎ ")
