"""JSON Schema validator for the keywords that the bundle schema uses."""

import re
from typing import Any, Final

from db.errors import ChangeRefused

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_KEYWORDS: Final = frozenset(
    [
        "$schema",
        "title",
        "description",
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "const",
        "enum",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
    ]
)


def validate_schema(value: Any, schema: dict[str, Any], pointer: str = "") -> None:
    """Raise ChangeRefused with a JSON pointer if `value` does not match `schema`."""
    fault = _find_fault(value, schema, pointer)
    if fault is not None:
        raise ChangeRefused(
            f"bundle.json does not match its schema: {fault[0] or 'the document'} {fault[1]}."
        )


def _find_fault(value: Any, schema: dict[str, Any], pointer: str) -> tuple[str, str] | None:
    assert schema.keys() <= _KEYWORDS, schema.keys() - _KEYWORDS  # noqa: S101 - own schema
    if "anyOf" in schema:
        faults = [_find_fault(value, candidate, pointer) for candidate in schema["anyOf"]]
        # The deepest fault belongs to the alternative that was intended.
        return (
            None
            if None in faults
            else max(
                (candidate for candidate in faults if candidate),
                key=lambda candidate: len(candidate[0]),
            )
        )
    if "const" in schema and value != schema["const"]:
        return pointer, f"is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return pointer, f"is not one of {', '.join(map(str, schema['enum']))}"
    types = schema.get("type")
    if types is not None:
        names = [types] if isinstance(types, str) else types
        if not any(_is_type(value, name) for name in names):
            return pointer, f"is not of type {' or '.join(names)}"
    if isinstance(value, str):
        return _find_text_fault(value, schema, pointer)
    if isinstance(value, int) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        return None if low <= value <= high else (pointer, f"is not between {low} and {high}")
    if isinstance(value, dict) and "properties" in schema:
        return _find_object_fault(value, schema, pointer)
    if isinstance(value, list) and "items" in schema:
        nested = (
            _find_fault(candidate, schema["items"], f"{pointer}/{number}")
            for number, candidate in enumerate(value)
        )
        return next((candidate for candidate in nested if candidate is not None), None)
    return None


def _is_type(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _find_text_fault(value: str, schema: dict[str, Any], pointer: str) -> tuple[str, str] | None:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        limit = schema.get("maxLength")
        return pointer, f"has {len(value)} characters" + (
            f"; at most {limit} are allowed" if limit else ""
        )
    if "pattern" in schema and not re.fullmatch(
        schema["pattern"].removeprefix("^").removesuffix("$"), value
    ):
        return pointer, f"does not match {schema['pattern']}"
    return None


def _find_object_fault(
    value: dict[str, Any], schema: dict[str, Any], pointer: str
) -> tuple[str, str] | None:
    properties = schema["properties"]
    for name in schema.get("required", ()):
        if name not in value:
            return pointer, f"has no {name}"
    for name, member in value.items():
        if name not in properties:
            return pointer, f"has the unknown member {name[:40]!r}"
        fault = _find_fault(member, properties[name], f"{pointer}/{name}")
        if fault is not None:
            return fault
    return None
