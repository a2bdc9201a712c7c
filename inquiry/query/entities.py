"""The registry of searchable entities with their fields, flags and scopes.

No other module names a column. The parser's errors, the completion, facets, the API's schema and
docs/search.md are generated from the registry.
"""

from typing import Final

from inquiry.query.entity import Entity, Flag
from inquiry.query.of_effects import EFFECT
from inquiry.query.of_events import EVENT
from inquiry.query.of_people import EXEMPTION, GATE
from inquiry.query.of_sessions import SESSION

ENTITIES: Final[dict[str, Entity]] = {
    entity.name: entity for entity in (EFFECT, SESSION, GATE, EXEMPTION, EVENT)
}
NAMES: Final = tuple(ENTITIES)
DEFAULT: Final = "effect"

__all__ = ["DEFAULT", "ENTITIES", "NAMES", "Entity", "Flag"]
