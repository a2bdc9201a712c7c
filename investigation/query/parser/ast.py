"""The syntax tree of a query.

Nodes have their places in the text; no node knows fields or the database.
"""

from dataclasses import dataclass


class QueryError(ValueError):
    """An error in a query, with a message.

    `at` is the first character concerned (from 0) and `length` the number of characters.
    """

    def __init__(self, at: int, length: int, sentence: str) -> None:
        super().__init__(sentence)
        self.at, self.length, self.sentence = at, max(length, 1), sentence


@dataclass(frozen=True, slots=True)
class QueryValue:
    """A value as written, with its place in the text.

    `form` is word, quoted or field (`@name`); `prefix` means that a `*` followed.
    """

    text: str
    at: int
    form: str = "word"
    prefix: bool = False
    differs: bool = False  # Written as !@name.


@dataclass(frozen=True, slots=True)
class Term:
    """`field:value`. Has `values`, of which any may match, or a range from `low` to `high`.

    One end of the range may be open.
    """

    name: str
    at: int
    end: int
    operator: str = ""
    values: tuple[QueryValue, ...] = ()
    low: QueryValue | None = None
    high: QueryValue | None = None

    @property
    def is_range(self) -> bool:
        return not self.values


@dataclass(frozen=True, slots=True)
class TextWords:
    """Words that the text of an effect must contain; with `prefix`, the last one is a prefix."""

    text: str
    at: int
    end: int
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    child: "Node"


@dataclass(frozen=True, slots=True)
class And:
    children: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    children: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """`any(effect: …)`: all conditions hold for the same row. `count` is compared with `number`."""

    quantifier: str
    entity: str
    condition: "Node | None"
    at: int
    end: int
    operator: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a sequence: a kind of entry that follows the previous step.

    With `absent`, no such entry follows; `within` limits the time after the previous step.
    """

    kind: str
    at: int
    absent: bool = False
    within: QueryValue | None = None


@dataclass(frozen=True, slots=True)
class Sequence:
    steps: tuple[Step, ...]
    at: int
    end: int


Node = Term | TextWords | Not | And | Or | Scope | Sequence


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count` (without a field) or a function of a field."""

    function: str
    field: str
    at: int

    def __str__(self) -> str:
        return f"{self.function}({self.field})" if self.field else self.function


@dataclass(frozen=True, slots=True)
class Grouping:
    names: tuple[tuple[str, int], ...]
    aggregates: tuple[Aggregate, ...]
    top: int


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. `condition` is None if all rows match."""

    text: str
    entity: str
    condition: Node | None = None
    grouping: Grouping | None = None
    asof: QueryValue | None = None
    entity_end: int = 0  # Start of the conditions.
    conditions_end: int = 0  # End of the conditions, before the first `|`.
