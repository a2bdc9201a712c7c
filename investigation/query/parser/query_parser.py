"""Parse the text of a query into a tree. Knows no fields and no database.

query        = [entity] [either] [stages]
either       = both {"OR" both}
both         = negation {["AND"] negation}
negation     = ("NOT" | "-") negation | part
part         = "(" either ")" | scope | seq | term | quoted ["*"] | bare_word
scope        = ("any" | "all" | "none") "(" entity ":" either ")"
             | "count" "(" entity [":" either] ")" compare number
seq          = "seq" "(" step {"->" step} ")"
step         = ["!"] kind ["within" single_value]
term         = field ":" [compare] ("[" single_value {"," single_value} "]" | single_value)
             | field ":" range
range        = [single_value] ".." [single_value]
single_value = word ["*"] | quoted ["*"] | ["!"] "@" field
bare_word    = word ["*"]
stages       = {"|" ("group" names | functions | "top" number)}
names        = field {"," field}
functions    = function ["(" field ")"] {"," function ["(" field ")"]}

Each rule is the method of its name. A term becomes a `Term`, `quoted` and `bare_word` in a part
become `TextWords`, and the whole becomes a `Query` (ast.py). The text `tool:git.push` has the
condition `Term("tool", 0, 13, "", (QueryValue("git.push", 5),))`; several conditions are an `And`.
"""

import re
from typing import Final

from investigation.query.parser.ast import (
    Aggregate,
    And,
    Grouping,
    Node,
    Not,
    Or,
    Query,
    QueryError,
    QueryValue,
    Scope,
    Sequence,
    Step,
    Term,
    TextWords,
)

MAX_CHARACTERS: Final = 2_000
# A name with this prefix is a search field that tool declarations name; no other name has a dot.
DECLARED_PREFIX: Final = "field."
NAME: Final = re.compile(r"field\.[a-z][a-z0-9_]*|[A-Za-z_][A-Za-z0-9_]*")
_SPACE: Final = re.compile(r"\s*")


class Scanner:
    """A text and the position `at` up to which it was read.

    Raises QueryError if the text is too long or contains a NUL character.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise QueryError(
                MAX_CHARACTERS, 1, f"A query can have at most {MAX_CHARACTERS:,} characters."
            )
        if "\0" in text:
            raise QueryError(text.index("\0"), 1, "A query cannot hold a NUL character.")
        self.text, self.at = text, 0

    def quoted(self) -> str:
        """Read a text between double quotes. Inside, `\\"` is a quote and `\\\\` a backslash."""
        opened = self.at
        characters: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            character = self.text[self.at]
            self.at += 1
            if character == '"':
                return "".join(characters)
            if character == "\\" and self.text[self.at : self.at + 1] in ('"', "\\"):
                character = self.text[self.at]
                self.at += 1
            characters.append(character)
        raise QueryError(opened, 1, "The quote is not closed. Add a closing quote.")

    def space(self) -> None:
        """Skip blanks."""
        blanks = _SPACE.match(self.text, self.at)
        self.at = blanks.end() if blanks else self.at

    def peek(self, character: str) -> bool:
        """Return True if `character` is next. Reads nothing."""
        return self.text.startswith(character, self.at)

    def take(self, character: str) -> bool:
        """Read `character` if it is next, and return whether it was."""
        taken = self.peek(character)
        self.at += taken
        return taken

    def sees(self, word: str) -> bool:
        """Return True if `word` is next and ends there. Reads nothing."""
        after = self.text[self.at + len(word) : self.at + len(word) + 1]
        return self.text.startswith(word, self.at) and (
            not after or after.isspace() or after in "()"
        )

    def keyword(self, word: str) -> bool:
        """Read blanks and then `word`, or nothing if another word follows."""
        start = self.at
        self.space()
        if self.sees(word):
            self.at += len(word)
            return True
        self.at = start
        return False

    def closes(self, opened: int) -> None:
        """Read blanks and the parenthesis that closes `opened`. Raises QueryError."""
        self.space()
        if not self.take(")"):
            raise QueryError(opened, 1, "The parenthesis is not closed. Add a closing parenthesis.")


MAX_DEPTH: Final = 12
MAX_CONDITIONS: Final = 60
MAX_LIST_VALUES: Final = 50
MAX_STEPS: Final = 4

_WORD: Final = re.compile(r"[^\s()\[\]|\",]+")
_BARE_WORD: Final = re.compile(r"[^\s()|\"]+")
_KIND: Final = re.compile(r"[a-z]+\.[a-z_]+")
_OPERATORS: Final = (">=", "<=", "=", ">", "<")
_COMPARE: Final = re.compile(r"\s*(>=|<=|=|>|<)\s*([0-9]{1,9})(?![^\s()|])")
QUANTIFIERS: Final = ("any", "all", "none", "count")


class ConditionParser(Scanner):
    """The parser of conditions. `entities` are the names that a scope accepts."""

    def __init__(self, text: str, entities: tuple[str, ...]) -> None:
        super().__init__(text)
        self.entities = entities
        self.parts = self.depth = 0

    def either(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise QueryError(self.at, 1, f"Parentheses can be nested at most {MAX_DEPTH} deep.")
        alternatives = [self.both()]
        while self.keyword("OR"):
            alternatives.append(self.both())
        self.depth -= 1
        return alternatives[0] if len(alternatives) == 1 else Or(tuple(alternatives))

    def both(self) -> Node:
        nodes = [self.negation()]
        while True:
            self.space()
            if self.at == len(self.text) or self.text[self.at] in ")|" or self.sees("OR"):
                break
            self.keyword("AND")
            nodes.append(self.negation())
        return nodes[0] if len(nodes) == 1 else And(tuple(nodes))

    def negation(self) -> Node:
        self.space()
        start = self.at
        if self.keyword("NOT") or (
            self.peek("-") and self.text[self.at + 1 : self.at + 2].strip() != ""
        ):
            if self.at == start:
                self.at += 1
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise QueryError(start, 1, f"Conditions can be negated at most {MAX_DEPTH} times.")
            child = self.negation()
            self.depth -= 1
            return Not(child)
        return self.part()

    def part(self) -> Node:
        self.space()
        self.parts += 1
        if self.parts > MAX_CONDITIONS:
            raise QueryError(self.at, 1, f"A query can have at most {MAX_CONDITIONS} conditions.")
        if self.at == len(self.text):
            raise QueryError(max(self.at - 1, 0), 1, "The query ends too early. Add a condition.")
        if self.peek("("):
            opened = self.at
            self.at += 1
            inner = self.either()
            self.closes(opened)
            return inner
        if self.peek('"'):
            start = self.at
            text = self.quoted()
            prefix = self.take("*")
            return TextWords(text, start, self.at, prefix)
        named = NAME.match(self.text, self.at)
        after = self.text[named.end() : named.end() + 1] if named else ""
        if named and after == "(" and named[0] in (*QUANTIFIERS, "seq"):
            return self.seq() if named[0] == "seq" else self.scope(named[0])
        if named and after == ":":
            return self.term(named[0])
        return self.bare_word()

    def bare_word(self) -> TextWords:
        start = self.at
        word = _BARE_WORD.match(self.text, self.at)
        if word is None or self.sees("OR") or self.sees("AND"):
            token = word[0] if word else self.text[self.at]
            raise QueryError(self.at, len(token), f"A condition is missing before “{token[:40]}”.")
        self.at = word.end()
        return TextWords(word[0].removesuffix("*"), start, self.at, prefix=word[0].endswith("*"))

    def term(self, name: str) -> Node:
        start = self.at
        self.at += len(name) + 1
        operator = next((sign for sign in _OPERATORS if self.text.startswith(sign, self.at)), "")
        self.at += len(operator)
        if self.take("["):
            opened, values = self.at - 1, []
            while True:
                self.space()
                if self.at == len(self.text):
                    raise QueryError(opened, 1, "The list is not closed. Add “]”.")
                values.append(self.single_value(exact=operator == "="))
                self.space()
                if self.take("]"):
                    break
                if self.at == len(self.text):
                    continue
                if not self.take(","):
                    raise QueryError(
                        min(self.at, len(self.text) - 1),
                        1,
                        "Separate the values of a list with commas.",
                    )
            if len(values) > MAX_LIST_VALUES:
                raise QueryError(
                    opened, self.at - opened, f"A list can have at most {MAX_LIST_VALUES} values."
                )
            return Term(name, start, self.at, operator, tuple(values))
        if operator != "=" and not operator:
            ranged = self.range()
            if ranged is not None:
                return Term(name, start, self.at, "", (), *ranged)
        value = self.single_value(exact=operator == "=")
        return Term(name, start, self.at, operator, (value,))

    def range(self) -> tuple[QueryValue | None, QueryValue | None] | None:
        """Read `a..b`, `a..`, `..b` or `"a".."b"`; return None if no range is next.

        Without a range, nothing is read.
        """
        start = self.at
        if not self.peek('"'):
            word = _WORD.match(self.text, self.at)
            low, dots, high = word[0].partition("..") if word else ("", "", "")
            if word is None or not dots:
                return None
            if not low and not high:
                raise QueryError(
                    self.at, 2, "A range needs at least one end. Write 5..10, 5.. or ..10."
                )
            self.at = word.end()
            first = QueryValue(low, start) if low else None
            if not high and self.peek('"'):
                return first, QueryValue(self.quoted(), start + len(low) + 2, "quoted")
            return first, QueryValue(high, start + len(low) + 2) if high else None
        text = self.quoted()
        if not self.text.startswith("..", self.at):
            self.at = start
            return None
        self.at += 2
        first = QueryValue(text, start, "quoted")
        if self.at == len(self.text) or self.text[self.at] in " )|\n\t":
            return first, None
        return first, self.single_value(exact=True)

    def single_value(self, *, exact: bool) -> QueryValue:
        start = self.at
        if self.peek('"'):
            text = self.quoted()
            return QueryValue(text, start, "quoted", prefix=not exact and self.take("*"))
        differs = self.text.startswith("!@", self.at)
        if differs or self.peek("@"):
            named = NAME.match(self.text, self.at + 1 + differs)
            if named is None:
                raise QueryError(start, 1, "A field name must follow “@”.")
            self.at = named.end()
            return QueryValue(named[0], start, "field", differs=differs)
        word = _WORD.match(self.text, self.at)
        if word is None:
            raise QueryError(
                min(start, len(self.text) - 1),
                1,
                "A value is missing. Quote values that contain blanks.",
            )
        self.at = word.end()
        if exact or not word[0].endswith("*"):
            return QueryValue(word[0], start)
        if word[0] == "*":
            raise QueryError(start, 1, "“*” needs a prefix. Use has:field to test for a value.")
        return QueryValue(word[0][:-1], start, prefix=True)

    def scope(self, quantifier: str) -> Node:
        start = self.at
        self.at += len(quantifier)
        opened = self.at
        self.at += 1
        self.space()
        named = NAME.match(self.text, self.at)
        if named is None:
            raise QueryError(
                start,
                self.at - start,
                f"{quantifier}(…) needs the rows to test. Write {quantifier}(effect: …).",
            )
        if named[0] not in self.entities:
            raise QueryError(
                self.at,
                len(named[0]),
                f"“{named[0][:40]}” is not one of {', '.join(self.entities)}.",
            )
        self.at = named.end()
        self.space()
        condition = None
        if self.take(":"):
            condition = self.either()
        elif quantifier != "count":
            raise QueryError(
                self.at - 1, 1, f"A colon is missing. Write {quantifier}({named[0]}: …)."
            )
        self.closes(opened)
        if quantifier != "count":
            return Scope(quantifier, named[0], condition, start, self.at)
        compared = _COMPARE.match(self.text, self.at)
        if compared is None:
            raise QueryError(
                start,
                self.at - start,
                "A count must be compared with a number. Write count(effect: …) >= 3.",
            )
        self.at = compared.end()
        return Scope("count", named[0], condition, start, self.at, compared[1], int(compared[2]))

    def seq(self) -> Sequence:
        start = self.at
        self.at += 3
        opened = self.at
        self.at += 1
        steps = [self.step()]
        while True:
            self.space()
            if not self.text.startswith("->", self.at):
                break
            self.at += 2
            steps.append(self.step())
        self.closes(opened)
        if len(steps) < 2:
            raise QueryError(
                start,
                self.at - start,
                "A sequence needs at least two steps. Write seq(a.b -> !c.d within 10m).",
            )
        if len(steps) > MAX_STEPS:
            raise QueryError(
                start, self.at - start, f"A sequence can have at most {MAX_STEPS} steps."
            )
        if steps[0].absent or steps[0].within is not None:
            raise QueryError(
                steps[0].at,
                1,
                "The first step cannot have “!” or “within”. Start with an entry that exists.",
            )
        for step in steps[1:-1]:
            if step.absent:
                raise QueryError(step.at, 1, "A step with “!” must be the last one.")
        return Sequence(tuple(steps), start, self.at)

    def step(self) -> Step:
        self.space()
        start = self.at
        absent = self.take("!")
        kind = _KIND.match(self.text, self.at)
        if kind is None:
            raise QueryError(
                min(self.at, len(self.text) - 1),
                1,
                "A step must be a kind of entry, such as effect.dispatched.",
            )
        self.at = kind.end()
        if not self.keyword("within"):
            return Step(kind[0], start, absent)
        self.space()
        return Step(kind[0], start, absent, self.single_value(exact=True))


MAX_GROUP_FIELDS: Final = 3
MAX_AGGREGATES: Final = 6
MAX_TOP: Final = 1_000

FUNCTIONS: Final = ("count", "distinct", "min", "max", "avg", "sum", "p50", "p90", "p95", "p99")


class StageParser(Scanner):
    """The parser of stages. `stages` reads everything after the first “|”."""

    def stages(self) -> Grouping:
        names: tuple[tuple[str, int], ...] = ()
        aggregates: tuple[Aggregate, ...] = ()
        top = 0
        while self.take("|"):
            self.space()
            start, word = self.at, NAME.match(self.text, self.at)
            if word is None:
                raise QueryError(
                    start - 1,
                    1,
                    "A stage must follow “|”: group, an aggregate such as count, or top.",
                )
            if word[0] == "group" and not names:
                self.at = word.end()
                names = self.names()
            elif word[0] == "top" and not top:
                self.at = word.end()
                top = self.number()
            elif word[0] in FUNCTIONS and not aggregates:
                aggregates = self.functions()
            else:
                raise QueryError(
                    start,
                    len(word[0]),
                    f"“{word[0][:40]}” is not a stage or is repeated. Use group, count … or top.",
                )
            self.space()
        if not names:
            raise QueryError(
                self.at - 1, 1, "A group stage is missing. Write | group tool | count."
            )
        return Grouping(names, aggregates or (Aggregate("count", "", self.at),), top)

    def names(self) -> tuple[tuple[str, int], ...]:
        field_names = []
        while True:
            self.space()
            named = NAME.match(self.text, self.at)
            if named is None:
                raise QueryError(
                    min(self.at, len(self.text) - 1),
                    1,
                    "group needs field names. Write group tool.",
                )
            field_names.append((named[0], self.at))
            self.at = named.end()
            self.space()
            if not self.take(","):
                break
        if len(field_names) > MAX_GROUP_FIELDS:
            raise QueryError(
                field_names[MAX_GROUP_FIELDS][1],
                len(field_names[MAX_GROUP_FIELDS][0]),
                f"Group by at most {MAX_GROUP_FIELDS} fields.",
            )
        return tuple(field_names)

    def functions(self) -> tuple[Aggregate, ...]:
        aggregates = []
        while True:
            self.space()
            start, named = self.at, NAME.match(self.text, self.at)
            if named is None or named[0] not in FUNCTIONS:
                name = named[0] if named else ""
                raise QueryError(
                    min(start, len(self.text) - 1),
                    len(name),
                    f"A function is missing. Use one of {', '.join(FUNCTIONS)}.",
                )
            self.at = named.end()
            of = ""
            if self.take("("):
                self.space()
                inner = NAME.match(self.text, self.at)
                if inner is None:
                    raise QueryError(start, self.at - start, f"{named[0]}(…) needs a field name.")
                of, self.at = inner[0], inner.end()
                self.closes(named.end())
            if (named[0] == "count") == bool(of):
                sentence = (
                    "count takes no field. Write count"
                    if of
                    else f"{named[0]} needs a field. Write {named[0]}(attempts)"
                )
                raise QueryError(start, self.at - start, f"{sentence}.")
            aggregates.append(Aggregate(named[0], of, start))
            self.space()
            if not self.take(","):
                break
        if len(aggregates) > MAX_AGGREGATES:
            raise QueryError(
                aggregates[MAX_AGGREGATES].at,
                1,
                f"A query can have at most {MAX_AGGREGATES} aggregates.",
            )
        return tuple(aggregates)

    def number(self) -> int:
        self.space()
        digits = re.compile(r"[0-9]{1,9}").match(self.text, self.at)
        if digits is None or not 1 <= int(digits[0]) <= MAX_TOP:
            raise QueryError(
                min(self.at, len(self.text) - 1),
                1,
                f"top needs a number from 1 to {MAX_TOP:,}.",
            )
        self.at = digits.end()
        return int(digits[0])


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
