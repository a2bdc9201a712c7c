"""Describe a query as an English sentence, so that people see how it was understood."""

from collections.abc import Collection
from typing import Final

from investigation.query.entity_registry import ENTITIES, Entity
from investigation.query.parser import values
from investigation.query.parser.ast import (
    And,
    Node,
    Not,
    Or,
    Query,
    QueryValue,
    Scope,
    Sequence,
    Term,
    TextWords,
)

_SIGNS: Final = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
_TIMES: Final = {">": "after", ">=": "at or after", "<": "before", "<=": "at or before"}
_RELATIONS: Final = {"": "the same as", "=": "the same as", **_SIGNS}
_HOW_MANY: Final = {
    "=": "exactly",
    ">": "more than",
    ">=": "at least",
    "<": "fewer than",
    "<=": "at most",
}
_QUANTIFIED: Final = {
    "any": "at least one of its {}",
    "all": "every one of its {}",
    "none": "none of its {}",
}


def describe_query(query: Query, names: Collection[str] = ()) -> str:
    """Return the query as one sentence. It contains typed text, which is untrusted.

    `names` are words that name an agent or a person.
    """
    entity = ENTITIES[query.entity]
    if query.condition is None:
        words = f"All {entity.plural}"
    else:
        condition = _describe(query.condition, entity, names, top=True)
        words = f"{entity.plural.capitalize()} where {condition}"
    if query.asof is not None:
        words += (
            f", as of {query.asof.text}{' ago' if values.is_written_as_age(query.asof) else ''}"
        )
    if query.grouping is not None:
        figures = ", ".join(str(aggregate) for aggregate in query.grouping.aggregates)
        words += f", by {', '.join(name for name, _ in query.grouping.names)}: {figures}"
        words += f", the first {query.grouping.top}" if query.grouping.top else ""
    return f"{words}."


def _describe(node: Node, entity: Entity, names: Collection[str] = (), *, top: bool = False) -> str:
    if isinstance(node, And | Or):
        words = (" and " if isinstance(node, And) else " or ").join(
            _describe(child, entity, names) for child in node.children
        )
        return words if top else f"({words})"
    if isinstance(node, Not):
        return f"not {_describe(node.child, entity, names)}"
    if isinstance(node, Scope):
        return _describe_scope(node)
    if isinstance(node, Sequence):
        return _describe_sequence(node)
    if isinstance(node, TextWords):
        words = f"the text has the words “{node.text}{'*' if node.prefix else ''}”"
        if node.text not in names or node.prefix:
            return words
        return f"({words} or {node.text} is its agent or decided on it)"
    return _describe_term(node, entity)


def _describe_term(term: Term, entity: Entity) -> str:
    names = [value.text for value in term.values]
    if term.name == "is":
        flags = [
            f"it is {name} ({entity.flags[name].help})" for name in names if name in entity.flags
        ]
        return " or ".join(flags)
    if term.name == "has":
        return " or ".join(f"{_find_label(name, entity)} has a value" for name in names)
    time = entity.fields[entity.time]
    if term.name in ("since", "until"):
        return f"{_lower_first(time.label)} is {_describe_moment(term.values[0], term.name)}"
    field = entity.find_field(term.name)
    label = _find_label(term.name, entity)
    if (
        field is not None
        and field.kind == "time"
        and len(names) == 1
        and not term.operator
        and values.is_written_as_age(term.values[0])
    ):
        return f"{label} is within the last {names[0]}"
    is_time = field is not None and field.kind == "time"
    return f"{label} {_describe_values(term, entity, is_time=is_time)}"


def _describe_values(term: Term, entity: Entity, *, is_time: bool) -> str:
    if term.is_range:
        ends = [
            f"from {term.low.text}" if term.low else "",
            f"up to {term.high.text}" if term.high else "",
        ]
        return "is " + " ".join(end for end in ends if end)
    first = term.values[0]
    if first.form == "field":
        other_label = _find_label(first.text, entity)
        return (
            f"differs from {other_label}"
            if first.differs
            else f"is {_RELATIONS[term.operator]} {other_label}"
        )
    sign = (_TIMES if is_time else _SIGNS).get(term.operator, "")
    return "is " + " or ".join(f"{sign} {_describe_value(value)}".strip() for value in term.values)


def _describe_value(value: QueryValue) -> str:
    is_plain = value.form != "quoted" and value.text and not value.prefix
    text = value.text if is_plain else f"“{value.text}”"
    return f"a text starting with {text}" if value.prefix else text


def _describe_moment(value: QueryValue, name: str) -> str:
    if not values.is_written_as_age(value):
        return f"{'from' if name == 'since' else 'before'} {value.text}" + (
            " on" if name == "since" else ""
        )
    return f"{'within' if name == 'since' else 'before'} the last {value.text}"


def _describe_scope(scope: Scope) -> str:
    inner = ENTITIES[scope.entity]
    condition = _describe(scope.condition, inner, top=True) if scope.condition is not None else ""
    if scope.quantifier == "count":
        number = f"it has {_HOW_MANY[scope.operator]} {scope.number} {inner.plural}"
        return f"{number} where ({condition})" if condition else number
    verb = "does it hold" if scope.quantifier == "none" else "it holds"
    return f"of {_QUANTIFIED[scope.quantifier].format(inner.plural)} {verb} that ({condition})"


def _describe_sequence(seq: Sequence) -> str:
    words = seq.steps[0].kind
    for step in seq.steps[1:]:
        within = f" within {step.within.text}" if step.within is not None else ""
        words += f", then{within} no {step.kind}" if step.absent else f", then{within} {step.kind}"
    return f"its journal has {words}"


def _find_label(name: str, entity: Entity) -> str:
    field = entity.find_field(name)
    return f"“{name}”" if field is None else _lower_first(field.label)


def _lower_first(label: str) -> str:
    return label[:1].lower() + label[1:]
