"""Holds a value against the published JSON Schema of a bundle. It knows the words that schema uses and no others."""

import re
from typing import Any, Final

from sessions.refused import RefusedError

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS: Final = frozenset(
    {
        *("$schema", "title", "type", "properties", "required", "additionalProperties", "items", "anyOf", "const"),
        *("description", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum"),
    }
)


def hold(value: Any, schema: dict[str, Any], where: str = "") -> None:
    """Raise RefusedError, naming the place as a JSON pointer, where `value` is not what `schema` says."""
    fault = _fault(value, schema, where)
    if fault is not None:
        raise RefusedError(f"bundle.json is not of its schema: {fault[0] or 'the whole of it'} {fault[1]}.")


def _fault(value: Any, schema: dict[str, Any], where: str) -> tuple[str, str] | None:
    assert schema.keys() <= _WORDS, schema.keys() - _WORDS  # noqa: S101 - the schema is ours
    if "anyOf" in schema:
        faults = [_fault(value, one, where) for one in schema["anyOf"]]
        # The deepest fault is that of the alternative which was meant.
        return None if None in faults else max((one for one in faults if one), key=lambda one: len(one[0]))
    if "const" in schema and value != schema["const"]:
        return where, f"is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return where, f"is none of {', '.join(map(str, schema['enum']))}"
    wanted = schema.get("type")
    if wanted is not None:
        names = [wanted] if isinstance(wanted, str) else wanted
        if not any(_is(value, name) for name in names):
            return where, f"is no {' or '.join(names)}"
    if isinstance(value, str):
        return _of_text(value, schema, where)
    if isinstance(value, int) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        return None if low <= value <= high else (where, f"is not between {low} and {high}")
    if isinstance(value, dict) and "properties" in schema:
        return _of_object(value, schema, where)
    if isinstance(value, list) and "items" in schema:
        found = (_fault(one, schema["items"], f"{where}/{number}") for number, one in enumerate(value))
        return next((one for one in found if one is not None), None)
    return None


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _of_text(value: str, schema: dict[str, Any], where: str) -> tuple[str, str] | None:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        most = schema.get("maxLength")
        return where, f"has {len(value)} characters" + (f", and may have {most}" if most else "")
    if "pattern" in schema and not re.fullmatch(schema["pattern"].removeprefix("^").removesuffix("$"), value):
        return where, f"does not look like {schema['pattern']}"
    return None


def _of_object(value: dict[str, Any], schema: dict[str, Any], where: str) -> tuple[str, str] | None:
    known = schema["properties"]
    for name in schema.get("required", ()):
        if name not in value:
            return where, f"lacks {name}"
    for name, one in value.items():
        if name not in known:
            return where, f"has {name[:40]!r}, which is unknown"
        fault = _fault(one, known[name], f"{where}/{name}")
        if fault is not None:
            return fault
    return None
