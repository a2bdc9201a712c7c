"""Parse the aggregation of a query: group fields, aggregates and the number of groups."""

import re
from typing import Final

from investigation.query.parser.ast import Aggregate, Grouping, QueryError
from investigation.query.parser.scanner import NAME, Scanner

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
