"""Reads the text of a query into a tree whose parts know where they stand. Knows no field and no database.

query   = [entity] [or] {"|" stage}        stage = "group" names | aggregates | "top" number
or      = and {"OR" and}                   and   = not {["AND"] not}
not     = ("NOT" | "-") not | part         part  = "(" or ")" | scope | seq | term | words
scope   = ("any" | "all" | "none") "(" entity ":" or ")" | "count" "(" entity [":" or] ")" compare number
seq     = "seq" "(" step {"->" step} ")"   step  = ["!"] kind ["within" age]
term    = field ":" [compare] value        value = "[" one {"," one} "]" | one ".." one | one
one     = word ["*"] | '"' text '"' | ["!"] "@" field
"""

import re
from typing import Final

from inquiry.query.tree import Aggregate, And, Fault, Grouping, Node, Not, One, Or, Query, Scope, Seq, Step, Term, Words

MOST_CHARACTERS: Final = 2_000
MOST_DEPTH: Final = 12
MOST_PARTS: Final = 60
MOST_VALUES: Final = 50
MOST_STEPS: Final = 4
MOST_GROUPS: Final = 3
MOST_AGGREGATES: Final = 6
MOST_TOP: Final = 1_000

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD: Final = re.compile(r"[^\s()\[\]|\",]+")
_LONE: Final = re.compile(r"[^\s()|\"]+")
_SPACE: Final = re.compile(r"\s*")
_KIND: Final = re.compile(r"[a-z]+\.[a-z_]+")
_OPERATORS: Final = (">=", "<=", "=", ">", "<")
_COMPARE: Final = re.compile(r"\s*(>=|<=|=|>|<)\s*([0-9]{1,9})(?![^\s()|])")
QUANTIFIERS: Final = ("any", "all", "none", "count")


FUNCTIONS: Final = ("count", "distinct", "min", "max", "avg", "sum", "p50", "p90", "p95", "p99")


def parse(text: str, entities: tuple[str, ...], default: str) -> Query:
    """Read `text`. Raises Fault. `entities` are the names a query or scope may open with; `default` stands for none."""
    return _Reader(text, entities).query(default)


class _Reader:
    def __init__(self, text: str, entities: tuple[str, ...]) -> None:
        if len(text) > MOST_CHARACTERS:
            raise Fault(MOST_CHARACTERS, 1, f"A query has at most {MOST_CHARACTERS:,} characters.")
        if "\0" in text:
            raise Fault(text.index("\0"), 1, "A query cannot hold a NUL character.")
        self.text, self.at, self.entities = text, 0, entities
        self.parts = self.depth = 0
        self.asof: One | None = None

    def query(self, default: str) -> Query:
        entity, named = default, False
        self.space()
        found = _NAME.match(self.text, self.at)
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

    # Conditions. ----------------------------------------------------------------------------------------------------

    def either(self) -> Node:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise Fault(self.at, 1, f"Parentheses stand at most {MOST_DEPTH} deep.")
        found = [self.both()]
        while self.keyword("OR"):
            found.append(self.both())
        self.depth -= 1
        return found[0] if len(found) == 1 else Or(tuple(found))

    def both(self) -> Node:
        found = [self.negation()]
        while True:
            self.space()
            if self.at == len(self.text) or self.text[self.at] in ")|" or self.sees("OR"):
                break
            self.keyword("AND")
            found.append(self.negation())
        return found[0] if len(found) == 1 else And(tuple(found))

    def negation(self) -> Node:
        self.space()
        begun = self.at
        if self.keyword("NOT") or (self.peek("-") and self.text[self.at + 1 : self.at + 2].strip() != ""):
            if self.at == begun:
                self.at += 1
            self.depth += 1
            if self.depth > MOST_DEPTH:
                raise Fault(begun, 1, f"Conditions are turned round at most {MOST_DEPTH} times.")
            child = self.negation()
            self.depth -= 1
            return Not(child)
        return self.part()

    def part(self) -> Node:
        self.space()
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise Fault(self.at, 1, f"A query has at most {MOST_PARTS} conditions.")
        if self.at == len(self.text):
            raise Fault(max(self.at - 1, 0), 1, "The query ends where a condition is expected.")
        if self.peek("("):
            opened = self.at
            self.at += 1
            inner = self.either()
            self.closes(opened)
            return inner
        if self.peek('"'):
            begun = self.at
            text = self.quoted()
            prefix = self.take("*")
            return Words(text, begun, self.at, prefix)
        named = _NAME.match(self.text, self.at)
        after = self.text[named.end() : named.end() + 1] if named else ""
        if named and after == "(" and named[0] in (*QUANTIFIERS, "seq"):
            return self.seq() if named[0] == "seq" else self.scope(named[0])
        if named and after == ":":
            return self.term(named[0])
        return self.lone()

    def lone(self) -> Words:
        begun = self.at
        found = _LONE.match(self.text, self.at)
        if found is None or self.sees("OR") or self.sees("AND"):
            what = found[0] if found else self.text[self.at]
            raise Fault(self.at, len(what), f"A condition is expected before “{what[:40]}”.")
        self.at = found.end()
        return Words(found[0].removesuffix("*"), begun, self.at, prefix=found[0].endswith("*"))

    def term(self, name: str) -> Node:
        begun = self.at
        self.at += len(name) + 1
        operator = next((sign for sign in _OPERATORS if self.text.startswith(sign, self.at)), "")
        self.at += len(operator)
        if self.take("["):
            opened, values = self.at - 1, []
            while True:
                self.space()
                if self.at == len(self.text):
                    raise Fault(opened, 1, "This list is not closed; it ends with “]”.")
                values.append(self.one(exact=operator == "="))
                self.space()
                if self.take("]"):
                    break
                if self.at == len(self.text):
                    continue
                if not self.take(","):
                    raise Fault(min(self.at, len(self.text) - 1), 1, "Values in a list stand between commas.")
            if len(values) > MOST_VALUES:
                raise Fault(opened, self.at - opened, f"A list has at most {MOST_VALUES} values.")
            return Term(name, begun, self.at, operator, tuple(values))
        if operator != "=" and not operator:
            ranged = self.range()
            if ranged is not None:
                return Term(name, begun, self.at, "", (), *ranged)
        value = self.one(exact=operator == "=")
        return Term(name, begun, self.at, operator, (value,))

    def range(self) -> tuple[One | None, One | None] | None:
        """`a..b`, `a..`, `..b` or `"a".."b"`; None, and nothing read, when no range stands here."""
        begun = self.at
        if not self.peek('"'):
            found = _WORD.match(self.text, self.at)
            low, dots, high = found[0].partition("..") if found else ("", "", "")
            if found is None or not dots:
                return None
            if not low and not high:
                raise Fault(self.at, 2, "A range names at least one end, as 5..10, 5.. or ..10.")
            self.at = found.end()
            first = One(low, begun) if low else None
            if not high and self.peek('"'):
                return first, One(self.quoted(), begun + len(low) + 2, "quoted")
            return first, One(high, begun + len(low) + 2) if high else None
        text = self.quoted()
        if not self.text.startswith("..", self.at):
            self.at = begun
            return None
        self.at += 2
        first = One(text, begun, "quoted")
        if self.at == len(self.text) or self.text[self.at] in " )|\n\t":
            return first, None
        return first, self.one(exact=True)

    def one(self, *, exact: bool) -> One:
        begun = self.at
        if self.peek('"'):
            text = self.quoted()
            return One(text, begun, "quoted", prefix=not exact and self.take("*"))
        differs = self.text.startswith("!@", self.at)
        if differs or self.peek("@"):
            named = _NAME.match(self.text, self.at + 1 + differs)
            if named is None:
                raise Fault(begun, 1, "“@” is followed by the name of a field.")
            self.at = named.end()
            return One(named[0], begun, "field", differs=differs)
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise Fault(min(begun, len(self.text) - 1), 1, "A value is expected here; quote it where it has blanks.")
        self.at = found.end()
        if exact or not found[0].endswith("*"):
            return One(found[0], begun)
        if found[0] == "*":
            raise Fault(begun, 1, "“*” alone stands for nothing; has:field asks whether there is a value.")
        return One(found[0][:-1], begun, prefix=True)

    def scope(self, quantifier: str) -> Node:
        begun = self.at
        self.at += len(quantifier)
        opened = self.at
        self.at += 1
        self.space()
        named = _NAME.match(self.text, self.at)
        if named is None:
            raise Fault(begun, self.at - begun, f"{quantifier}(…) names what it looks at, as {quantifier}(effect: …).")
        if named[0] not in self.entities:
            raise Fault(self.at, len(named[0]), f"“{named[0][:40]}” is none of {', '.join(self.entities)}.")
        self.at = named.end()
        self.space()
        condition = None
        if self.take(":"):
            condition = self.either()
        elif quantifier != "count":
            raise Fault(self.at - 1, 1, f"A colon follows, as {quantifier}({named[0]}: …).")
        self.closes(opened)
        if quantifier != "count":
            return Scope(quantifier, named[0], condition, begun, self.at)
        compared = _COMPARE.match(self.text, self.at)
        if compared is None:
            raise Fault(begun, self.at - begun, "What is counted is compared with a number, as count(effect: …) >= 3.")
        self.at = compared.end()
        return Scope("count", named[0], condition, begun, self.at, compared[1], int(compared[2]))

    def seq(self) -> Seq:
        begun = self.at
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
            raise Fault(begun, self.at - begun, "A sequence has at least two steps, as seq(a.b -> !c.d within 10m).")
        if len(steps) > MOST_STEPS:
            raise Fault(begun, self.at - begun, f"A sequence has at most {MOST_STEPS} steps.")
        if steps[0].absent or steps[0].within is not None:
            raise Fault(steps[0].at, 1, "A sequence begins with what happened; what is absent or late follows it.")
        for step in steps[1:-1]:
            if step.absent:
                raise Fault(step.at, 1, "What is absent ends a sequence.")
        return Seq(tuple(steps), begun, self.at)

    def step(self) -> Step:
        self.space()
        begun = self.at
        absent = self.take("!")
        kind = _KIND.match(self.text, self.at)
        if kind is None:
            raise Fault(min(self.at, len(self.text) - 1), 1, "A step is a kind of entry, as effect.dispatched.")
        self.at = kind.end()
        if not self.keyword("within"):
            return Step(kind[0], begun, absent)
        self.space()
        return Step(kind[0], begun, absent, self.one(exact=True))

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

    # Stages. --------------------------------------------------------------------------------------------------------

    def stages(self) -> Grouping:
        names: tuple[tuple[str, int], ...] = ()
        aggregates: tuple[Aggregate, ...] = ()
        top = 0
        while self.take("|"):
            self.space()
            begun, word = self.at, _NAME.match(self.text, self.at)
            if word is None:
                raise Fault(begun - 1, 1, "After “|” stands group, count and the like, or top.")
            if word[0] == "group" and not names:
                self.at = word.end()
                names = self.names()
            elif word[0] == "top" and not top:
                self.at = word.end()
                top = self.number()
            elif word[0] in FUNCTIONS and not aggregates:
                aggregates = self.functions()
            else:
                raise Fault(begun, len(word[0]), f"“{word[0][:40]}” is no stage, or stands twice: group, count …, top.")
            self.space()
        if not names:
            raise Fault(self.at - 1, 1, "What is counted is grouped first, as | group tool | count.")
        return Grouping(names, aggregates or (Aggregate("count", "", self.at),), top)

    def names(self) -> tuple[tuple[str, int], ...]:
        found = []
        while True:
            self.space()
            named = _NAME.match(self.text, self.at)
            if named is None:
                raise Fault(min(self.at, len(self.text) - 1), 1, "group is followed by the names of fields.")
            found.append((named[0], self.at))
            self.at = named.end()
            self.space()
            if not self.take(","):
                break
        if len(found) > MOST_GROUPS:
            raise Fault(
                found[MOST_GROUPS][1], len(found[MOST_GROUPS][0]), f"At most {MOST_GROUPS} fields are grouped by."
            )
        return tuple(found)

    def functions(self) -> tuple[Aggregate, ...]:
        found = []
        while True:
            self.space()
            begun, named = self.at, _NAME.match(self.text, self.at)
            if named is None or named[0] not in FUNCTIONS:
                what = named[0] if named else ""
                raise Fault(
                    min(begun, len(self.text) - 1), len(what), f"One of {', '.join(FUNCTIONS)} is expected here."
                )
            self.at = named.end()
            of = ""
            if self.take("("):
                self.space()
                inner = _NAME.match(self.text, self.at)
                if inner is None:
                    raise Fault(begun, self.at - begun, f"{named[0]}(…) names a field.")
                of, self.at = inner[0], inner.end()
                self.closes(named.end())
            if (named[0] == "count") == bool(of):
                sentence = "count stands alone" if of else f"{named[0]} is followed by a field, as {named[0]}(attempts)"
                raise Fault(begun, self.at - begun, f"{sentence}.")
            found.append(Aggregate(named[0], of, begun))
            self.space()
            if not self.take(","):
                break
        if len(found) > MOST_AGGREGATES:
            raise Fault(found[MOST_AGGREGATES].at, 1, f"At most {MOST_AGGREGATES} figures are asked of each group.")
        return tuple(found)

    def number(self) -> int:
        self.space()
        digits = re.compile(r"[0-9]{1,9}").match(self.text, self.at)
        if digits is None or not 1 <= int(digits[0]) <= MOST_TOP:
            raise Fault(min(self.at, len(self.text) - 1), 1, f"top is followed by a number from 1 to {MOST_TOP:,}.")
        self.at = digits.end()
        return int(digits[0])

    # Characters. ----------------------------------------------------------------------------------------------------

    def quoted(self) -> str:
        """A text between double quotes; inside, `\\"` is a quote and `\\\\` a backslash."""
        opened = self.at
        found: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            character = self.text[self.at]
            self.at += 1
            if character == '"':
                return "".join(found)
            if character == "\\" and self.text[self.at : self.at + 1] in ('"', "\\"):
                character = self.text[self.at]
                self.at += 1
            found.append(character)
        raise Fault(opened, 1, "This quote is not closed.")

    def space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def peek(self, character: str) -> bool:
        return self.text.startswith(character, self.at)

    def take(self, character: str) -> bool:
        taken = self.peek(character)
        self.at += taken
        return taken

    def sees(self, word: str) -> bool:
        after = self.text[self.at + len(word) : self.at + len(word) + 1]
        return self.text.startswith(word, self.at) and (not after or after.isspace() or after in "()")

    def keyword(self, word: str) -> bool:
        begun = self.at
        self.space()
        if self.sees(word):
            self.at += len(word)
            return True
        self.at = begun
        return False

    def closes(self, opened: int) -> None:
        self.space()
        if not self.take(")"):
            raise Fault(opened, 1, "This parenthesis is not closed.")


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


__all__ = [
    "Aggregate",
    "And",
    "Fault",
    "Grouping",
    "Node",
    "Not",
    "One",
    "Or",
    "Query",
    "Scope",
    "Seq",
    "Step",
    "Term",
    "Words",
    "parse",
]
