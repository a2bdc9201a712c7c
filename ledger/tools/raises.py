"""Conditions of a tool declaration on arguments that raise its severity. Pure.

A condition can only raise: class, reversibility and risk never become laxer by an argument. A value
that cannot be compared, and arguments that are not known, count as if the condition held.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ledger.states import REVERSIBILITIES, RISKS, TOOL_CLASSES
from ledger.tools.predicates import PredicateError, compile_predicate

# Key of a condition -> its words from the mildest.
RAISED_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "class": TOOL_CLASSES,
    "reversibility": REVERSIBILITIES,
    "risk": RISKS,
}
_VERBS: Final = {
    "eq": "is",
    "ne": "is not",
    "in": "is one of",
    "lt": "is below",
    "lte": "is at most",
    "gt": "is above",
    "gte": "is at least",
    "contains": "contains",
    "prefix": "begins with",
    "cidr": "is an address in",
}


@dataclass(frozen=True, slots=True)
class RaiseCondition:
    """One compiled condition; `sentence` says when it holds: delete_volumes is true."""

    path: str
    sentence: str
    holds: Callable[[Any], bool]
    words: tuple[tuple[str, str], ...] = ()  # (key of RAISED_KEYS, word)

    @property
    def raised_words(self) -> tuple[str, ...]:
        """What it raises to, as pages show it: class opaque, irreversible, critical risk."""
        return tuple(_describe_word(key, word) for key, word in self.words)


@dataclass(frozen=True, slots=True)
class RaisedSeverity:
    """What the arguments of one call raise; empty words raise nothing.

    `reasons` are (word, sentence) of each raise that changes something, as pages show them.
    """

    tool_class: str = ""
    reversibility: str = ""
    risk: str = ""
    reasons: tuple[tuple[str, str], ...] = ()


NOTHING_RAISED: Final = RaisedSeverity()


def compile_raises(entries: Sequence[Mapping[str, Any]]) -> tuple[RaiseCondition, ...]:
    """Compile the conditions that ledger/tools/tools_yaml.py read.

    A condition that cannot be read, which only an imported bundle can have, always raises.
    """
    conditions = []
    for entry in entries:
        try:
            conditions.append(_compile_raise(entry))
        except Exception:  # no fault may keep a severity low
            conditions.append(_UNREADABLE)
    return tuple(conditions)


def _compile_raise(entry: Mapping[str, Any]) -> RaiseCondition:
    predicate = {key: value for key, value in entry.items() if key not in RAISED_KEYS}
    for key, order in RAISED_KEYS.items():
        if entry.get(key, order[0]) not in order:
            raise ValueError(f"{key} is not known")
    return RaiseCondition(
        path=entry["path"],
        sentence=describe_predicate(predicate),
        holds=compile_predicate(predicate, allows=False),
        words=tuple((key, entry[key]) for key in RAISED_KEYS if key in entry),
    )


_UNREADABLE: Final = RaiseCondition(
    "?",
    "a condition cannot be read",
    lambda _arguments: True,
    tuple((key, order[-1]) for key, order in RAISED_KEYS.items()),
)


def describe_predicate(predicate: Mapping[str, Any]) -> str:
    """Return when a predicate holds: amount is above 1000."""
    path = predicate["path"]
    name, operand = next((key, value) for key, value in predicate.items() if key != "path")
    if name == "exists":
        return f"{path} is {'given' if operand else 'missing'}"
    items = operand if isinstance(operand, list) else [operand]
    return f"{path} {_VERBS[name]} {', '.join(map(_format_operand, items))}"


def _format_operand(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def evaluate_raises(conditions: Sequence[RaiseCondition], arguments: Any) -> RaisedSeverity:
    """Return what `arguments` raise; None for arguments that are not known. Never raises.

    Of several conditions that hold, the worst word of each kind counts.
    """
    if not conditions:
        return NOTHING_RAISED
    held = [
        (condition, sentence)
        for condition in conditions
        if (sentence := _find_reason(condition, arguments))
    ]
    if not held:
        return NOTHING_RAISED
    worst: dict[str, str] = {}
    for condition, _ in held:
        for key, word in condition.words:
            order = RAISED_KEYS[key]
            if key not in worst or order.index(word) > order.index(worst[key]):
                worst[key] = word
    reasons: dict[str, str] = {}
    for condition, sentence in held:
        for key, word in condition.words:
            if word == worst[key]:
                reasons.setdefault(_describe_word(key, word), sentence)
    return RaisedSeverity(
        worst.get("class", ""),
        worst.get("reversibility", ""),
        worst.get("risk", ""),
        tuple(reasons.items()),
    )


def _find_reason(condition: RaiseCondition, arguments: Any) -> str:
    """Return why a condition holds, or nothing."""
    if arguments is None:
        return "the arguments are not known"
    try:
        return condition.sentence if condition.holds(arguments) else ""
    except PredicateError as fault:
        return f"{condition.path} cannot be compared: it {fault}"
    except Exception as fault:  # no fault may keep a severity low
        return f"{condition.path} cannot be compared ({type(fault).__name__})"


def _describe_word(key: str, word: str) -> str:
    """Return a raised word as pages show it: irreversible, class opaque, critical risk."""
    return {"class": f"class {word}", "risk": f"{word} risk"}.get(key, word)
