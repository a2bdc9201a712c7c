"""The registry of searchable entities with their fields, flags and scopes.

No other module names a column. The parser's errors, the completion, facets, the API's schema and
docs/reference/search.md are generated from the registry.
"""

from typing import Final

from investigation.query.fields.types import Entity, Flag
from investigation.query.registry.effects import EFFECT
from investigation.query.registry.events import EVENT
from investigation.query.registry.gates import EXEMPTION, GATE
from investigation.query.registry.sessions import SESSION

ENTITIES: Final[dict[str, Entity]] = {
    entity.name: entity for entity in (EFFECT, SESSION, GATE, EXEMPTION, EVENT)
}
NAMES: Final = tuple(ENTITIES)
DEFAULT: Final = "effect"

__all__ = ["DEFAULT", "ENTITIES", "NAMES", "Entity", "Flag"]
