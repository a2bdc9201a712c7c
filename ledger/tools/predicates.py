"""Compiled matchers of globs and argument predicates. Pure; imports no Django.

A predicate returns true or false, or raises `PredicateError` if the value has another type than the
rule expects, such as text compared with a number. A value of an unexpected type never lets an
effect pass.
"""

import fnmatch
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

ARGUMENT_OPERATORS: Final = (
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
ORDER_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "lt": lambda value, limit: bool(value < limit),
    "lte": lambda value, limit: bool(value <= limit),
    "gt": lambda value, limit: bool(value > limit),
    "gte": lambda value, limit: bool(value >= limit),
}
IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_MISSING: Final = object()
_CACHE_SIZE: Final = 128


class PredicateError(Exception):
    """A predicate cannot be evaluated.

    The message is half a sentence that repeats none of the agent's values.
    """


def compile_globs(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a predicate: true if one of `patterns` matches the whole text.

    `*` also matches `/`; matching is case-sensitive.
    """
    pattern_list = list(patterns)
    if "*" in pattern_list:
        return lambda _text: True
    exact = frozenset(
        pattern for pattern in pattern_list if not any(sign in pattern for sign in "*?[")
    )
    rest = [fnmatch.translate(pattern) for pattern in pattern_list if pattern not in exact]
    if not rest:
        return exact.__contains__
    covers = re.compile("|".join(rest)).match
    # The same few names repeat; a cache lookup costs 25 % of a match.
    return lru_cache(maxsize=_CACHE_SIZE)(lambda text: text in exact or covers(text) is not None)


def compile_predicate(entry: Mapping[str, Any], *, allows: bool) -> Callable[[Any], bool]:
    """Compile one entry of `match.arguments`: {path, and exactly one operator}.

    A missing argument is equal to nothing. So `ne` holds for it, but not in a rule that allows:
    such a rule needs the argument.
    """
    path = tuple(str(entry["path"]).split("."))
    name = next(key for key in entry if key != "path")
    operand = entry[name]
    if name == "exists":
        return lambda arguments: (_value_at(arguments, path) is not _MISSING) == operand
    test = _COMPILERS[name](operand)
    missing = name == "ne" and not allows

    def holds(arguments: Any) -> bool:
        value = _value_at(arguments, path)
        return missing if value is _MISSING else test(value)

    return holds


def _value_at(arguments: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a dot path; numbers index the items of a list from 0."""
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


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"


def _is_equal(value: Any, operand: Any) -> bool:
    """True if equal and of one type; null can be compared with every type."""
    if value is None or operand is None:
        return value is operand
    if _type_name(value) != _type_name(operand):
        raise PredicateError(f"is {_type_name(value)} where the rule has {_type_name(operand)}")
    return bool(value == operand)


def _equal(operand: Any) -> Callable[[Any], bool]:
    return lambda value: _is_equal(value, operand)


def _unequal(operand: Any) -> Callable[[Any], bool]:
    return lambda value: not _is_equal(value, operand)


def _within(operand: list[Any]) -> Callable[[Any], bool]:
    kinds = {_type_name(item) for item in operand}

    def test(value: Any) -> bool:
        if value is not None and _type_name(value) not in kinds:
            raise PredicateError(f"is {_type_name(value)}, and the rule's list has no such value")
        return any(_type_name(item) == _type_name(value) and item == value for item in operand)

    return test


def _ordered(name: str) -> Callable[[Any], Callable[[Any], bool]]:
    compare = ORDER_OPERATORS[name]

    def make(limit: Any) -> Callable[[Any], bool]:
        def test(value: Any) -> bool:
            if _type_name(value) != "a number":
                raise PredicateError(
                    f"is {_type_name(value)}, which cannot be compared with a number"
                )
            return compare(value, limit)

        return test

    return make


def _contains(operand: Any) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        if isinstance(value, str) and isinstance(operand, str):
            return operand in value
        if isinstance(value, list):
            return any(
                _type_name(item) == _type_name(operand) and item == operand for item in value
            )
        raise PredicateError(f"is {_type_name(value)}, which cannot contain {_type_name(operand)}")

    return test


def _prefix(operand: str) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        if not isinstance(value, str):
            raise PredicateError(f"is {_type_name(value)}, which has no prefix")
        return value.startswith(operand)

    return test


def _cidr(operand: list[str]) -> Callable[[Any], bool]:
    networks = [ipaddress.ip_network(item) for item in operand]

    def test(value: Any) -> bool:
        try:
            address = ipaddress.ip_address(value if isinstance(value, str) else "")
        except ValueError:
            raise PredicateError("is not an IP address") from None
        return any(
            candidate in network
            for candidate in _with_embedded_ipv4(address)
            for network in networks
        )

    return test


def _with_embedded_ipv4(address: IPAddress) -> Iterator[IPAddress]:
    """Return the address, and any embedded IPv4 address (mapped, 6to4 or NAT64)."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        yield from filter(None, (address.ipv4_mapped, address.sixtofour))
        if address in _NAT64:
            yield ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)


_COMPILERS: Final[dict[str, Callable[[Any], Callable[[Any], bool]]]] = {
    "eq": _equal,
    "ne": _unequal,
    "in": _within,
    **{name: _ordered(name) for name in ORDER_OPERATORS},
    "contains": _contains,
    "prefix": _prefix,
    "cidr": _cidr,
}
