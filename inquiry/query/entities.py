"""The registry: every entity that can be asked for, its fields, flags and scopes. Nothing else names a column.

The parser's errors, the completion in the box, facets, the API's schema and docs/search.md are made from it.
"""

from typing import Final

from inquiry.query.entity import Entity, Flag
from inquiry.query.of_effects import EFFECT
from inquiry.query.of_events import EVENT
from inquiry.query.of_people import EXEMPTION, GATE
from inquiry.query.of_sessions import SESSION

ENTITIES: Final[dict[str, Entity]] = {one.name: one for one in (EFFECT, SESSION, GATE, EXEMPTION, EVENT)}
NAMES: Final = tuple(ENTITIES)
DEFAULT: Final = "effect"

__all__ = ["DEFAULT", "ENTITIES", "NAMES", "Entity", "Flag"]
