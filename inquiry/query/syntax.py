"""Reads the text of a query into a tree whose parts know where they stand. Knows no field and no database.

query   = [entity] [or] {"|" stage}        stage = "group" names | aggregates | "top" number
or      = and {"OR" and}                   and   = not {["AND"] not}
not     = ("NOT" | "-") not | part         part  = "(" or ")" | scope | seq | term | words
scope   = ("any" | "all" | "none") "(" entity ":" or ")" | "count" "(" entity [":" or] ")" compare number
seq     = "seq" "(" step {"->" step} ")"   step  = ["!"] kind ["within" age]
term    = field ":" [compare] value        value = "[" one {"," one} "]" | one ".." one | one
one     = word ["*"] | '"' text '"' | ["!"] "@" field
"""

from inquiry.query.characters import NAME
from inquiry.query.conditions import Conditions
from inquiry.query.stages import Stages
from inquiry.query.tree import Aggregate, And, Fault, Node, Not, One, Or, Query, Scope, Term


def parse(text: str, entities: tuple[str, ...], default: str) -> Query:
    """Read `text`. Raises Fault. `entities` are the names a query or scope may open with; `default` stands for none."""
    return _Reader(text, entities).query(default)


class _Reader(Conditions, Stages):
    def __init__(self, text: str, entities: tuple[str, ...]) -> None:
        super().__init__(text, entities)
        self.asof: One | None = None

    def query(self, default: str) -> Query:
        entity, named = default, False
        self.space()
        found = NAME.match(self.text, self.at)
        if (
            found
            and found[0] in self.entities
            and self.text[found.end() : found.end() + 1] in ("", " ", "|", "\n", "\t")
        ):
            entity, named, self.at = found[0], True, found.end()
        entity_end = self.at
        self.space()
        condition = None if self.at == len(self.text) or self.peek("|") else self.either()
        condition = self.without_moment(condition)
        self.space()
        conditions_end = self.at
        grouping = self.stages() if self.peek("|") else None
        if self.at < len(self.text):
            raise Fault(self.at, 1, f"“{self.text[self.at]}” stands alone: nothing opened it.")
        return Query(self.text, entity, condition, grouping, self.asof, named, entity_end, conditions_end)

    def without_moment(self, condition: Node | None) -> Node | None:
        """Take `asof:` out of what all must hold: it says of when, and not of what. Elsewhere it has no meaning."""
        children = condition.children if isinstance(condition, And) else (condition,) if condition else ()
        moments = [one for one in children if isinstance(one, Term) and one.name == "asof"]
        for moment in moments:
            if self.asof is not None:
                raise Fault(moment.at, moment.end - moment.at, "A query is as of one moment.")
            if moment.operator or len(moment.values) != 1 or moment.values[0].form == "field":
                raise Fault(moment.at, moment.end - moment.at, "asof: takes a time, an age or #position.")
            self.asof = moment.values[0]
        rest = tuple(one for one in children if one not in moments)
        for one in rest:
            _refuse_moments(one)
        return And(rest) if len(rest) > 1 else rest[0] if rest else None


def _refuse_moments(node: Node) -> None:
    children: tuple[Node, ...] = ()
    if isinstance(node, And | Or):
        children = node.children
    elif isinstance(node, Not):
        children = (node.child,)
    elif isinstance(node, Scope) and node.condition is not None:
        children = (node.condition,)
    elif isinstance(node, Term) and node.name == "asof":
        raise Fault(
            node.at, node.end - node.at, "asof: holds for the whole query: put it outside of OR, NOT and scopes."
        )
    for child in children:
        _refuse_moments(child)


__all__ = ["Aggregate", "And", "Fault", "Node", "Not", "One", "Or", "Query", "Scope", "Term", "parse"]
