"""Which parts of a query ask what people did: not for those who are told what was decided, and never by whom."""

from collections.abc import Iterator

from inquiry.query.entities import ENTITIES, Entity
from inquiry.query.fields import Actor, Field
from inquiry.query.kinds import Name, Several
from inquiry.query.parts import approvals, votes
from inquiry.query.tree import And, Fault, Node, Not, Or, Query, Scope, Term
from sessions.models import Project

SENTENCE = "asks what people did, which this token is not told: issue one of scope audit for that."


def refuse(query: Query, project: Project) -> None:
    """Raise Fault at the first part of `query` that asks for people."""
    entity = ENTITIES[query.entity]
    for name, at in _named(query, entity):
        raise Fault(at, len(name), f"“{name[:60]}” {SENTENCE}")
    robots = {"gatebook", *project.agents.values_list("name", flat=True)}
    for term in _terms(query.condition, entity):
        known = term[1].known(term[0].name)
        for one in term[0].values if isinstance(known, Actor) else ():
            if one.prefix or not (one.text in robots or one.text.startswith("agent:")):
                raise Fault(one.at, len(one.text), f"“{one.text[:60]}” {SENTENCE}")


def _named(query: Query, entity: Entity) -> Iterator[tuple[str, int]]:
    """The names of fields and flags about people, and where they stand."""
    for term, of in _terms(query.condition, entity):
        if _is_of_people(of.known(term.name)):
            yield term.name, term.at
        for one in term.values:
            names = of.known(one.text) if one.form == "field" or term.name == "has" else None
            if _is_of_people(names) or (term.name == "is" and one.text == "self_approved"):
                yield one.text, one.at
    if query.grouping is not None:
        figures = [(one.field, one.at) for one in query.grouping.aggregates]
        for name, at in [*query.grouping.names, *figures]:
            known = entity.known(name)
            if _is_of_people(known) or isinstance(known, Actor):
                yield name, at


def _is_of_people(field: Field | None) -> bool:
    if isinstance(field, Several):
        return field.rows in (votes, approvals)
    return isinstance(field, Name) and field.column == "username"


def _terms(node: Node | None, entity: Entity) -> Iterator[tuple[Term, Entity]]:
    """Every term, with the entity that it is of."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from _terms(child, entity)
    elif isinstance(node, Not):
        yield from _terms(node.child, entity)
    elif isinstance(node, Scope):
        yield from _terms(node.condition, ENTITIES[node.entity])
    elif isinstance(node, Term):
        yield node, entity
