"""Strict JSON parser: accepts a document exactly or rejects it with a code.

Rejected at any level: lone surrogates, NaN and infinities (also 1e400), numbers of more than 64
characters, nesting deeper than 32, duplicate keys. Preserved exactly: NUL and other control
characters in free text (written as escapes) and integers beyond 2^53. `api.schemas.core` restricts
identifiers further.

The fast path decodes with msgspec (strict about syntax, but it merges duplicate keys silently) and
writes with orjson (sorted keys). Two cheap conditions prove that this text is canonical:

* The body and the text have the same number of colons. A colon is either syntax, one per member, or
  part of a string, where its number can only decrease. A duplicate key drops at least one member,
  so equal counts mean that none was dropped, unless an escaped colon was written out. A body with
  an escaped colon therefore takes the slow path.
* No key has a character beyond U+FFFF, the only case where the key order of orjson differs from
  RFC 8785.

Floats are inserted as fragments in ECMAScript notation. Everything else takes the slow path: the
parser of the standard library with hooks that see every pair and every number's digits. The slow
path also locates faults.
"""

import json
import re
from collections.abc import Iterable
from itertools import islice
from math import isfinite
from typing import Any, Literal, NoReturn

import msgspec
import orjson

from api.problems import Problem
from api.strictjson.canonical_json import (
    has_astral_key,
    to_intent_text,
    to_number_text,
    write_canonical,
)
from api.strictjson.request_body import check_charset, check_content_type, check_utf8, read_body
from db.text import describe_json_type

MAX_NUMBER_CHARACTERS = 64
_MAX_POINTER = 300
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonFaultError(Exception):
    """A rejected document: code, sentence and JSON pointer."""

    def __init__(self, code: str, detail: str, pointer: str | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.pointer = pointer


class _Pairs(list[tuple[str, Any]]):
    """An object's members as written, including duplicates."""


class _BadNumber:
    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail


def parse_slowly(raw: bytes, max_depth: int) -> dict[str, Any]:
    """Parse the object in `raw`. Raises JsonFaultError for its first fault.

    `raw` may nest a few hundred levels at most, because the parser is recursive.
    """
    try:
        tree = json.loads(
            raw.decode(),
            object_pairs_hook=_Pairs,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_reject_constant,
        )
    except UnicodeDecodeError as error:
        raise JsonFaultError(
            "invalid_utf8",
            f"The text is not valid UTF-8 at byte {error.start}. Encode it as UTF-8.",
        ) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        message = error.msg.removesuffix(" at")  # some messages end with it
        raise JsonFaultError(
            "json_syntax",
            f"The text is not one JSON document: {message} at {place}. Fix the syntax.",
        ) from None
    except RecursionError:
        raise build_depth_fault(max_depth) from None
    value = _check_value(tree, (), max_depth)
    if type(value) is not dict:
        raise build_type_fault(value)
    return value


def _check_value(node: Any, path: tuple[str, ...], max_depth: int) -> Any:
    if isinstance(node, list) and len(path) >= max_depth:
        raise build_depth_fault(max_depth, _build_pointer(path))
    if isinstance(node, str):
        if _SURROGATE.search(node):
            raise JsonFaultError(
                "lone_surrogate",
                "The text contains a lone surrogate. Send valid Unicode.",
                _build_pointer(path),
            )
        return node
    if isinstance(node, _Pairs):
        members: dict[str, Any] = {}
        for key, child in node:
            if _SURROGATE.search(key):
                raise JsonFaultError(
                    "lone_surrogate",
                    "A key contains a lone surrogate. Send valid Unicode.",
                    _build_pointer(path),
                )
            if key in members:
                raise JsonFaultError(
                    "duplicate_key",
                    "A key is repeated in one object. Send it once.",
                    _build_pointer((*path, key)),
                )
            members[key] = _check_value(child, (*path, key), max_depth)
        return members
    if isinstance(node, list):
        return [
            _check_value(child, (*path, str(index)), max_depth) for index, child in enumerate(node)
        ]
    if isinstance(node, _BadNumber):
        raise JsonFaultError(node.code, node.detail, _build_pointer(path))
    return node


def _parse_int(digits: str) -> int | _BadNumber:
    if len(digits.lstrip("-")) > MAX_NUMBER_CHARACTERS:
        return _BadNumber(
            "number_too_long",
            f"A number has more than {MAX_NUMBER_CHARACTERS} digits. Send it as text.",
        )
    return int(digits)


def _parse_float(digits: str) -> float | _BadNumber:
    if len(digits) > MAX_NUMBER_CHARACTERS:
        detail = f"A number has more than {MAX_NUMBER_CHARACTERS} characters. Send it as text."
        return _BadNumber("number_too_long", detail)
    number = float(digits)
    return (
        number
        if isfinite(number)
        else _BadNumber("number_not_finite", "A number is too large. Send it as text.")
    )


def _reject_constant(name: str) -> _BadNumber:
    return _BadNumber("number_not_finite", f"{name} is not valid JSON. Send null or text instead.")


def _build_pointer(path: tuple[str, ...]) -> str:
    # A very long pointer is useless, so it names the nearest ancestor that fits.
    pointer = ""
    for token in path:
        longer = f"{pointer}/{token.replace('~', '~0').replace('/', '~1')}"
        if len(longer) > _MAX_POINTER:
            break
        pointer = longer
    return pointer


def build_depth_fault(max_depth: int, pointer: str | None = None) -> JsonFaultError:
    return JsonFaultError(
        "too_deep",
        f"The text is nested deeper than {max_depth} levels. Flatten it or send it as text.",
        pointer,
    )


def build_type_fault(value: Any) -> JsonFaultError:
    return JsonFaultError(
        "not_an_object",
        f"Expected a JSON object, got {describe_json_type(value)}. Send a JSON object.",
        "",
    )


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


__all__ = [
    "ItemFault",
    "Parsed",
    "check_content_type",
    "parse_batch",
    "parse_object",
    "read_body",
    "to_intent_text",
]


MAX_DEPTH = 32
# With this few opening brackets no parser exceeds its recursion limit. With more, the depth is
# counted before parsing.
_RECURSION_SAFE = 500
_MAX_ID = 64


class Parsed(msgspec.Struct, frozen=True):
    """A JSON object: `value` as Python objects, `text` as canonical JSON.

    The text follows RFC 8785, except that long integers keep all digits.
    """

    value: dict[str, Any]
    text: str


class ItemFault(msgspec.Struct, frozen=True):
    """Why one item of a batch, counted from 0, was rejected; `id` if it was readable."""

    index: int
    id: str | None
    code: str
    detail: str
    pointer: str | None
    status: Literal["invalid", "too_large"]


class _FloatSeenError(Exception):
    pass


class _IdOnly(msgspec.Struct):
    id: str | None = None


def _refuse_float(digits: str) -> NoReturn:
    raise _FloatSeenError


def _parse_quick_float(digits: str) -> float:
    number = float(digits)
    if len(digits) > MAX_NUMBER_CHARACTERS or not isfinite(number):
        # The slow path locates the number and raises the final error.
        raise JsonFaultError("number_out_of_range", "A number is out of range.")
    return number


def _parse_float_fragment(digits: str) -> orjson.Fragment:
    return orjson.Fragment(to_number_text(float(digits)))


_decode = msgspec.json.Decoder(float_hook=_refuse_float).decode
_decode_floats = msgspec.json.Decoder(float_hook=_parse_quick_float).decode
_decode_fragments = msgspec.json.Decoder(float_hook=_parse_float_fragment).decode
_decode_id = msgspec.json.Decoder(_IdOnly).decode

_ASTRAL = re.compile(rb"[\xf0-\xf4]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Possessive, and it accepts an unterminated string, so that no input causes backtracking.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def parse_object(raw: bytes, *, max_depth: int = MAX_DEPTH) -> Parsed:
    """Parse one JSON object. Problem 415 if not UTF-8, 422 for other faults.

    Integers beyond 2^53 keep all digits.
    """
    check_charset(raw)
    try:
        return _parse(raw, max_depth)
    except JsonFaultError as fault:
        raise Problem(422, fault.code, fault.detail, pointer=fault.pointer) from None


def parse_batch(
    raw: bytes, *, ndjson: bool, max_items: int = 1000, max_item_bytes: int = 262_144
) -> list[Parsed | ItemFault]:
    """Parse the items of a batch in order. An invalid item becomes an ItemFault.

    The body is a JSON array, or one JSON object per line (blank lines are skipped and not counted).
    Problems: 400 `envelope_unreadable` if the items cannot be separated (not an array, or a syntax
    error anywhere in it), 413 `too_many_items`, 415 and 422 for text that is not UTF-8.
    """
    check_charset(raw)
    check_utf8(raw)
    results: list[Parsed | ItemFault] = []
    for index, item in enumerate(split_items(raw, ndjson=ndjson, max_items=max_items)):
        if len(item) > max_item_bytes:
            detail = (
                f"The item is larger than {max_item_bytes} bytes. Record large payloads as"
                " artifacts."
            )
            results.append(
                ItemFault(index, _extract_id(item), "item_too_large", detail, None, "too_large")
            )
            continue
        try:
            results.append(_parse(item, MAX_DEPTH))
        except JsonFaultError as fault:
            if fault.code == "json_syntax" and not ndjson:
                raise build_batch_problem(f"Element {index} is not JSON. {fault.detail}") from None
            name = None if fault.pointer == "/id" else _extract_id(item)
            results.append(
                ItemFault(index, name, fault.code, fault.detail, fault.pointer, "invalid")
            )
    return results


def _parse(raw: bytes, max_depth: int) -> Parsed:
    openings = raw.count(b"[") + raw.count(b"{")
    if openings > _RECURSION_SAFE:
        _check_depth(raw, max_depth)
    try:
        try:
            value = plain = _decode(raw)
        except _FloatSeenError:
            value, plain = _decode_floats(raw), _decode_fragments(raw)
        written = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
    except (JsonFaultError, ValueError, TypeError, RecursionError):
        # msgspec raises a ValueError; orjson raises a TypeError for an integer beyond 64 bits. The
        # slow path decides whether the document is valid.
        return _read_slowly(raw, max_depth)
    if type(value) is not dict:
        raise build_type_fault(value)
    if (
        raw.count(b":") != written.count(b":")
        or (b"\\u003" in raw and (b"\\u003a" in raw or b"\\u003A" in raw))
        or (openings > max_depth and measure_depth(value) > max_depth)
        or (not written.isascii() and _ASTRAL.search(written) and has_astral_key(value))
    ):
        return _read_slowly(raw, max_depth)
    return Parsed(value, written.decode())


def _read_slowly(raw: bytes, max_depth: int) -> Parsed:
    value = parse_slowly(raw, max_depth)
    return Parsed(value, write_canonical(value))


def measure_depth(value: Any) -> int:
    """Count the levels of objects and lists in a JSON value; 1 for a scalar."""
    levels, level = 0, [value]
    while level:
        levels += 1
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
    return levels


def _check_depth(raw: bytes, max_depth: int) -> None:
    # Brackets inside strings do not count, so strings are removed first.
    depth = 0
    for bracket in _STRING.sub(b"", raw).translate(None, _NOT_BRACKETS):
        if bracket in b"[{":
            depth += 1
            if depth > max_depth:
                raise build_depth_fault(max_depth)
        else:
            depth -= 1


def _discard_number(digits: str) -> None:
    return None


def _extract_id(item: bytes) -> str | None:
    """Return the id of an invalid item, if it can be read on its own."""
    try:
        identity: Any = _decode_id(item).id
    except (ValueError, RecursionError):
        try:  # the standard library also accepts lone surrogates, NaN and very long numbers
            document = json.loads(item, parse_int=_discard_number)
        except (ValueError, RecursionError):
            return None
        identity = document.get("id") if type(document) is dict else None
    return (
        identity
        if type(identity) is str and 1 <= len(identity) <= _MAX_ID and not _CONTROL.search(identity)
        else None
    )
