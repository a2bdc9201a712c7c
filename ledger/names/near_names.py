"""Names that differ by one or two characters: pieces to find them by, and when they count. Pure.

A name is cut into thirds. Two changes leave one third as it was, so names with an equal third,
shifted by at most two characters, are all candidates; the number of differences decides.
"""

import re
from collections.abc import Iterator
from typing import Final

MIN_LENGTH: Final = 6  # characters of a name that may differ by one
MIN_LENGTH_OF_TWO: Final = 9  # … by two
MIN_DIGITS: Final = 8  # in a row, of an account number
COMPARED_KINDS: Final = frozenset(
    {"domain", "account", "repository", "cluster", "bucket", "database"}
)
_SHIFTS: Final = (-2, -1, 0, 1, 2)
_DIGITS: Final = re.compile(r"\d+")
_PARTS: Final = re.compile(r"[^\W_]+")
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
    """Return the thirds of all names with one equal third that differ from `part` by at most 2."""
    heads, middles, tails = set[str](), set[str](), set[str]()
    for length in (len(part) + shift for shift in _SHIFTS):
        third = length // 3
        if length < MIN_LENGTH:
            continue
        heads.add(part[:third])
        tails.add(part[len(part) - third :])
        for shift in _SHIFTS:
            start = third + shift
            if start >= 0:
                middles.add(part[start : start + length - 2 * third])
    return heads - {""}, middles - {""}, tails - {""}


def count_differences(first: str, second: str, most: int = 2) -> int:
    """Count changed, missing, added and swapped characters, up to `most` + 1."""
    if abs(len(first) - len(second)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        current = [i, *[0] * len(second)]
        for j, other in enumerate(second, 1):
            current[j] = min(row[j] + 1, current[j - 1] + 1, row[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                current[j] = min(current[j], before[j - 2] + 1)
        if min(current) > most:
            return most + 1
        before, row = row, current
    return row[-1]


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
    if _DIGITS.sub("#", first) == _DIGITS.sub("#", second) or _is_series(first, second):
        return kind == "account" and _has_long_numbers(first, second)
    return not _differ_by_codes(first, second)


def find_marks(requested: str, older: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the offsets of the characters that differ, in each of the two names."""
    from difflib import SequenceMatcher

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
    return len(own) > 1 and all(max(map(len, pair)) <= _SHORT_PART for pair in changed)


def _lacks_code(longer: list[str], shorter: list[str]) -> bool:
    """True if `longer` has one short part more: web-a, web."""
    return len(longer) == len(shorter) + 1 and any(
        longer[:at] + longer[at + 1 :] == shorter and len(longer[at]) <= _SHORT_PART
        for at in range(len(longer))
    )


def iterate_related_domains(domain: str) -> Iterator[str]:
    """Yield domains that a recipient may be mistaken for: other suffixes, and without added words.

    For northwind-billing.co: northwind-billing.com …, northwind.co, northwind.com ….
    """
    label, _, suffix = domain.partition(".")
    words = label.split("-")
    labels = [label, *("-".join(words[:count]) for count in range(1, len(words)))]
    labels += ["-".join(words[count:]) for count in range(1, len(words))]
    for candidate in dict.fromkeys(labels):
        if len(candidate) >= MIN_LENGTH:
            for end in dict.fromkeys((suffix, *_SUFFIXES)):
                if f"{candidate}.{end}" != domain:
                    yield f"{candidate}.{end}"


_SUFFIXES: Final = ("com", "org", "net", "co", "io", "de", "eu", "co.uk")
