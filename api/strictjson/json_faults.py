"""Faults of a JSON document, found by the standard parser with hooks for pairs and numbers.

This slow path decides what is rejected and locates the fault. parser.py only proves quickly that a
document does not need it.
"""

import json
import re
from math import isfinite
from typing import Any

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


def describe_json_type(value: Any) -> str:
    """Return the JSON type of a value in words: `an array`, `null`."""
    if value is None:
        return "null"
    kinds = (
        (bool, "a boolean"),
        (int | float, "a number"),
        (str, "a string"),
        (list, "an array"),
        (dict, "an object"),
    )
    return next((label for kind, label in kinds if isinstance(value, kind)), "a number")
