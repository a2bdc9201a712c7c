"""Compare numbers and amounts in a claim with those in the arguments. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from approvals.checks.check_results import Compared
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.claims.claim_evidence import ClaimEvidence, Contradiction
from approvals.checks.claims.claim_words import Claim
from approvals.checks.claims.named_values import (
    build_word_set,
    iterate_lists,
    iterate_values,
    split_into_words,
)
from approvals.checks.quantities import MAX_NUMBER

# Nouns whose number is wrong if it is smaller, too.
_TWO_WAYS: Final = build_word_set(
    "replica instance node pod worker percent day hour minute week month"
)
_FILLERS: Final = build_word_set(
    "count number num total n expected affected estimated actual id ids list names to of desired"
    " target older than all in for"
)
_SYNONYMS: Final = {
    "record": "row", "entry": "row", "addressee": "recipient", "mailbox": "recipient",
    "pct": "percent", "percentage": "percent", "weight": "percent",
}  # fmt: skip
_PEOPLE_NOUNS: Final = build_word_set(
    "people person customer user subscriber colleague auditor member employee"
)
_SENDING: Final = build_word_set("mail email send message sms newsletter notify")
_RECIPIENTS: Final = ("to", "recipients", "cc", "bcc")
_A_PART: Final = re.compile(
    r"\b(?:half|third|quarter|part|partial|partially|deposit|instal?lments?|rest|remainder|share)\b",
    re.IGNORECASE,
)


def compare_count(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare a number in a claim with the arguments that its noun names."""
    if not isinstance(claim.value, float) or claim.value == 0:
        return None
    noun = _singular(claim.unit)
    same = [
        other.value
        for other in evidence.claims
        if other.kind == "count"
        and _singular(other.unit) == noun
        and isinstance(other.value, float)
    ]
    counts = list(_iterate_counts(evidence, noun))
    if not counts or any(count in same or count == sum(same) for count, _where, _limit in counts):
        return None
    for count, where, is_limit in counts:
        if is_limit and count <= claim.value:
            continue
        if _differs(count, claim.value, claim.bound, noun in _TWO_WAYS and not is_limit):
            return Contradiction(
                "other number",
                f"{'at most ' if is_limit else ''}{_format_number(count)}"
                f"{' %' if noun == 'percent' else ''} in the arguments.",
                where,
                compared=(Compared(where.rpartition(".")[2], _format_number(count)),),
                level="warning",
            )
    return None


def _differs(count: float, claimed: float, bound: str, two_ways: bool) -> bool:
    if bound == "about":
        return count > 2 * claimed or (two_ways and count < claimed / 2)
    if bound == "most":
        return count > claimed
    if bound == "least":
        return two_ways and count < claimed
    return count > claimed or (two_ways and count < claimed)


def _iterate_counts(evidence: ClaimEvidence, noun: str) -> Iterator[tuple[float, str, bool]]:
    """Yield numbers that a noun names: number, dot path, whether only a limit."""
    request = evidence.request
    if noun == "file":
        changed = evidence.changed
        if changed.paths and changed.whole and len(set(changed.paths)) > 1:
            yield float(len(set(changed.paths))), changed.source, False
        return
    if noun == "recipient" or (noun in _PEOPLE_NOUNS and _SENDING & evidence.tool_words):
        # The hidden copy to an archive is no customer.
        names = _RECIPIENTS if noun == "recipient" else ("to", "recipients")
        yield from _count_recipients(request, names)
    for where, key, value in iterate_values(request.preconditions, "evidence"):
        number = _read_number(value)
        if number is not None and where == f"evidence.{key}" and _names_noun(key, noun):
            yield number, "evidence", False
    for where, key, items in iterate_lists(request.arguments):
        if _names_noun(key, noun) and len(items) > 0:
            yield float(len(items)), where, False
    for where, key, value in evidence.values:
        if where.rpartition(".")[2] != key:
            continue  # an item of a list
        number = _read_number(value)
        if number is None:
            continue
        words = split_into_words(key)
        if _names_noun(key, noun):
            if noun == "percent" and 0 < number <= 1:
                number *= 100
            yield number, where, False
        elif noun == "row" and words in (("limit",), ("max", "rows"), ("row", "limit")):
            yield number, where, True
    for where, commands in evidence.commands:
        for command in commands:
            for flag in re.findall(rf"--{noun}s?[= ](\d+)", " ".join(command.words)):
                yield float(flag), where, False


def _count_recipients(
    request: CheckedRequest, names: Sequence[str]
) -> Iterator[tuple[float, str, bool]]:
    named = request.arguments if isinstance(request.arguments, dict) else {}
    total, last = 0, ""
    for key in names:
        value = named.get(key)
        listed = re.split(r"[,;]", value) if isinstance(value, str) else value
        if isinstance(listed, list):
            total += len([item for item in listed if item])
            last = f"arguments.{key}" if listed and listed != [""] else last
    if total:
        yield float(total), last, False


def _names_noun(key: str, noun: str) -> bool:
    """Return True if an argument's name means a number or list of only this noun."""
    words = [_singular(word) for word in split_into_words(key)]
    rest = [word for word in words if word not in _FILLERS]
    return rest == [noun]


def _singular(noun: str) -> str:
    word = noun.casefold()
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith(("sses", "xes", "ches")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return _SYNONYMS.get(word, word)


def _read_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < MAX_NUMBER else None
    if isinstance(value, str) and re.fullmatch(r"\d{1,12}(?:\.\d{1,4})?", value.strip()):
        return float(value)
    return None


def _format_number(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"


def compare_money(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare an amount in a claim with the amounts and currencies of the arguments."""
    amounts = [
        other.value
        for other in evidence.claims
        if other.kind == "money" and isinstance(other.value, float)
    ]
    units = {other.unit for other in evidence.claims if other.kind == "money"}
    sent = [
        (
            number / 100 if {"cents", "minor", "pence"} & set(split_into_words(key)) else number,
            where,
            key,
        )
        for where, key, value in evidence.values
        if "amount" in split_into_words(key) and (number := _read_number(value)) is not None
    ]
    if not sent or len(amounts) > 2 or not isinstance(claim.value, float):
        return None
    total = sum(number for number, *_rest in sent)
    is_equal = any(
        _equals_amount(number, amount)
        for number in (total, *(each for each, *_rest in sent))
        for amount in amounts
    )
    if is_equal:
        for where, key, value in evidence.values:
            other_currency = (
                key.casefold() in ("currency", "currency_code")
                and isinstance(value, str)
                and re.fullmatch(r"[A-Za-z]{3}", value) is not None
                and len(units) == 1
                and value.upper() not in units
                and not (claim.unit == "USD" and value.upper().endswith("D"))  # $ of others
            )
            if other_currency:
                return Contradiction("other currency", f"{key} is {value}.", where)
        return None
    number, where, key = sent[0]
    if _A_PART.search(evidence.text) and number <= 100 * max(map(float, amounts)):
        return None  # half of an amount, or a deposit; it may be sent in cents
    return Contradiction(
        "other amount",
        f"{key} is {_format_number(number)}.",
        where,
        compared=(Compared(key, _format_number(number)),),
    )


def _equals_amount(number: float, claimed: float) -> bool:
    """Return True if amounts are equal, or may differ in units: euros and cents."""
    return any(
        abs(number - claimed * factor) < 0.005 * max(1.0, factor) for factor in (1, 100, 0.01)
    )
