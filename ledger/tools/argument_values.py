"""Read the values at the dot paths that a declaration names. Pure.

A path that meets a list goes through all its items, unless the step is the number of one:
`orders.id` are the ids of all orders, `orders.0.id` is that of the first.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_VALUES: Final = 20  # values that one path may return
MAX_FIELD_CHARACTERS: Final = 200  # of a value of a search field; longer ones are cut
_REDACTED: Final = "[redacted:"
_MAX_NODES: Final = 1_000  # items that one path may visit


def list_argument_values(arguments: Any, path: str) -> list[Any]:
    """Return the plain values at a path (text, numbers, booleans), at most MAX_VALUES."""
    if "." not in path and isinstance(arguments, dict) and isinstance(arguments.get(path), str):
        return [arguments[path]] if arguments[path] else []  # the usual case
    values: list[Any] = []
    for value in _iterate_plain(arguments, path.split(".")):
        values.append(value)
        if len(values) == MAX_VALUES:
            break
    return values


def list_field_values(fields: Mapping[str, str], arguments: Any) -> tuple[tuple[str, str], ...]:
    """Return the (field, value) pairs of declared search fields, without redacted values.

    Values are one line of at most MAX_FIELD_CHARACTERS; equal pairs are listed once.
    """
    pairs: dict[tuple[str, str], None] = {}
    for field, path in fields.items():
        for value in list_argument_values(arguments, path):
            text = " ".join(format_plain_value(value).replace("\0", "").split())
            if text and not text.startswith(_REDACTED):
                pairs[field, text[:MAX_FIELD_CHARACTERS]] = None
    return tuple(pairs)


def _iterate_plain(arguments: Any, steps: list[str]) -> Iterator[Any]:
    stack: list[tuple[Any, int]] = [(arguments, 0)]
    visited = 0
    while stack and visited < _MAX_NODES:
        value, depth = stack.pop()
        visited += 1
        if isinstance(value, list):
            index = _list_index(steps[depth]) if depth < len(steps) else None
            if index is None:
                stack += [(item, depth) for item in reversed(value[:_MAX_NODES])]
            elif index < len(value):
                stack.append((value[index], depth + 1))
        elif depth == len(steps):
            if isinstance(value, str | int | float) and value != "":
                yield value
        elif isinstance(value, dict) and steps[depth] in value:
            stack.append((value[steps[depth]], depth + 1))


def _list_index(step: str) -> int | None:
    return int(step) if step.isascii() and step.isdigit() and len(step) < 7 else None


def format_plain_value(value: Any) -> str:
    """Return a plain value as text: true, 12.5, text as it is."""
    return value if isinstance(value, str) else json.dumps(value)
