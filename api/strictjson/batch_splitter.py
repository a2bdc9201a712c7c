"""Splits a batch into raw items without parsing them."""

import re
from collections.abc import Iterable
from itertools import islice

import msgspec

from api.problems import Problem

# msgspec would need thirty times the size of an array of a million tiny elements in memory before
# they could be counted.
_MANY_COMMAS = 250_000
_BLANK = b" \t\r\n"
_LINE = re.compile(rb"[^\n]+")
# A string (possessive, may be unterminated, so that no input causes backtracking) or punctuation.
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)

_decode_envelope = msgspec.json.Decoder(list[msgspec.Raw]).decode


def split_items(raw: bytes, *, ndjson: bool, max_items: int) -> list[bytes]:
    """Split a JSON array or NDJSON (blank lines skipped) into the bytes of its items.

    Problems: 400 `envelope_unreadable`, 413 `too_many_items`.
    """
    items = list(
        islice(_split_lines(raw) if ndjson else _split_array(raw, max_items), max_items + 1)
    )
    if len(items) > max_items:
        raise Problem(
            413,
            "too_many_items",
            f"The batch has more than {max_items} items. Send several batches.",
        )
    return items


def build_batch_problem(why: str) -> Problem:
    """Build the Problem for a batch that cannot be split, with the reason."""
    detail = (
        "The batch cannot be split into items. Send a JSON array or NDJSON. Cause:"
        f" {why[:300].rstrip('.')}."
    )
    return Problem(400, "envelope_unreadable", detail)


def _split_lines(raw: bytes) -> Iterable[bytes]:
    for match in _LINE.finditer(raw):
        if line := match.group().strip(_BLANK):
            yield line


def _split_array(raw: bytes, max_items: int) -> Iterable[bytes]:
    why = "It has too many commas."
    if raw.count(b",") <= _MANY_COMMAS:
        try:
            return map(bytes, _decode_envelope(raw))
        except (ValueError, RecursionError) as error:
            # msgspec also fails on faults that concern a single item: a lone surrogate, NaN, depth.
            why = str(error)
    elements = _split_by_punctuation(raw, max_items)
    if elements is None:
        raise build_batch_problem(why)
    return elements


def _split_by_punctuation(raw: bytes, max_items: int) -> list[bytes] | None:
    """Split a JSON array by its brackets and commas, up to `max_items` + 1 elements.

    Returns None if the body is not one array.
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
