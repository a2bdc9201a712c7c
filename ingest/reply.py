"""What a door says."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Reply:
    """A status and a JSON object. A `kept` one is stored for whoever repeats the command; a `replay` came from it."""

    status: int
    body: dict[str, Any]
    kept: bool = True
    replay: bool = False
    headers: dict[str, str] = field(default_factory=dict)
