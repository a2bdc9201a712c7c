"""Names that differ by one or two characters: pieces to find them by, and when they count. Pure.

A name is cut into thirds. Two changes leave one third as it was, so names with an equal third,
shifted by at most two characters, are all candidates; the number of differences decides.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from rapidfuzz.distance import OSA

MIN_LENGTH: Final = 6  # characters of a name that may differ by one
MIN_LENGTH_OF_TWO: Final = 9  # … by two
MIN_DIGITS: Final = 8  # in a row, of an account number
COMPARED_KINDS: Final = frozenset(
    {"domain", "account", "repository", "cluster", "bucket", "database"}
)
_USUAL_SUFFIXES: Final = (
    *("com", "net", "org", "io", "co", "eu", "de", "fr", "ch", "at", "it", "es", "nl", "pl", "uk"),
    *("co.uk", "us", "ca", "in", "ru", "co.jp", "com.au", "com.br", "info", "biz", "app", "dev"),
    *("ai", "example"),
)
_SHIFTS: Final = (-2, -1, 0, 1, 2)
_DIGITS: Final = re.compile(r"\d+")
_PARTS: Final = re.compile(r"[^\W_]+")
MAX_COLUMNS: Final = 4  # that differ between two names of one length
_SHORT_PART: Final = 4  # parts of so many characters are codes: eu and us, api and app


def compared_part(kind: str, name: str) -> str:
    """Return the part of a name whose characters are compared; "" if it is too short.

    Of a domain the part before the suffix: northwind of northwind.co.uk.
    """
    if kind not in COMPARED_KINDS:
        return ""
    part = name.split(".")[0] if kind == "domain" else name
    return part if len(part) >= MIN_LENGTH else ""


def cut_pieces(part: str) -> tuple[str, str, str]:
    """Cut a name into thirds."""
    third = len(part) // 3
    return part[:third], part[third : len(part) - third], part[len(part) - third :]


def possible_pieces(part: str) -> tuple[set[str], set[str], set[str]]:
    """Return the thirds that a name which differs from `part` by at most 2 may share with it."""
    heads, middles, tails = set[str](), set[str](), set[str]()
    for shift in _SHIFTS:
        length = len(part) + shift
        third = length // 3
        if length < MIN_LENGTH:
            continue
        heads.add(part[:third])
        tails.add(part[len(part) - third :])
        for moved in _SHIFTS:
            # Characters added before the middle and after it, together at most two.
            if abs(moved) + abs(shift + moved) <= 2 and third + moved >= 0:
                middles.add(part[third + moved : third + moved + length - 2 * third])
    return heads - {""}, middles - {""}, tails - {""}


def possible_pairs(part: str) -> tuple[set[tuple[str, str]], ...]:
    """Return the pairs of thirds that a name which differs from `part` by 1 may share with it.

    Heads with middles, middles with tails, tails with heads.
    """
    pairs = (set[tuple[str, str]](), set[tuple[str, str]](), set[tuple[str, str]]())
    for shift in (-1, 0, 1):
        length = len(part) + shift
        third = length // 3
        if length < MIN_LENGTH:
            continue
        size = length - 2 * third
        head, tail = part[:third], part[len(part) - third :]
        pairs[0].add((head, part[third : third + size]))
        pairs[1].add((part[third - shift : third - shift + size], tail))
        pairs[2].add((tail, head))
    return pairs


def count_differences(first: str, second: str, most: int = 2) -> int:
    """Count changed, missing, added and swapped characters, up to `most` + 1. About 0.2 µs."""
    return OSA.distance(first, second, score_cutoff=most)


def are_near(kind: str, first: str, second: str) -> bool:
    """Return True if a reader takes one name for the other: one or two characters differ.

    Numbered series (web-1, web-2), years, versions, short codes (prod-eu, prod-us) and short names
    are not near. Long account numbers are, even if they differ by one digit only.
    """
    if first == second:
        return False
    length = min(len(first), len(second))
    differences = count_differences(first, second)
    if length < MIN_LENGTH or differences > (1 if length < MIN_LENGTH_OF_TWO else 2):
        return False
    if replace_numbers(first) == replace_numbers(second) or _is_series(first, second):
        return kind == "account" and _has_long_numbers(first, second)
    if kind == "repository" and differences == 1 and _has_near_owner(first, second):
        return True
    return not _differ_by_codes(first, second)


def replace_numbers(part: str) -> str:
    """Return a name with a sign for each number: names of a series are then equal."""
    return _DIGITS.sub("#", part)


def has_swapped_pair(first: str, second: str) -> bool:
    """Return True if two neighbouring characters are swapped, and nothing else differs."""
    own, other = find_marks(first, second)
    return (
        own == other
        and len(own) == 2
        and own[1] == own[0] + 1
        and first[own[0]] + first[own[1]] == second[own[1]] + second[own[0]]
    )


def find_marks(requested: str, older: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the offsets of the characters that differ, in each of the two names.

    Names of one length are compared column by column, unless most columns differ.
    """
    from difflib import SequenceMatcher

    if len(requested) == len(older):
        offsets = tuple(
            at
            for at, (own_letter, letter) in enumerate(zip(requested, older, strict=True))
            if own_letter != letter
        )
        if len(offsets) <= MAX_COLUMNS:
            return offsets, offsets
    matcher = SequenceMatcher(None, requested, older, autojunk=False)
    own, other = list[int](), list[int]()
    for tag, start, end, from_, to in matcher.get_opcodes():
        if tag != "equal":
            own += range(start, end)
            other += range(from_, to)
    return tuple(own), tuple(other)


def _is_series(first: str, second: str) -> bool:
    """True if only numbers differ, also where one name has none: staging, staging-2."""
    bare = [re.sub(r"[\W_]*\d+", "", name) for name in (first, second)]
    return bare[0] == bare[1]


def _has_long_numbers(first: str, second: str) -> bool:
    changed = [
        pair
        for pair in zip(_DIGITS.findall(first), _DIGITS.findall(second), strict=False)
        if pair[0] != pair[1]
    ]
    return bool(changed) and all(min(map(len, pair)) >= MIN_DIGITS for pair in changed)


def _differ_by_codes(first: str, second: str) -> bool:
    """True if whole short parts differ, which readers compare as such: prod-eu, prod-us."""
    own, other = _PARTS.findall(first), _PARTS.findall(second)
    if len(own) != len(other):
        return _lacks_code(own, other) or _lacks_code(other, own)
    changed = [pair for pair in zip(own, other, strict=True) if pair[0] != pair[1]]
    if any(_drop_accents(first) == _drop_accents(second) for first, second in changed):
        return False  # peña and pena are one word
    return len(own) > 1 and all(max(map(len, pair)) <= _SHORT_PART for pair in changed)


def _drop_accents(part: str) -> str:
    letters = unicodedata.normalize("NFD", part)
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _has_near_owner(first: str, second: str) -> bool:
    """True if one repository has owners that differ by one letter: acme/web, acne/web."""
    own, _, name = first.partition("/")
    other, _, other_name = second.partition("/")
    return name == other_name != "" and min(len(own), len(other)) >= _SHORT_PART


def _lacks_code(longer: list[str], shorter: list[str]) -> bool:
    """True if `longer` has one short part more: web-a, web."""
    return len(longer) == len(shorter) + 1 and any(
        longer[:at] + longer[at + 1 :] == shorter and len(longer[at]) <= _SHORT_PART
        for at in range(len(longer))
    )


def iterate_inner_domains(host: str) -> Iterator[str]:
    """Yield the domains that a host shows before its own: northwind.com of northwind.com.pay.co."""
    labels = host.split(".")
    for start in range(min(len(labels) - 3, 6)):
        yield ".".join(labels[start : start + 2])


def iterate_shorter_domains(domain: str) -> Iterator[str]:
    """Yield the domains that `domain` may be mistaken for, without the words added to them.

    For northwind-billing.co: northwind.co and northwind.com. A label too short for a near name is
    given the usual endings: for acme.co also acme.com.
    """
    label, _, suffix = domain.partition(".")
    if len(label) < MIN_LENGTH:
        yield from (f"{label}.{usual}" for usual in _USUAL_SUFFIXES if usual != suffix)
    words = label.split("-")
    for count in range(1, len(words)):
        for shorter in ("-".join(words[:count]), "-".join(words[count:])):
            if len(shorter) >= MIN_LENGTH:
                yield from dict.fromkeys((f"{shorter}.{suffix}", f"{shorter}.com"))
