"""Find the request of a set that differs where its others agree. Pure; imports no Django.

A set are requests of one shape: same tool, same rule, same names of arguments. `compare_set` makes
the table of what differs, with the outliers. `find_outliers` reports them as results of the check
`stands_out`. A value that is different in every request (a name, an id) is no outlier, and nor is
one value more or less among many.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from approvals.checks import argument_names
from approvals.checks.check_results import CheckResult, Compared
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.quantities import Quantity, parse_quantity
from approvals.policies.engine import is_production_name
from db import long_numbers
from web import untrusted_text

STANDS_OUT: Final = "stands_out"
MIN_OTHERS: Final = 3  # fewer others are no majority
MAX_SET: Final = 25  # requests that are compared with one another
SHOWN_CHARACTERS: Final = 48  # of a value in a sentence
_NEAR_US: Final = 3600 * 1_000_000
_SHARE: Final = 0.85  # of the others that must agree
_FAR: Final = 10  # times the median of the others
_RATIO, _DEVIATIONS = 4, 8  # or so many times the median, and so many deviations above it
_MAX_LEAVES, _MAX_DEPTH = 60, 4  # of one request
_SHORT: Final = 28  # characters of CheckResult.short
_NAME_CHARACTERS: Final = 200  # of a value in which the word production counts
_READ_CHARACTERS: Final = 2048  # of a value that is searched for domains and switches

_PLAIN_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_-]{1,31}")
_PRODUCTION: Final = re.compile(r"(?<![a-z0-9])(?:prod|production|prd)(?![a-z])", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(?<=[^\s@<>,;])@([\w-]+(?:\.[\w-]+)*\.[^\W\d_][\w-]*)")
_HOST: Final = re.compile(r"[a-z][a-z0-9+.-]{1,15}://(?:[^\s/@]*@)?([^\s/:?#\"']+)", re.IGNORECASE)
_SWITCH: Final = re.compile(
    r"(?<!\S)--?(account|cluster|context|database|db|env|environment|host|kube-context|namespace"
    r"|owner|profile|project|region|subscription|tenant|workspace|zone)(?:=|\s+)([^\s;&|]+)"
)
_ADDRESS_OF_NETWORK: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?")
_SQL_NAMES: Final = frozenset(("sql", "query", "statement"))
_CHANGES_ROWS: Final = re.compile(r"\s*(?:delete\s+from|update\s+\S+\s+set)\b", re.IGNORECASE)
_WHERE: Final = re.compile(r"\bwhere\b", re.IGNORECASE)
_BOUND, _UNBOUND = "with WHERE", "without WHERE"
_FETCHING: Final = frozenset(("http", "https"))  # schemes whose hosts differ from page to page


class Difference(NamedTuple):
    """What one request has and its others do not. All but `level` and `alike` is agent text."""

    path: str
    name: str
    value: str
    others: str  # what the others have: staging-eu-2, or 20 to 40
    alike: int  # how many others
    level: str


@dataclass(frozen=True, slots=True)
class SetColumn:
    """One argument or part of the target, with its text in each request; None if not provided.

    `common` is the value of most requests; such cells are muted. `outlying` are the differences by
    number of the request.
    """

    path: str
    name: str
    texts: tuple[str | None, ...]
    common: str | None
    is_number: bool
    outlying: Mapping[int, tuple[Difference, ...]]

    @property
    def is_same(self) -> bool:
        """True if all requests have this value."""
        return len(set(self.texts)) == 1

    @property
    def is_distinct(self) -> bool:
        """True if every request has a value of its own: a name, an id."""
        return len(set(self.texts)) == len(self.texts) and None not in self.texts


@dataclass(frozen=True, slots=True)
class RequestSet:
    """Requests side by side: what is the same in all, and the columns of what differs."""

    gates: tuple[UUID, ...]
    same: tuple[SetColumn, ...]
    columns: tuple[SetColumn, ...]
    outliers: Mapping[UUID, tuple[Difference, ...]]


def build_shape(request: CheckedRequest) -> tuple[Any, ...]:
    """Return what requests must share to be compared: tool, rule, names of arguments."""
    arguments = request.arguments
    names = tuple(sorted(arguments)) if isinstance(arguments, dict) else type(arguments).__name__
    return request.tool, request.policy_set, request.rule, names


def find_outliers(
    requests: Sequence[CheckedRequest], siblings: Sequence[CheckedRequest] = ()
) -> Iterator[tuple[CheckedRequest, CheckResult]]:
    """Yield each of `requests` that stands out in its set, with one result. Pure.

    A set are requests and siblings of one shape in one session. A session with too few of them is
    compared with what the same agent requested within an hour.
    """
    gates = {request.gate for request in requests}
    by_agent: dict[tuple[Any, ...], list[CheckedRequest]] = {}
    for request in sorted([*requests, *siblings], key=lambda request: request.opened_position):
        by_agent.setdefault((request.agent, build_shape(request)), []).append(request)
    for listed in by_agent.values():
        if len(listed) <= MIN_OTHERS:
            continue
        by_session: dict[UUID, list[CheckedRequest]] = {}
        for request in listed:
            by_session.setdefault(request.session, []).append(request)
        for own in by_session.values():
            reported = [request for request in own if request.gate in gates]
            if not reported:
                continue
            if len(own) > MIN_OTHERS:
                yield from _report_outliers(own, reported)
                continue
            since, until = own[0].requested_at_us - _NEAR_US, own[-1].requested_at_us + _NEAR_US
            near = [other for other in listed if since <= other.requested_at_us <= until]
            if len(near) > MIN_OTHERS:
                yield from _report_outliers(near, reported)


def _report_outliers(
    listed: Sequence[CheckedRequest], reported: Sequence[CheckedRequest]
) -> Iterator[tuple[CheckedRequest, CheckResult]]:
    """Compare in windows of MAX_SET, so that the time grows with the number of requests only."""
    gates = {request.gate: request for request in reported}
    for start in range(0, len(listed), MAX_SET):
        window = listed[max(0, min(start, len(listed) - MAX_SET)) :][:MAX_SET]
        if not any(request.gate in gates for request in window):
            continue
        for gate, differences in _find_differences(window).items():
            if (request := gates.pop(gate, None)) is not None:
                yield request, build_outlier_result(differences)


def build_outlier_result(differences: Sequence[Difference]) -> CheckResult:
    """Build the result of a request with these differences, the gravest first."""
    first = differences[0]
    others = f"{first.alike} other{'s' if first.alike > 1 else ''} like it"
    verb = "have" if first.alike > 1 else "has"
    short = f"stands out: {first.name}"
    return CheckResult(
        check=STANDS_OUT,
        level=first.level,
        short=short if len(short) <= _SHORT else "stands out",
        title=f"Stands out: {first.name} {_cut_value(first.value)}.",
        sentence=f"{others} {verb} {_cut_value(first.others)}; this one {_cut_value(first.value)}.",
        concerns=first.path,
        compared=tuple(
            line
            for difference in differences[1:3]
            for line in (
                Compared("also", f"{difference.name} {_cut_value(difference.value)}"),
                Compared("others", _cut_value(difference.others)),
            )
        ),
    )


def compare_set(requests: Sequence[CheckedRequest]) -> RequestSet:
    """Compare requests side by side: a few ms for 25 requests with 30 arguments each."""
    columns = [
        _compare_column(path, values, requests) for path, values in _iterate_columns(requests)
    ]
    return RequestSet(
        gates=tuple(request.gate for request in requests),
        same=tuple(column for column in columns if column.is_same),
        columns=tuple(column for column in columns if not column.is_same),
        outliers=_sort_differences(requests, [column.outlying for column in columns]),
    )


def _find_differences(
    requests: Sequence[CheckedRequest],
) -> Mapping[UUID, tuple[Difference, ...]]:
    """Return RequestSet.outliers alone, at half the cost of the whole table."""
    outlying = [
        _find_outlying(path, values, tuple(map(_describe_cell, values)), requests)
        for path, values in _iterate_columns(requests)
    ]
    return _sort_differences(requests, outlying)


def _iterate_columns(requests: Sequence[CheckedRequest]) -> Iterator[tuple[str, list[Any]]]:
    leaves = [_flatten_request(request) for request in requests]
    for path in dict.fromkeys(path for values in leaves for path in values):
        yield path, [read.get(path, _ABSENT) for read in leaves]


def _sort_differences(
    requests: Sequence[CheckedRequest],
    columns: Iterable[Mapping[int, tuple[Difference, ...]]],
) -> dict[UUID, tuple[Difference, ...]]:
    outliers: dict[UUID, list[Difference]] = {}
    for outlying in columns:
        for number, differences in outlying.items():
            outliers.setdefault(requests[number].gate, []).extend(differences)
    return {
        gate: tuple(sorted(listed, key=lambda each: each.level != "danger"))
        for gate, listed in outliers.items()
    }


def _cut_value(text: str) -> str:
    return untrusted_text.cut_middle(text, SHOWN_CHARACTERS)


class _Absent:
    """No value."""


_ABSENT: Final = _Absent()


def _flatten_request(request: CheckedRequest) -> dict[str, Any]:
    """Return the arguments and the target by dot path, in the order of the agent."""
    values: dict[str, Any] = {}
    for path, value in _iterate_leaves("arguments", request.arguments, 0):
        if len(values) == _MAX_LEAVES:
            break
        values[path] = value
    target = {
        "repository": request.repository,
        "ref": request.ref,
        "ref_class": request.ref_class,
        "environment": request.environment,
        "resource": request.resource,
    }
    values |= {f"target.{name}": value for name, value in target.items() if value}
    return values | {"request.reversibility": request.reversibility}


def _iterate_leaves(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value and depth < _MAX_DEPTH:
        for name, part in value.items():
            yield from _iterate_leaves(f"{path}.{name}", part, depth + 1)
    elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        yield from _iterate_leaves(f"{path}.0", value[0], depth + 1)
    elif value is not None:
        yield path, value


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return long_numbers.to_json_bytes(value, orjson.OPT_SORT_KEYS).decode()


def _describe_cell(value: Any) -> str | None:
    return None if value is _ABSENT else _format_value(value)


def _name_column(path: str) -> str:
    return path.partition(".")[2].removesuffix(".0") or path


def _compare_column(
    path: str, values: Sequence[Any], requests: Sequence[CheckedRequest]
) -> SetColumn:
    texts = tuple(map(_describe_cell, values))
    common, count = Counter(texts).most_common(1)[0]
    quantities = (
        parse_quantity(value, request.requested_at_us)
        for value, request in zip(values, requests, strict=True)
    )
    return SetColumn(
        path=path,
        name=_name_column(path),
        texts=texts,
        common=common if 2 * count > len(texts) else None,
        is_number=all(quantity is not None and not quantity.is_age for quantity in quantities),
        outlying=_find_outlying(path, values, texts, requests),
    )


def _find_outlying(
    path: str,
    values: Sequence[Any],
    texts: Sequence[str | None],
    requests: Sequence[CheckedRequest],
) -> dict[int, tuple[Difference, ...]]:
    """Return the difference of each request that stands out in one column, by its number."""
    outlying: dict[int, tuple[Difference, ...]] = {}
    if len(texts) > MIN_OTHERS and texts.count(texts[0]) < len(texts):
        name = _name_column(path)
        for difference_by_row in (
            _compare_categories(path, name, values, texts),
            _compare_magnitudes(path, name, values, texts, requests),
        ):
            for number, difference in difference_by_row:
                outlying.setdefault(number, (difference,))
    return outlying


# --- values of a kind --------------------------------------------------------------------------


class _Reading(NamedTuple):
    """One way to read a column: its name, each row's value ("" for none), its level."""

    name: str
    words: Sequence[str]
    shown: Sequence[str]
    level: Callable[[str, str], str]  # of a value against the common one


def _compare_categories(
    path: str, name: str, values: Sequence[Any], texts: Sequence[str | None]
) -> Iterator[tuple[int, Difference]]:
    for reading in _read_column(path, name, values, texts):
        counts = Counter(reading.words)
        if not 1 < len(counts) < len(reading.words):
            continue
        for number, word in enumerate(reading.words):
            common, count = _count_others(counts, word)
            if common == word or count < max(MIN_OTHERS, _SHARE * (len(reading.words) - 1)):
                continue
            if level := reading.level(word, common):
                others = next(
                    shown
                    for shown, other in zip(reading.shown, reading.words, strict=True)
                    if other == common
                )
                difference = Difference(
                    path, reading.name, reading.shown[number], others, count, level
                )
                yield number, difference


def _count_others(counts: Counter[str], word: str) -> tuple[str, int]:
    """Return the most common word of the other rows and its number."""
    return max(
        ((other, count - (other == word)) for other, count in counts.items()),
        key=lambda pair: pair[1],
    )


def _read_column(
    path: str, name: str, values: Sequence[Any], texts: Sequence[str | None]
) -> Iterator[_Reading]:
    words = argument_names.split_name(path.rpartition(".")[2] if not path.endswith(".0") else name)
    plain = [text or "" for text in texts]
    shown = [text if text is not None else "not provided" for text in texts]
    if path == "request.reversibility":
        yield _Reading(name, plain, shown, _grade_reversibility)
        return
    if all(isinstance(value, bool | _Absent) for value in values):
        states = ["true" if value is True else "" for value in values]
        if words & argument_names.HARMLESS:
            states = [text or "false" for text in plain]
            yield _Reading(name, states, states, lambda word, _: "danger" * (word == "false"))
        elif words & (argument_names.DESTRUCTIVE | argument_names.RISKY):
            grave = "danger" if words & argument_names.DESTRUCTIVE else "warning"
            named = [text or "false" for text in states]
            yield _Reading(name, states, named, lambda word, _: grave if word else "")
        return
    heads = [text[:_READ_CHARACTERS] for text in plain]
    if words & _SQL_NAMES:
        bounds = [_read_bound(head) for head in heads]
        yield _Reading(name, bounds, bounds, _grade_bound)
    if words & argument_names.PROSE:
        return
    if all(map(_ADDRESS_OF_NETWORK.fullmatch, heads)):
        networks = [".".join(head.split(".")[:2]) for head in heads]
        yield _Reading(f"{name} network", networks, heads, lambda *_: "warning")
    if any("@" in head for head in heads):
        domains = [_join_matches(_ADDRESS, head) for head in heads]
        yield _Reading(f"{name} domain", domains, _shown(domains), _grade_word)
    if any("://" in head for head in heads):
        hosts = [_join_hosts(head) for head in heads]
        yield _Reading(f"{name} host", hosts, _shown(hosts), _grade_word)
    switches = (match for head in heads if "-" in head for match in _SWITCH.finditer(head))
    for switch in dict.fromkeys(match[1] for match in switches):
        settings = [
            ", ".join(match[2] for match in _SWITCH.finditer(head) if match[1] == switch)
            for head in heads
        ]
        yield _Reading(f"{name} --{switch}", settings, _shown(settings), _grade_word)
    if is_category(words) or is_enumeration(words, values):
        yield _Reading(name, [head.casefold() for head in heads], shown, _grade_word)
    named = ["production" if _names_production(head) else "" for head in heads]
    if "production" in named:
        labels = [
            text if word else "no production" for text, word in zip(shown, named, strict=True)
        ]
        yield _Reading(name, named, labels, lambda word, _: "danger" if word else "")


def _read_bound(text: str) -> str:
    """Return whether a statement that changes rows names which ones; "" for other texts."""
    if _CHANGES_ROWS.match(text) is None:
        return ""
    return _BOUND if _WHERE.search(text) else _UNBOUND


def is_category(words: frozenset[str]) -> bool:
    """Return True if a name says where or for whom: cluster, account_id; not cluster_version."""
    numbers = argument_names.NO_MAGNITUDES - {"id"}
    return bool(words & argument_names.CATEGORIES) and not words & numbers


def is_enumeration(words: frozenset[str], values: Sequence[Any]) -> bool:
    """Return True if all rows have a plain word, and all but one the same."""
    return (
        len(values) > MIN_OTHERS + 1
        and not words & (argument_names.NAMES | argument_names.NO_MAGNITUDES)
        and all(isinstance(value, str) and _PLAIN_WORD.fullmatch(value) for value in values)
        and Counter(values).most_common(1)[0][1] == len(values) - 1
    )


def _names_production(text: str) -> bool:
    """Return True if a name, path or one-line command has a word for production."""
    return len(text) <= _NAME_CHARACTERS and "\n" not in text and bool(_PRODUCTION.search(text))


def _shown(words: Sequence[str]) -> list[str]:
    return [word or "none" for word in words]


def _join_matches(pattern: re.Pattern[str], text: str) -> str:
    return ", ".join(sorted({match[1].casefold() for match in pattern.finditer(text)}))


def _join_hosts(text: str) -> str:
    """Return the hosts of URLs that name a system; pages to read are from anywhere."""
    hosts = {
        match[1].casefold()
        for match in _HOST.finditer(text)
        if match[0].partition(":")[0].lower() not in _FETCHING
    }
    return ", ".join(sorted(hosts))


def _grade_word(word: str, common: str) -> str:
    """Return the level of a value against the common one; an absent value is none."""
    if not word or not common:
        return ""
    return "danger" if is_production_name(word) and not is_production_name(common) else "warning"


def _grade_bound(word: str, common: str) -> str:
    return "danger" if (word, common) == (_UNBOUND, _BOUND) else ""


def _grade_reversibility(word: str, common: str) -> str:
    order = ("read", "reversible", "compensable", "irreversible")
    if word not in order or common not in order or order.index(word) < order.index(common):
        return ""
    return "danger" if word == "irreversible" else "warning"


# --- magnitudes --------------------------------------------------------------------------------


def _compare_magnitudes(
    path: str,
    name: str,
    values: Sequence[Any],
    texts: Sequence[str | None],
    requests: Sequence[CheckedRequest],
) -> Iterator[tuple[int, Difference]]:
    words = argument_names.split_name(path.rpartition(".")[2])
    if words & argument_names.NO_MAGNITUDES or words & argument_names.PROSE:
        return
    if words & (argument_names.RECIPIENTS | argument_names.MAGNITUDES) and all(
        isinstance(value, list) for value in values
    ):
        quantities: list[Quantity | None] = [
            Quantity(float(len(value)), "entry") for value in values
        ]
        texts = [f"{len(value)} entries" for value in values]
    else:
        quantities = [
            parse_quantity(value, request.requested_at_us)
            for value, request in zip(values, requests, strict=True)
        ]
    numbers = [
        (number, quantity)
        for number, quantity in enumerate(quantities)
        if quantity is not None and (quantity.dimension or words & argument_names.MAGNITUDES)
    ]
    dimensions = Counter(quantity.dimension for _, quantity in numbers)
    for number, quantity in numbers:
        common, count = _count_others(dimensions, quantity.dimension)
        near = sorted(
            (abs(other.number), at)
            for at, other in numbers
            if at != number and other.dimension == quantity.dimension
        )
        if common != quantity.dimension and count >= max(MIN_OTHERS, _SHARE * (len(texts) - 1)):
            if common.startswith("money ") and quantity.dimension.startswith("money "):
                currency, usual = quantity.dimension[6:], common[6:]
                yield (
                    number,
                    Difference(path, f"{name} currency", currency, usual, count, "warning"),
                )
            continue
        if len(near) < max(MIN_OTHERS, _SHARE * (len(texts) - 1)):
            continue
        others, ages = (
            [value for value, _ in near],
            quantity.is_age or bool(words & argument_names.AGES),
        )
        if not ages and is_far(abs(quantity.number), others):
            range_text = _describe_range(near, texts, quantities)
        elif ages and is_young(quantity.number, others):
            least = _short_quantity(near[0][1], texts, quantities)
            range_text = least if near[0][0] == near[-1][0] else f"{least} or more"
        else:
            continue
        value = texts[number] or ""
        if quantity.is_age and not quantity.unit:
            value = f"{value} ({_format_age(quantity.number)})"
        yield number, Difference(path, name, value, range_text, len(near), "warning")


def is_far(value: float, others: Sequence[float]) -> bool:
    """Return True if `value` lies far above its sorted others.

    The largest sixth of the others is left out, so that two outliers do not hide each other.
    """
    core = others[: max(MIN_OTHERS, ceil(len(others) * _SHARE))]
    middle = median(core)
    if value <= 2 * core[-1] or value * middle <= core[-1] * core[-1]:
        return False  # no farther from the largest than that is from the middle
    if value > _FAR * middle:
        return value >= _FAR
    deviation = 1.4826 * median(abs(other - middle) for other in core)
    return (
        len(core) > MIN_OTHERS
        and value >= _FAR
        and value > _RATIO * middle
        and value > middle + _DEVIATIONS * deviation
    )


def is_young(age: float, others: Sequence[float]) -> bool:
    """Return True if an age lies far below its sorted others: used a moment ago."""
    core = others[len(others) - max(MIN_OTHERS, ceil(len(others) * _SHARE)) :]
    return 0 <= age < core[0] / 2 and age < median(core) / _FAR


def _describe_range(
    near: Sequence[tuple[float, int]],
    texts: Sequence[str | None],
    quantities: Sequence[Quantity | None],
) -> str:
    """Return the range of the others, with one unit if it is the same: 20 to 40 GiB."""
    (_, least), (_, most) = near[0], near[-1]
    first, last = (_short_quantity(at, texts, quantities) for at in (least, most))
    if near[0][0] == near[-1][0]:
        return first
    units = [quantity.unit for at in (least, most) if (quantity := quantities[at]) is not None]
    if units and units[0] == units[-1]:
        first = first.removesuffix(units[0]).rstrip()
    return f"{first} to {last}"


def _short_quantity(
    at: int, texts: Sequence[str | None], quantities: Sequence[Quantity | None]
) -> str:
    quantity = quantities[at]
    if quantity is not None and quantity.is_age and not quantity.unit:
        return _format_age(quantity.number)
    return (texts[at] or "").strip()


def _format_age(age_s: float) -> str:
    size, unit = next(
        (size, unit)
        for size, unit in ((86_400, "days"), (3600, "h"), (60, "min"), (1, "s"))
        if age_s >= size or size == 1
    )
    return f"{age_s / size:.0f} {unit} ago"
