"""Reject queries about people for tokens that may see decisions but not who made them."""

from collections.abc import Iterator

from accounts.models import Project
from investigation.query.compiler import walk_terms
from investigation.query.entity_registry import ENTITIES, Entity
from investigation.query.fields.types import Actor, Field, MultiValue, NamedRow
from investigation.query.parser.ast import Query, QueryError
from investigation.query.registry.common import project_approvals, project_votes

PEOPLE_SENTENCE = (
    "asks about people, which this token may not read. Use a token with the scope audit."
)


def reject_people_conditions(query: Query, project: Project) -> None:
    """Raise QueryError at the first part of `query` that asks about people."""
    entity = ENTITIES[query.entity]
    for name, at in _find_people_names(query, entity):
        raise QueryError(at, len(name), f"“{name[:60]}” {PEOPLE_SENTENCE}")
    agent_names = {"gatebook", *project.agents.values_list("name", flat=True)}
    for term in walk_terms(query.condition, entity):
        known_field = term[1].find_field(term[0].name)
        for value in term[0].values if isinstance(known_field, Actor) else ():
            if value.prefix or not (value.text in agent_names or value.text.startswith("agent:")):
                raise QueryError(
                    value.at, len(value.text), f"“{value.text[:60]}” {PEOPLE_SENTENCE}"
                )


def _find_people_names(query: Query, entity: Entity) -> Iterator[tuple[str, int]]:
    """Return the names of fields and flags about people, with their places in the text."""
    for term, term_entity in walk_terms(query.condition, entity):
        if _is_people_field(term_entity.find_field(term.name)):
            yield term.name, term.at
        for part in term.values:
            value_field = (
                term_entity.find_field(part.text)
                if part.form == "field" or term.name == "has"
                else None
            )
            if _is_people_field(value_field) or (
                term.name == "is" and part.text == "self_approved"
            ):
                yield part.text, part.at
    if query.grouping is not None:
        figures = [(part.field, part.at) for part in query.grouping.aggregates]
        for name, at in [*query.grouping.names, *figures]:
            known_field = entity.find_field(name)
            if _is_people_field(known_field) or isinstance(known_field, Actor):
                yield name, at


def _is_people_field(field: Field | None) -> bool:
    if isinstance(field, MultiValue):
        return field.rows in (project_votes, project_approvals)
    return isinstance(field, NamedRow) and field.column == "username"
