"""Compare "no personal data" with the columns that a call selects. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from approvals.checks.check_results import Compared
from approvals.checks.claims.claim_evidence import ClaimEvidence, Contradiction
from approvals.checks.claims.claim_words import Claim
from approvals.checks.claims.named_values import build_word_set, split_into_words
from approvals.checks.claims.shell_commands import iterate_sql

_SELECTED: Final = build_word_set(
    "column columns field fields attribute attributes property properties select include projection"
    " header headers"
)
_DROPPED: Final = build_word_set(
    "exclude excluded drop dropped mask masked redact omit hash hashed remove without ignore"
)
_PERSONAL: Final = (
    {"email"}, {"mail"}, {"iban"}, {"ssn"}, {"dob"}, {"birthdate"}, {"birthday"}, {"birth"},
    {"phone"}, {"mobile"}, {"telephone"}, {"address"}, {"street"}, {"passport"}, {"surname"},
    {"first", "name"}, {"last", "name"}, {"full", "name"}, {"customer", "name"}, {"user", "name"},
    {"contact", "name"}, {"social", "security"}, {"tax", "id"}, {"card", "number"}, {"fullname"},
    {"firstname"}, {"lastname"},
)  # fmt: skip
_MASKED: Final = build_word_set(
    "hash hashed sha md5 sha256 domain masked redacted count token verified flag opt optin consent"
    " type valid status country ip mac wallet contract memory template subject sent"
)
_SELECT: Final = re.compile(r"\bselect\b(?P<items>.*?)\bfrom\b\s+(?P<table>[\w.\"]+)", re.I | re.S)
_AGGREGATES: Final = re.compile(
    r"\s{0,20}(?:distinct\s{1,20})?(?:count|md5|sha\d*|hash\w*|mask\w*|digest|anon\w*|exists|hmac|bool_or)"
    r"\s{0,20}\(",
    re.IGNORECASE,
)
_PEOPLE: Final = build_word_set(
    "customer customers user users person people persons employee employees member members patient"
    " patients contact contacts subscriber subscribers applicants guests"
)


def compare_personal_data(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "no personal data" with columns and fields."""
    for where, name in _iterate_columns(evidence):
        if _is_personal(name):
            return Contradiction(
                "personal data", f"{name[:60]} is selected.", where,
                compared=(Compared("column", name),),
            )  # fmt: skip
    for where, text in iterate_sql(evidence.request.arguments):
        match = _SELECT.search(text[:4000])
        if match is None:
            continue
        for item in _split_columns(match["items"]):
            words = [] if _AGGREGATES.match(item) else re.findall(r"[A-Za-z_]\w*", item)
            alias = words[-1] if words else ""
            if any(_is_personal(word) for word in words) and not _MASKED & set(
                split_into_words(alias)
            ):
                column = next(word for word in words if _is_personal(word))
                return Contradiction("personal data", f"{column} is selected.", where)
            table = match["table"].strip('"').rpartition(".")[2]
            if re.fullmatch(r"\s*(?:\w+\.)?\*\s*", item) and table.casefold() in _PEOPLE:
                return Contradiction(
                    "personal data", f"all columns of {table} are selected.", where, level="warning"
                )
    return None


def _iterate_columns(evidence: ClaimEvidence) -> Iterator[tuple[str, str]]:
    for where, key, value in evidence.values:
        words = set(split_into_words(key))
        path = set(split_into_words(where))
        if path & _DROPPED:
            continue
        if words & _SELECTED and isinstance(value, str) and " " not in value.strip():
            yield where, value.rpartition(".")[2]
        elif (
            path & {"rows", "records", "payload"}
            and value not in (None, "", False)
            and "*" not in str(value)
        ) or (path & _SELECTED and value is True):
            yield where, key


def _is_personal(name: str) -> bool:
    words = set(split_into_words(name))
    return any(personal <= words for personal in _PERSONAL) and not words & _MASKED


def _split_columns(items: str) -> list[str]:
    pieces, depth, start = [], 0, 0
    for at, character in enumerate(items):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            pieces.append(items[start:at])
            start = at + 1
    return [*pieces, items[start:]]
