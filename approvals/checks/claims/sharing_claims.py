"""Compare "nothing is deleted", "only a draft" and "internal" with a call. Pure."""

import re
from typing import Any, Final

from approvals.checks.claims.claim_evidence import ClaimEvidence, Contradiction
from approvals.checks.claims.claim_words import Claim
from approvals.checks.claims.named_values import build_word_set, split_into_words
from approvals.checks.claims.shell_commands import DELETING, find_changes
from approvals.policies.engine import get_operation

_DELETING_FLAGS: Final = build_word_set("delete deletes purge drop wipe destroy prune remove")
_DELETING_TOOLS: Final = build_word_set("delete purge destroy wipe truncate")
_VISIBILITIES: Final = build_word_set("visibility acl access audience sharing permission exposure")
_PUBLIC: Final = re.compile(
    r"public(?:[-_]\w+)*|anyone(?:[-_ ]?\w+)*|everyone|world|open|unlisted", re.I
)
_RIGHTS: Final = build_word_set(
    "role roles permission permissions scope scopes access privilege privileges level rights policy"
)
_GREAT: Final = re.compile(
    r"\b(?:admin\w*|owner|editor|writer?|write|root|super-?user|maintain(?:er)?|full|poweruser"
    r"|contributor|readwrite|rw)(?=\b|access)",
    re.IGNORECASE,
)
_GRANT: Final = re.compile(r"\bgrant\s+(?P<right>all|insert|update|delete|superuser)\b", re.I)
_RECIPIENT_KEYS: Final = build_word_set("to cc bcc recipients recipient email emails")
_FREE_MAIL: Final = build_word_set(
    "gmail.com googlemail.com outlook.com hotmail.com live.com yahoo.com icloud.com me.com gmx.de"
    " gmx.net gmx.com web.de proton.me protonmail.com aol.com mail.ru yandex.ru qq.com 163.com"
)


def compare_kept_data(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "nothing is deleted" with flags, commands, SQL, HTTP and the tool."""
    flags = [
        (where, key, value)
        for where, key, value in evidence.values
        if isinstance(value, bool) and _DELETING_FLAGS.intersection(split_into_words(key))
    ]
    for where, key, value in flags:
        if value:
            return Contradiction("deletes something", f"{key} is true.", where)
    for change in find_changes(evidence.request.arguments, evidence.commands):
        if DELETING.search(change.words) and not change.dry:
            return Contradiction(
                "deletes something", f"{change.words} deletes something.", change.concerns
            )
    for where, commands in evidence.commands:
        for command in commands:
            if command.program in ("rsync", "aws", "find") and not command.is_dry:
                flag = next((word for word in command.words if word in ("--delete", "-delete")), "")
                if flag:
                    return Contradiction(
                        "deletes something", f"{command.program} runs with {flag}.", where
                    )
    tool = evidence.request.tool
    if not flags and _DELETING_TOOLS.intersection(split_into_words(get_operation(tool))):
        return Contradiction("deletes something", f"the tool is {tool}.", "request")
    return None


def compare_draft(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "only a draft" with flags and a tool that sends."""
    for where, key, value in evidence.values:
        name = "_".join(split_into_words(key))
        if name in ("draft", "is_draft", "as_draft", "save_as_draft") and isinstance(value, bool):
            if value:
                return None
            return Contradiction("not a draft", f"{key} is false.", where)
        if name in ("send", "send_now", "publish", "send_immediately") and value is True:
            return Contradiction("not a draft", f"{key} is true.", where)
    words = evidence.tool_words
    if words & {"send", "reply", "publish"} and not words & {"draft", "drafts", "preview"}:
        return Contradiction("not a draft", f"the tool is {evidence.request.tool}.", "request")
    return None


def compare_visibility(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "internal" and "private" with what makes something public."""
    for where, key, value in evidence.values:
        words = set(split_into_words(key))
        if words & _VISIBILITIES and isinstance(value, str) and _PUBLIC.fullmatch(value):
            return Contradiction("public", f"{key} is {value}.", where)
        if "_".join(split_into_words(key)) in ("public", "is_public", "publicly") and value is True:
            return Contradiction("public", f"{key} is true.", where)
        if key.casefold() in ("private", "is_private") and value is False:
            return Contradiction("public", f"{key} is false.", where)
        if claim.kind == "internal" and words & _RECIPIENT_KEYS and _is_free_address(value):
            return Contradiction("public", f"{value[:80]} is an address of anyone.", where)
    return None


def compare_rights(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "viewer rights" and "read access" with the rights that a call gives."""
    if _GREAT.search(evidence.text) is not None:
        return None  # it names both
    for where, key, value in evidence.values:
        if not isinstance(value, str) or len(value) > 200:
            continue
        words = set(split_into_words(key))
        if words & _RIGHTS and (value == "*" or _GREAT.search(value.replace("_", " "))):
            return Contradiction("more rights", f"{key} is {value[:80]}.", where)
        grant = _GRANT.search(value) if words & {"sql", "query", "statement"} else None
        if grant is not None:
            return Contradiction("more rights", f"it grants {grant['right'].upper()}.", where)
    return None


def _is_free_address(value: Any) -> bool:
    return isinstance(value, str) and value.rpartition("@")[2].strip("> ").casefold() in _FREE_MAIL
