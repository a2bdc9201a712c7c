"""The slow reader: the standard library's parser with hooks that see every pair and every number's digits.

It is the authority on what is refused and where; strict.py only proves quickly that it need not be asked.
"""

import json
import re
from math import isfinite
from typing import Any

MAX_NUMBER_CHARACTERS = 64
_MAX_POINTER = 300
_SURROGATE = re.compile("[\ud800-\udfff]")


class FaultError(Exception):
    """Something in a document that is refused: a code, a sentence, and where (a JSON pointer)."""

    def __init__(self, code: str, detail: str, pointer: str | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.pointer = pointer


class _Pairs(list[tuple[str, Any]]):
    """An object's members as they were written, duplicates included."""


class _BadNumber:
    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail


def read_slowly(raw: bytes, max_depth: int) -> dict[str, Any]:
    """The object in `raw`, or the first fault in it in the order of the document.

    `raw` may nest a few hundred levels at most: the parser is recursive.
    """
    try:
        tree = json.loads(
            raw.decode(),
            object_pairs_hook=_Pairs,
            parse_int=_slow_int,
            parse_float=_slow_float,
            parse_constant=_slow_constant,
        )
    except UnicodeDecodeError as error:
        raise FaultError("invalid_utf8", f"The text is not UTF-8 at byte {error.start}; encode it as UTF-8.") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        said = error.msg.removesuffix(" at")  # some of the parser's sentences end with it
        raise FaultError("json_syntax", f"The text is not one JSON document: {said} at {place}.") from None
    except RecursionError:
        raise too_deep(max_depth) from None
    value = _plain(tree, (), max_depth)
    if type(value) is not dict:
        raise not_an_object(value)
    return value


def _plain(node: Any, path: tuple[str, ...], max_depth: int) -> Any:
    if isinstance(node, list) and len(path) >= max_depth:
        raise too_deep(max_depth, _pointer(path))
    if isinstance(node, str):
        if _SURROGATE.search(node):
            raise FaultError("lone_surrogate", "Text holds half of a surrogate pair; send Unicode.", _pointer(path))
        return node
    if isinstance(node, _Pairs):
        members: dict[str, Any] = {}
        for key, child in node:
            if _SURROGATE.search(key):
                raise FaultError(
                    "lone_surrogate", "A key holds half of a surrogate pair; send Unicode.", _pointer(path)
                )
            if key in members:
                raise FaultError(
                    "duplicate_key", "A key appears twice in one object; send it once.", _pointer((*path, key))
                )
            members[key] = _plain(child, (*path, key), max_depth)
        return members
    if isinstance(node, list):
        return [_plain(child, (*path, str(index)), max_depth) for index, child in enumerate(node)]
    if isinstance(node, _BadNumber):
        raise FaultError(node.code, node.detail, _pointer(path))
    return node


def _slow_int(digits: str) -> int | _BadNumber:
    if len(digits.lstrip("-")) > MAX_NUMBER_CHARACTERS:
        return _BadNumber("number_too_long", f"A number has at most {MAX_NUMBER_CHARACTERS} digits; send it as text.")
    return int(digits)


def _slow_float(digits: str) -> float | _BadNumber:
    if len(digits) > MAX_NUMBER_CHARACTERS:
        detail = f"A number has at most {MAX_NUMBER_CHARACTERS} characters; send it as text."
        return _BadNumber("number_too_long", detail)
    number = float(digits)
    return number if isfinite(number) else _BadNumber("number_not_finite", "A number is too large; send it as text.")


def _slow_constant(name: str) -> _BadNumber:
    return _BadNumber("number_not_finite", f"{name} is not JSON; send null or text instead.")


def _pointer(path: tuple[str, ...]) -> str:
    # A pointer made of endless keys helps nobody: name the nearest ancestor that fits.
    pointer = ""
    for token in path:
        longer = f"{pointer}/{token.replace('~', '~0').replace('/', '~1')}"
        if len(longer) > _MAX_POINTER:
            break
        pointer = longer
    return pointer


def too_deep(max_depth: int, pointer: str | None = None) -> FaultError:
    return FaultError(
        "too_deep", f"The text nests deeper than {max_depth} levels; flatten it or send it as text.", pointer
    )


def not_an_object(value: Any) -> FaultError:
    return FaultError("not_an_object", f"A JSON object is needed here, not {json_kind(value)}.", "")


def json_kind(value: Any) -> str:
    """What a JSON value is, in JSON's own words: `an array`, `null`."""
    if value is None:
        return "null"
    kinds = ((bool, "a boolean"), (int | float, "a number"), (str, "a string"), (list, "an array"), (dict, "an object"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "a number")
