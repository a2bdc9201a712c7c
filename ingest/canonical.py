"""Canonical JSON (RFC 8785): one text for one value, whoever sent it and however it was spaced.

Beyond the RFC, integers past 2^53 are written digit for digit, because evidence must not be rounded. Everything the
RFC allows comes out exactly as it demands.
"""

from math import isfinite
from typing import Any

import orjson

from ingest.problems import Problem

_SORTED = orjson.OPT_SORT_KEYS


def canonical_text(value: Any) -> str:
    """The canonical text of a JSON value (dict, list, str, int, float, bool, None).

    Problem 422 for what JSON cannot carry: lone surrogates, NaN, infinities, keys that are not text, other types.
    """
    try:
        if not _needs_care(value):
            try:
                return orjson.dumps(value, option=_SORTED).decode()
            except TypeError:
                pass  # an integer over 64 bits, or something that the writer below refuses by name
        parts: list[str] = []
        _write(value, parts)
    except RecursionError:
        raise Problem(422, "too_deep", "The value is nested too deeply to be written; flatten it.") from None
    return "".join(parts)


def intent_text(tool: str, arguments: Any) -> bytes:
    """The bytes that an intent digest is taken over: canonical JSON of `[tool, arguments]` in UTF-8."""
    return canonical_text([tool, arguments]).encode()


def number_text(number: float) -> str:
    """A finite float as ECMAScript writes it, which is what RFC 8785 asks for (1.0 is `1`, 1e21 is `1e+21`)."""
    if number == 0:
        return "0"  # negative zero too
    text = repr(number)
    mantissa, e, exponent_text = text.partition("e")
    if not e:
        return text.removesuffix(".0")
    exponent = int(exponent_text)
    sign = "-" if mantissa.startswith("-") else ""
    # repr and ECMAScript find the same shortest digits; they only switch to exponents at different sizes.
    if 0 < exponent < 21:
        digits = mantissa.lstrip("-").replace(".", "")
        return sign + digits.ljust(exponent + 1, "0")
    if -7 < exponent < 0:
        digits = mantissa.lstrip("-").replace(".", "")
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    return f"{mantissa}e{exponent:+d}"


def has_astral_key(value: Any) -> bool:
    """Whether some key at any level holds a character beyond U+FFFF.

    RFC 8785 sorts keys by UTF-16 units, orjson by code points; the orders differ only when such a key is present.
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
    """As `canonical_text`, by the slow writer only (no shortcuts to prove)."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def _needs_care(value: Any) -> bool:
    # True where orjson's text may differ from RFC 8785: floats, astral keys, and types it would take kindly.
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
            raise Problem(422, "number_not_finite", "NaN and infinities are not JSON; send null or text instead.")
        parts.append(number_text(float(value)))
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
        raise Problem(422, "not_json", f"A {type(value).__name__} is not a JSON value.")


def _write_object(value: dict[Any, Any], parts: list[str]) -> None:
    if not all(isinstance(key, str) for key in value):
        raise Problem(422, "not_json", "Object keys must be text.")
    parts.append("{")
    for index, key in enumerate(sorted(value, key=_utf16_units)):
        if index:
            parts.append(",")
        parts.append(_string(key))
        parts.append(":")
        _write(value[key], parts)
    parts.append("}")


def _utf16_units(key: str) -> bytes:
    # Surrogates pass here so that _string refuses them with the right words.
    return key.encode("utf-16-be", "surrogatepass")


def _string(text: str) -> str:
    try:
        return orjson.dumps(str(text)).decode()
    except TypeError:
        raise Problem(422, "lone_surrogate", "Text holds half of a surrogate pair; send well-formed Unicode.") from None
