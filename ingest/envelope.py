"""Telling the items of a batch apart without reading them."""

import re
from collections.abc import Iterable
from itertools import islice

import msgspec

from ingest.problems import Problem

# An array of a million tiny elements would cost msgspec thirty times its size in memory before it could be counted.
_MANY_COMMAS = 250_000
_BLANK = b" \t\r\n"
_LINE = re.compile(rb"[^\n]+")
# A string (possessive, and content with one that never ends, so that no input makes it start over) or a mark.
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)

_decode_envelope = msgspec.json.Decoder(list[msgspec.Raw]).decode


def split_items(raw: bytes, *, ndjson: bool, max_items: int) -> list[bytes]:
    """The items of a JSON array or of NDJSON (blank lines skipped), each as its own bytes, not yet read.

    Problems: 400 `envelope_unreadable`, 413 `too_many_items`.
    """
    items = list(islice(_lines(raw) if ndjson else _elements(raw, max_items), max_items + 1))
    if len(items) > max_items:
        raise Problem(413, "too_many_items", f"A batch holds at most {max_items} items; send several batches.")
    return items


def unreadable(why: str) -> Problem:
    """The refusal of a whole batch, with the reason in words."""
    detail = f"The batch cannot be read as an array of items; send a JSON array or NDJSON. {why[:300].rstrip('.')}."
    return Problem(400, "envelope_unreadable", detail)


def _lines(raw: bytes) -> Iterable[bytes]:
    for match in _LINE.finditer(raw):
        if line := match.group().strip(_BLANK):
            yield line


def _elements(raw: bytes, max_items: int) -> Iterable[bytes]:
    why = "It holds too many commas."
    if raw.count(b",") <= _MANY_COMMAS:
        try:
            return map(bytes, _decode_envelope(raw))
        except (ValueError, RecursionError) as error:
            # One element may hold what msgspec refuses and we answer for singly: a lone surrogate, NaN, a deep nest.
            why = str(error)
    elements = _split(raw, max_items)
    if elements is None:
        raise unreadable(why)
    return elements


def _split(raw: bytes, max_items: int) -> list[bytes] | None:
    """The elements of a JSON array by its brackets and commas alone, those past `max_items` + 1 left out.

    None when it is not one array.
    """
    body = raw.strip(_BLANK)
    if not body.startswith(b"["):
        return None
    elements: list[bytes] = []
    depth = start = 0
    for match in _STRUCTURE.finditer(body):
        token = match.group()
        if token in (b"[", b"{"):
            depth += 1
            if depth == 1:
                start = match.end()
        elif token in (b"]", b"}"):
            depth -= 1
            if depth == 0:
                last = body[start : match.start()].strip(_BLANK)
                if match.end() != len(body) or token != b"]":
                    return None
                return [*elements, last] if last or elements else []
        elif token == b"," and depth == 1:
            elements.append(body[start : match.start()].strip(_BLANK))
            start = match.end()
            if len(elements) > max_items:
                return elements
    return None
