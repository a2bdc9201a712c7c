"""A query in words, so that people see what was understood."""

from typing import Final

from inquiry.query import values
from inquiry.query.entities import ENTITIES, Entity
from inquiry.query.tree import And, Node, Not, One, Or, Query, Scope, Seq, Term, Words

_SIGNS: Final = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
_TIMES: Final = {">": "after", ">=": "at or after", "<": "before", "<=": "at or before"}
_BESIDE: Final = {"": "the same as", "=": "the same as", **_SIGNS}
_HOW_MANY: Final = {"=": "exactly", ">": "more than", ">=": "at least", "<": "fewer than", "<=": "at most"}
_QUANTIFIED: Final = {"any": "at least one of its {}", "all": "every one of its {}", "none": "none of its {}"}


def told(query: Query) -> str:
    """The query as one sentence. It holds what was typed: untrusted text, like the query itself."""
    entity = ENTITIES[query.entity]
    if query.condition is None:
        words = f"All {entity.plural}"
    else:
        words = f"{entity.plural.capitalize()} where {_told(query.condition, entity, top=True)}"
    if query.asof is not None:
        words += f", as of {query.asof.text}{' ago' if values.is_age(query.asof) else ''}"
    if query.grouping is not None:
        figures = ", ".join(str(one) for one in query.grouping.aggregates)
        words += f", by {', '.join(name for name, _ in query.grouping.names)}: {figures}"
        words += f", the first {query.grouping.top}" if query.grouping.top else ""
    return f"{words}."


def _told(node: Node, entity: Entity, *, top: bool = False) -> str:
    if isinstance(node, And | Or):
        words = (" and " if isinstance(node, And) else " or ").join(_told(child, entity) for child in node.children)
        return words if top else f"({words})"
    if isinstance(node, Not):
        return f"not {_told(node.child, entity)}"
    if isinstance(node, Scope):
        return _scope(node)
    if isinstance(node, Seq):
        return _seq(node)
    if isinstance(node, Words):
        return f"its text has the words “{node.text}{'*' if node.prefix else ''}”"
    return _term(node, entity)


def _term(term: Term, entity: Entity) -> str:
    names = [one.text for one in term.values]
    if term.name == "is":
        flags = [f"it is {name} ({entity.flags[name].help})" for name in names if name in entity.flags]
        return " or ".join(flags)
    if term.name == "has":
        return " or ".join(f"it has a value of {_label(name, entity)}" for name in names)
    time = entity.fields[entity.time]
    if term.name in ("since", "until"):
        return f"{_lower(time.label)} is {_moment(term.values[0], term.name)}"
    field = entity.known(term.name)
    label = _label(term.name, entity)
    if field is not None and field.kind == "time" and len(names) == 1 and not term.operator and _is_age(term):
        return f"{label} is within the last {names[0]}"
    return f"{label} {_values(term, entity, is_time=field is not None and field.kind == 'time')}"


def _values(term: Term, entity: Entity, *, is_time: bool) -> str:
    if term.is_range:
        ends = [f"from {term.low.text}" if term.low else "", f"up to {term.high.text}" if term.high else ""]
        return "is " + " ".join(end for end in ends if end)
    first = term.values[0]
    if first.form == "field":
        other = _label(first.text, entity)
        return f"differs from {other}" if first.differs else f"is {_BESIDE[term.operator]} {other}"
    sign = (_TIMES if is_time else _SIGNS).get(term.operator, "")
    return "is " + " or ".join(f"{sign} {_value(one)}".strip() for one in term.values)


def _value(one: One) -> str:
    text = f"“{one.text}”" if one.form == "quoted" or not one.text else one.text
    return f"what begins with {text}" if one.prefix else text


def _moment(one: One, name: str) -> str:
    if not values.is_age(one):
        return f"{'from' if name == 'since' else 'before'} {one.text}" + (" on" if name == "since" else "")
    return f"{'within' if name == 'since' else 'before'} the last {one.text}"


def _is_age(term: Term) -> bool:
    return values.is_age(term.values[0])


def _scope(scope: Scope) -> str:
    inner = ENTITIES[scope.entity]
    met = _told(scope.condition, inner, top=True) if scope.condition is not None else ""
    if scope.quantifier == "count":
        number = f"it has {_HOW_MANY[scope.operator]} {scope.number} {inner.plural}"
        return f"{number} where ({met})" if met else number
    verb = "does it hold" if scope.quantifier == "none" else "it holds"
    return f"of {_QUANTIFIED[scope.quantifier].format(inner.plural)} {verb} that ({met})"


def _seq(seq: Seq) -> str:
    words = seq.steps[0].kind
    for step in seq.steps[1:]:
        within = f" within {step.within.text}" if step.within is not None else ""
        words += f", then{within} no {step.kind}" if step.absent else f", then{within} {step.kind}"
    return f"its journal has {words}"


def _label(name: str, entity: Entity) -> str:
    field = entity.known(name)
    return f"“{name}”" if field is None else _lower(field.label)


def _lower(label: str) -> str:
    return label[:1].lower() + label[1:]
