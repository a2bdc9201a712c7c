"""The result of an endpoint."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Reply:
    """A status and a JSON object.

    If `kept`, the reply is stored and returned when the command is repeated. `replay` marks a reply
    that was loaded from that store.
    """

    status: int
    body: dict[str, Any]
    kept: bool = True
    replay: bool = False
    headers: dict[str, str] = field(default_factory=dict)
