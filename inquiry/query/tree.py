"""The tree that a query is read into: its parts know where they stand in the text. Knows no field and no database."""

from dataclasses import dataclass


class Fault(ValueError):
    """What is wrong with a query: `at` is the first character it is about (from 0), `length` how many; a sentence."""

    def __init__(self, at: int, length: int, sentence: str) -> None:
        super().__init__(sentence)
        self.at, self.length, self.sentence = at, max(length, 1), sentence


@dataclass(frozen=True, slots=True)
class One:
    """A value as it was written. `form` is word, quoted or field (`@name`); `prefix` when a `*` followed the word."""

    text: str
    at: int
    form: str = "word"
    prefix: bool = False
    differs: bool = False  # !@name


@dataclass(frozen=True, slots=True)
class Term:
    """`field:value`. Either `values` (any of them) or a range of `low` to `high`, of which one may be open."""

    name: str
    at: int
    end: int
    operator: str = ""
    values: tuple[One, ...] = ()
    low: One | None = None
    high: One | None = None

    @property
    def is_range(self) -> bool:
        return not self.values


@dataclass(frozen=True, slots=True)
class Words:
    """Words to be found in the text of an effect: whole words, the last one a beginning where `prefix`."""

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
    """`any(effect: …)`: all conditions hold on one row. `count` is compared with `number`."""

    quantifier: str
    entity: str
    condition: "Node | None"
    at: int
    end: int
    operator: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A kind of entry that follows the step before, or is absent; within `within` after it where that is said."""

    kind: str
    at: int
    absent: bool = False
    within: One | None = None


@dataclass(frozen=True, slots=True)
class Seq:
    steps: tuple[Step, ...]
    at: int
    end: int


Node = Term | Words | Not | And | Or | Scope | Seq


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count` (of no field) or a function of a field."""

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
    """A query as it was read. `condition` is None where everything is asked for."""

    text: str
    entity: str
    condition: Node | None = None
    grouping: Grouping | None = None
    asof: One | None = None
    entity_is_named: bool = False
    entity_end: int = 0  # where its conditions may begin
    conditions_end: int = 0  # … and where they end, before the first `|`
