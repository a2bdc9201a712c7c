"""Free text for database columns, and the words for JSON types."""

from typing import Any


def to_column_text(text: str) -> str:
    """Replace NUL, which PostgreSQL rejects, by its symbol.

    Only for titles and the like; the body keeps every character.
    """
    return text.replace("\0", "\u2400")


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
