"""What the API's description says of one call."""

from typing import Any, NamedTuple

import msgspec


class Endpoint(NamedTuple):
    """One operation: what it takes and what it answers."""

    method: str
    path: str
    name: str
    summary: str
    answers: dict[int, str]  # status -> name of the schema
    shape: type[msgspec.Struct] | None = None
    query: tuple[str, ...] = ()
    tag: str = "effects"
    if_match: bool = False  # the version that the change was decided on may be sent


def with_fields(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """The JSON Schema of an object."""
    return {"type": "object", "required": list(required), "properties": required | optional}
