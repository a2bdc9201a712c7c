"""Canonical JSON (RFC 8785): equal values have equal texts.

Unlike the RFC, integers beyond 2^53 keep all digits, because evidence must not be rounded. All
other values follow the RFC exactly.
"""

from math import isfinite
from typing import Any

import orjson

from api.problems import Problem

_SORTED = orjson.OPT_SORT_KEYS


def to_canonical_text(value: Any) -> str:
    """Return the canonical text of a JSON value.

    Problem 422 for values outside JSON: lone surrogates, NaN, infinities, non-text keys, other
    types.
    """
    try:
        if not _needs_care(value):
            try:
                return orjson.dumps(value, option=_SORTED).decode()
            except TypeError:
                pass  # an integer beyond 64 bits, or a value that `_write` rejects with a reason
        parts: list[str] = []
        _write(value, parts)
    except RecursionError:
        raise Problem(422, "too_deep", "The value is nested too deeply. Flatten it.") from None
    return "".join(parts)


def to_intent_text(tool: str, arguments: Any) -> bytes:
    """Return the input of an intent digest: canonical `[tool, arguments]`."""
    return to_canonical_text([tool, arguments]).encode()


def to_number_text(number: float) -> str:
    """Format a finite float as ECMAScript does, as RFC 8785 requires (`1`, `1e+21`)."""
    if number == 0:
        return "0"  # negative zero too
    text = repr(number)
    mantissa, e, exponent_text = text.partition("e")
    if not e:
        return text.removesuffix(".0")
    exponent = int(exponent_text)
    sign = "-" if mantissa.startswith("-") else ""
    # repr and ECMAScript produce the same shortest digits, but switch to exponents at different
    # magnitudes.
    if 0 < exponent < 21:
        digits = mantissa.lstrip("-").replace(".", "")
        return sign + digits.ljust(exponent + 1, "0")
    if -7 < exponent < 0:
        digits = mantissa.lstrip("-").replace(".", "")
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    return f"{mantissa}e{exponent:+d}"


def has_astral_key(value: Any) -> bool:
    """Return whether a key at any level has a character beyond U+FFFF.

    RFC 8785 sorts keys by UTF-16 units, orjson by code points. The orders differ only for such
    keys.
    """
    stack = [value]
    while stack:
        node = stack.pop()
        if type(node) is dict:
            for key in node:
                if not key.isascii() and max(key) > "\uffff":
                    return True
            stack.extend(node.values())
        elif type(node) is list:
            stack.extend(node)
    return False


def write_canonical(value: Any) -> str:
    """Return the canonical text by the slow writer, without shortcuts."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def _needs_care(value: Any) -> bool:
    # True if the text of orjson may differ from RFC 8785: floats, astral keys, and types beyond
    # JSON that orjson accepts.
    stack = [value]
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind is dict:
            for key in node:
                if type(key) is not str or (not key.isascii() and key and max(key) > "\uffff"):
                    return True
            stack.extend(node.values())
        elif kind is list:
            stack.extend(node)
        elif not (kind is str or kind is int or kind is bool or node is None):
            return True
    return False


def _write(value: Any, parts: list[str]) -> None:
    if value is None:
        parts.append("null")
    elif value is True:
        parts.append("true")
    elif value is False:
        parts.append("false")
    elif isinstance(value, str):
        parts.append(_string(value))
    elif isinstance(value, int):
        parts.append(str(int(value)))
    elif isinstance(value, float):
        if not isfinite(value):
            raise Problem(
                422,
                "number_not_finite",
                "NaN and infinities are not valid JSON. Send null or text instead.",
            )
        parts.append(to_number_text(float(value)))
    elif isinstance(value, dict):
        _write_object(value, parts)
    elif isinstance(value, list | tuple):
        parts.append("[")
        for index, element in enumerate(value):
            if index:
                parts.append(",")
            _write(element, parts)
        parts.append("]")
    else:
        raise Problem(
            422, "not_json", f"A {type(value).__name__} is not a JSON value. Send a JSON type."
        )


def _write_object(value: dict[Any, Any], parts: list[str]) -> None:
    if not all(isinstance(key, str) for key in value):
        raise Problem(422, "not_json", "An object key is not text. Send text keys.")
    parts.append("{")
    for index, key in enumerate(sorted(value, key=_utf16_units)):
        if index:
            parts.append(",")
        parts.append(_string(key))
        parts.append(":")
        _write(value[key], parts)
    parts.append("}")


def _utf16_units(key: str) -> bytes:
    # Surrogates pass, so that `_string` rejects them with the right error.
    return key.encode("utf-16-be", "surrogatepass")


def _string(text: str) -> str:
    try:
        return orjson.dumps(str(text)).decode()
    except TypeError:
        raise Problem(
            422, "lone_surrogate", "The text contains a lone surrogate. Send valid Unicode."
        ) from None
