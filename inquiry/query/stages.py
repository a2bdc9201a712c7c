"""Reads what is made of the matches: the fields they are grouped by, the figures of each group, and how many groups."""

import re
from typing import Final

from inquiry.query.characters import NAME, Characters
from inquiry.query.tree import Aggregate, Fault, Grouping

MOST_GROUPS: Final = 3
MOST_AGGREGATES: Final = 6
MOST_TOP: Final = 1_000

FUNCTIONS: Final = ("count", "distinct", "min", "max", "avg", "sum", "p50", "p90", "p95", "p99")


class Stages(Characters):
    """The reader of stages: `stages` reads all that follow the first “|”."""

    def stages(self) -> Grouping:
        names: tuple[tuple[str, int], ...] = ()
        aggregates: tuple[Aggregate, ...] = ()
        top = 0
        while self.take("|"):
            self.space()
            begun, word = self.at, NAME.match(self.text, self.at)
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
            named = NAME.match(self.text, self.at)
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
            begun, named = self.at, NAME.match(self.text, self.at)
            if named is None or named[0] not in FUNCTIONS:
                what = named[0] if named else ""
                raise Fault(
                    min(begun, len(self.text) - 1), len(what), f"One of {', '.join(FUNCTIONS)} is expected here."
                )
            self.at = named.end()
            of = ""
            if self.take("("):
                self.space()
                inner = NAME.match(self.text, self.at)
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
