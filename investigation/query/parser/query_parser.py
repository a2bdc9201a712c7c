"""Parse the text of a query into a tree. Knows no fields and no database.

query   = [entity] [or] {"|" stage}
stage   = "group" names | aggregates | "top" number
or      = and {"OR" and}
and     = not {["AND"] not}
not     = ("NOT" | "-") not | part
part    = "(" or ")" | scope | seq | term | words
scope   = ("any" | "all" | "none") "(" entity ":" or ")"
        | "count" "(" entity [":" or] ")" compare number
seq     = "seq" "(" step {"->" step} ")"
step    = ["!"] kind ["within" age]
term    = field ":" [compare] value
value   = "[" one {"," one} "]" | one ".." one | one
one     = word ["*"] | '"' text '"' | ["!"] "@" field
"""

from investigation.query.parser.aggregation import StageParser
from investigation.query.parser.ast import (
    Aggregate,
    And,
    Node,
    Not,
    Or,
    Query,
    QueryError,
    QueryValue,
    Scope,
    Term,
)
from investigation.query.parser.conditions import ConditionParser
from investigation.query.parser.scanner import NAME


def parse_syntax(text: str, entities: tuple[str, ...], default: str) -> Query:
    """Parse `text`. Raises QueryError.

    `entities` are the names that a query or scope may start with; `default` is used without one.
    """
    return _QueryParser(text, entities).query(default)


class _QueryParser(ConditionParser, StageParser):
    def __init__(self, text: str, entities: tuple[str, ...]) -> None:
        super().__init__(text, entities)
        self.asof: QueryValue | None = None

    def query(self, default: str) -> Query:
        entity = default
        self.space()
        word = NAME.match(self.text, self.at)
        if (
            word
            and word[0] in self.entities
            and self.text[word.end() : word.end() + 1] in ("", " ", "|", "\n", "\t")
        ):
            entity, self.at = word[0], word.end()
        entity_end = self.at
        self.space()
        condition = None if self.at == len(self.text) or self.peek("|") else self.either()
        condition = self.without_moment(condition)
        self.space()
        conditions_end = self.at
        grouping = self.stages() if self.peek("|") else None
        if self.at < len(self.text):
            raise QueryError(self.at, 1, f"“{self.text[self.at]}” has no counterpart. Remove it.")
        return Query(self.text, entity, condition, grouping, self.asof, entity_end, conditions_end)

    def without_moment(self, condition: Node | None) -> Node | None:
        """Move `asof:` out of the top-level conditions; elsewhere it is an error."""
        children = (
            condition.children if isinstance(condition, And) else (condition,) if condition else ()
        )
        moments = [
            condition_node
            for condition_node in children
            if isinstance(condition_node, Term) and condition_node.name == "asof"
        ]
        for moment in moments:
            if self.asof is not None:
                raise QueryError(
                    moment.at, moment.end - moment.at, "A query can have only one asof:."
                )
            if moment.operator or len(moment.values) != 1 or moment.values[0].form == "field":
                raise QueryError(
                    moment.at, moment.end - moment.at, "asof: takes a time, an age or #position."
                )
            self.asof = moment.values[0]
        remaining = tuple(
            condition_node for condition_node in children if condition_node not in moments
        )
        for condition_node in remaining:
            _reject_moments(condition_node)
        return And(remaining) if len(remaining) > 1 else remaining[0] if remaining else None


def _reject_moments(node: Node) -> None:
    children: tuple[Node, ...] = ()
    if isinstance(node, And | Or):
        children = node.children
    elif isinstance(node, Not):
        children = (node.child,)
    elif isinstance(node, Scope) and node.condition is not None:
        children = (node.condition,)
    elif isinstance(node, Term) and node.name == "asof":
        raise QueryError(
            node.at,
            node.end - node.at,
            "asof: applies to the complete query. Move it outside of OR, NOT and scopes.",
        )
    for child in children:
        _reject_moments(child)


__all__ = [
    "Aggregate",
    "And",
    "Node",
    "Not",
    "Or",
    "Query",
    "QueryError",
    "QueryValue",
    "Scope",
    "Term",
    "parse_syntax",
]
