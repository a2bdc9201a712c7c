"""Parse conditions: OR, AND, NOT, parentheses, scopes, sequences, terms and words."""

import re
from typing import Final

from investigation.query.parser.ast import (
    And,
    Node,
    Not,
    Or,
    QueryError,
    QueryValue,
    Scope,
    Sequence,
    Step,
    Term,
    TextWords,
)
from investigation.query.parser.scanner import NAME, Scanner

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
