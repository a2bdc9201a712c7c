"""What a rule can ask of globs and of arguments. Pure and deterministic; knows no Django.

A predicate answers true or false, or raises `Unclear` where the question makes no sense for what was sent: is a text
less than five? Nobody is let through by sending another kind of value than the rule speaks of.
"""

import fnmatch
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

OPERATORS: Final = (
    "eq",
    "ne",
    "in",
    "lt",
    "lte",
    "gt",
    "gte",
    "exists",
    "contains",
    "prefix",
    "cidr",
)
ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "lt": lambda value, limit: bool(value < limit),
    "lte": lambda value, limit: bool(value <= limit),
    "gt": lambda value, limit: bool(value > limit),
    "gte": lambda value, limit: bool(value >= limit),
}
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_MISSING: Final = object()
_REMEMBERED: Final = 128


class Unclear(Exception):
    """A predicate cannot be answered; the message is half a sentence that repeats nothing of what was sent."""


def globs(patterns: Iterable[str]) -> Callable[[str], bool]:
    """A function that is true for a text which one of `patterns` covers whole. `*` also crosses `/`; case counts."""
    wanted = list(patterns)
    if "*" in wanted:
        return lambda _text: True
    exact = frozenset(pattern for pattern in wanted if not any(sign in pattern for sign in "*?["))
    rest = [fnmatch.translate(pattern) for pattern in wanted if pattern not in exact]
    if not rest:
        return exact.__contains__
    covers = re.compile("|".join(rest)).match
    # The same few names come again and again; remembering them costs a fourth of matching them.
    return lru_cache(maxsize=_REMEMBERED)(lambda text: text in exact or covers(text) is not None)


def predicate(wanted: Mapping[str, Any], *, allows: bool) -> Callable[[Any], bool]:
    """The function of arguments that one entry of `match.arguments` is: {path, and exactly one operator}.

    A missing argument is equal to nothing. So `ne` holds for it, but not in a rule that allows: such a rule lets pass
    only what it has seen.
    """
    path = tuple(str(wanted["path"]).split("."))
    name = next(key for key in wanted if key != "path")
    operand = wanted[name]
    if name == "exists":
        return lambda arguments: (_at(arguments, path) is not _MISSING) == operand
    test = _TESTS[name](operand)
    missing = name == "ne" and not allows

    def holds(arguments: Any) -> bool:
        value = _at(arguments, path)
        return missing if value is _MISSING else test(value)

    return holds


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    """What stands at a dot path; numbers count the items of a list from 0."""
    value = arguments
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif (
            isinstance(value, list)
            and step.isascii()
            and step.isdigit()
            and len(step) < 7
            and int(step) < len(value)
        ):
            value = value[int(step)]
        else:
            return _MISSING
    return value


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"


def _same(value: Any, operand: Any) -> bool:
    """Equality of one kind; null is equal to null alone and comparable with everything."""
    if value is None or operand is None:
        return value is operand
    if _kind(value) != _kind(operand):
        raise Unclear(f"is {_kind(value)} where the rule has {_kind(operand)}")
    return bool(value == operand)


def _equal(operand: Any) -> Callable[[Any], bool]:
    return lambda value: _same(value, operand)


def _unequal(operand: Any) -> Callable[[Any], bool]:
    return lambda value: not _same(value, operand)


def _within(operand: list[Any]) -> Callable[[Any], bool]:
    kinds = {_kind(one) for one in operand}

    def test(value: Any) -> bool:
        if value is not None and _kind(value) not in kinds:
            raise Unclear(f"is {_kind(value)}, of which the rule's list has none")
        return any(_kind(one) == _kind(value) and one == value for one in operand)

    return test


def _ordered(name: str) -> Callable[[Any], Callable[[Any], bool]]:
    compare = ORDERED[name]

    def make(limit: Any) -> Callable[[Any], bool]:
        def test(value: Any) -> bool:
            if _kind(value) != "a number":
                raise Unclear(f"is {_kind(value)}, which is neither more nor less than a number")
            return compare(value, limit)

        return test

    return make


def _contains(operand: Any) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        if isinstance(value, str) and isinstance(operand, str):
            return operand in value
        if isinstance(value, list):
            return any(_kind(one) == _kind(operand) and one == operand for one in value)
        raise Unclear(f"is {_kind(value)}, which cannot contain {_kind(operand)}")

    return test


def _prefix(operand: str) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        if not isinstance(value, str):
            raise Unclear(f"is {_kind(value)}, which begins with nothing")
        return value.startswith(operand)

    return test


def _cidr(operand: list[str]) -> Callable[[Any], bool]:
    networks = [ipaddress.ip_network(one) for one in operand]

    def test(value: Any) -> bool:
        try:
            address = ipaddress.ip_address(value if isinstance(value, str) else "")
        except ValueError:
            raise Unclear("is no address of the Internet") from None
        return any(one in network for one in _spellings(address) for network in networks)

    return test


def _spellings(address: Address) -> Iterator[Address]:
    """The address, and the IPv4 address of the same machine that it may carry (mapped, 6to4 or NAT64)."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        yield from filter(None, (address.ipv4_mapped, address.sixtofour))
        if address in _NAT64:
            yield ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)


_TESTS: Final[dict[str, Callable[[Any], Callable[[Any], bool]]]] = {
    "eq": _equal,
    "ne": _unequal,
    "in": _within,
    **{name: _ordered(name) for name in ORDERED},
    "contains": _contains,
    "prefix": _prefix,
    "cidr": _cidr,
}
