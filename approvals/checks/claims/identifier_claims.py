"""Compare orders, tickets, users and addresses with the arguments. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from approvals.checks.check_results import Compared
from approvals.checks.claims.claim_evidence import ClaimEvidence, Contradiction
from approvals.checks.claims.claim_words import MAX_CLAIM_CHARACTERS, Claim
from approvals.checks.claims.named_values import build_word_set, split_into_words
from journal.text_caches import cache_texts

_NOUNS: Final = (
    "order|ticket|issue|user|customer|invoice|account|job|case|booking|reservation|subscription"
    "|payment|contract|device|build|incident|employee|tenant|shipment|refund|pr|pull request"
    "|merge request|transaction|payout|campaign"
)
_NUMBERED: Final = re.compile(
    rf"\b(?P<noun>{_NOUNS})\s+(?:no\.?\s+|number\s+|id\s+)?#?"
    r"(?P<number>\d{1,15}|(?=[A-Z]*\d)[A-Z0-9]{4,16})(?![\w%]|[.,-]\d)",
    re.IGNORECASE,
)
_PREFIXED: Final = re.compile(
    r"(?<![\w./-])(?P<prefix>[A-Za-z]{1,10})[-_](?P<number>\d{2,12})(?![\w-])"
)
_ADDRESS: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_ASIDE: Final = re.compile(
    r"\b(?:by|from|see|like|as|per|after|before|duplicate|cf|ref|refs|instead of|not|replaces"
    r"|behalf of|in|with|similar to|related to|follow-?up|unlike|than|asked|cc|requested|according"
    r"|approved|contact|reported|version|on)\b\W*(?:\w+\W+){0,2}$",
    re.IGNORECASE,
)
_NO_TICKETS: Final = build_word_set("utf sha iso rfc cve gpt es md base http tls ipv x node python")
_SAME_NOUN: Final = {"pull": "pr", "merge": "pr"}
_ID_WORDS: Final = build_word_set("id ids number no key ref code nr num reference")
_OTHERS: Final = build_word_set(
    "parent duplicate related previous by created requester reporter owner assignee approver author"
    " from source original old replaces cc bcc reply sender manager contact audit notify blocks"
)
_ADDRESS_KEYS: Final = build_word_set(
    "to recipient recipients email emails address addresses user account customer mailbox login"
    " username member invitee"
)


@cache_texts(1024)
def read_identifiers(text: str) -> tuple[Claim, ...]:
    """Return the identifiers that a claim names as what the call is about."""
    return tuple(_iterate_identifiers(text[:MAX_CLAIM_CHARACTERS]))


def _iterate_identifiers(text: str) -> Iterator[Claim]:
    for match in _NUMBERED.finditer(text):
        noun = match["noun"].casefold().split()[0]
        if not _is_aside(text, match.start()):
            yield _build_claim(match, _SAME_NOUN.get(noun, noun), match["number"])
    if "-" in text or "_" in text:
        for match in _PREFIXED.finditer(text):
            prefix = match["prefix"].casefold()
            if prefix not in _NO_TICKETS and not _is_aside(text, match.start()):
                yield _build_claim(match, f"{prefix}-", match[0])
    if "@" in text:
        for match in _ADDRESS.finditer(text):
            if not _is_aside(text, match.start()):
                yield _build_claim(match, "@", match[0])


def _build_claim(match: "re.Match[str]", unit: str, value: str) -> Claim:
    return Claim("identifier", match[0], match.start(), match.end(), (value,), unit)


def _is_aside(text: str, start: int) -> bool:
    """Return True if the words before an identifier make it a mere reference."""
    before = re.split(r"[.;:!?,(\n]\s", text[max(0, start - 40) : start])[-1]
    return _ASIDE.search(before) is not None


def compare_identifiers(
    evidence: ClaimEvidence, text: str
) -> Iterator[tuple[Claim, Contradiction]]:
    """Yield each kind of identifier of which the arguments name only others."""
    by_unit: dict[str, list[Claim]] = defaultdict(list)
    for claim in read_identifiers(text):
        by_unit[claim.unit].append(claim)
    if not by_unit:
        return
    everything = {
        str(value).casefold()
        for _where, _key, value in evidence.values
        if isinstance(value, str | int) and not isinstance(value, bool)
    }
    for unit, claims in by_unit.items():
        names = {
            str(claim.value[0]).casefold() for claim in claims if isinstance(claim.value, tuple)
        }
        sent = list(_iterate_sent(evidence, unit))
        if not sent or names & everything or any(_equals_any(value, names) for *_at, value in sent):
            continue
        if any(name in text_value for name in names for text_value in everything):
            continue
        where, key, value = sent[0]
        short = {"@": "other address"}.get(unit, f"other {unit}")
        if unit.endswith("-"):
            short = "other identifier"
        yield (
            claims[0],
            Contradiction(
                short,
                f"{key} is {value[:80]}.",
                where,
                compared=(Compared("claim", claims[0].phrase), Compared(key, value)),
            ),
        )


def _iterate_sent(evidence: ClaimEvidence, unit: str) -> Iterator[tuple[str, str, str]]:
    """Yield dot path, name and text of the arguments that hold identifiers of a kind."""
    for where, key, value in evidence.values:
        words = set(split_into_words(key))
        if isinstance(value, bool) or not isinstance(value, str | int) or words & _OTHERS:
            continue
        text = str(value)
        if unit == "@":
            if words & _ADDRESS_KEYS and _ADDRESS.fullmatch(text.strip()):
                yield where, key, text
        elif unit.endswith("-"):
            match = _PREFIXED.fullmatch(text)
            if match is not None and f"{match['prefix'].casefold()}-" == unit:
                yield where, key, text
        elif words - _ID_WORDS in ({unit}, {f"{unit}s"}) and re.fullmatch(r"\d{1,15}", text):
            yield where, key, text


def _equals_any(value: str, names: set[str]) -> bool:
    """Return True if a value is one of the names, prefix and leading zeros aside."""
    digits = re.sub(r"\D", "", value).lstrip("0")
    return value.casefold() in names or any(
        digits and digits == re.sub(r"\D", "", name).lstrip("0") and "@" not in name
        for name in names
    )
