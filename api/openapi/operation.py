"""One operation of the OpenAPI document."""

from typing import Any, NamedTuple

import msgspec


class Endpoint(NamedTuple):
    """One operation: its request and its responses."""

    method: str
    path: str
    name: str
    summary: str
    answers: dict[int, str]  # status -> name of the schema
    shape: type[msgspec.Struct] | None = None
    query: tuple[str, ...] = ()
    tag: str = "effects"
    if_match: bool = False  # accepts an If-Match header


def build_object_schema(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """Build the JSON Schema of an object."""
    return {"type": "object", "required": list(required), "properties": required | optional}
