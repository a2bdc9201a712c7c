"""Compare "read only" and "dry run" with what a call does. Pure."""

import re
from typing import Any, Final

from approvals.checks.checked_request import CheckedRequest
from approvals.checks.claims.claim_evidence import ClaimEvidence, Contradiction
from approvals.checks.claims.claim_words import Claim
from approvals.checks.claims.named_values import build_word_set, split_into_words
from approvals.checks.claims.shell_commands import (
    DELETING,
    find_changes,
    iterate_sql,
    name_changing_words,
)
from approvals.policies.engine import get_operation

_CHANGING_VERBS: Final = build_word_set(
    "delete remove drop update insert write modify patch put purge deactivate disable rotate"
    " restart apply deploy push merge refund charge pay transfer cancel grant revoke publish"
    " truncate overwrite rename archive terminate close resolve approve reject"
    " transition"
)
_READING_VERBS: Final = build_word_set(
    "get list read search fetch show describe preview check find query count view status diff plan"
    " simulate validate dry estimate todo todos memory explain"
)
# Names of arguments that keep a call from doing anything.
DRY_FLAGS: Final = build_word_set(
    "dryrun dry_run simulate simulation simulated preview preview_only check_mode noop no_op whatif"
    " what_if plan_only validate_only"
)
_WET_FLAGS: Final = build_word_set(
    "apply execute commit confirm confirmed live for_real auto_approve wet_run"
)
_WRITABLE: Final = build_word_set("rw read-write readwrite read_write write w readwritemany")
_HOSTS: Final = build_word_set("host hostname dsn url endpoint server database connection uri")
_PRIMARIES: Final = build_word_set("rw primary writer master leader")


def compare_reads(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "read only" with what the call would change."""
    request = evidence.request
    if evidence.has_git_words("push", "commit", "merge", "pr", "pull"):
        return None  # it names what the commits are about
    for where, key, value in evidence.values:
        flag = "_".join(split_into_words(key))
        if flag in ("read_only", "readonly", "ro") and _is_false(value):
            return _describe_read(where, f"{key} is {_show(value)}.")
        if (
            flag in ("mode", "access", "access_mode", "open_mode")
            and isinstance(value, str)
            and value.casefold() in _WRITABLE
        ):
            return _describe_read(where, f"{key} is {value}.")
    change = next(
        (change for change in find_changes(request.arguments, evidence.commands) if not change.dry),
        None,
    )
    if change is not None:
        return _describe_read(change.concerns, f"{change.words} changes something.")
    changes = evidence.changed.files
    if changes and re.match(r"\s*(?:$|[.,;:!)])", evidence.text[claim.end :]):
        count = len(changes)
        return _describe_read("changes", f"the call edits {count} file{'' if count == 1 else 's'}.")
    words = set(split_into_words(get_operation(request.tool)))
    if (
        request.reversibility != "read"
        and words & _CHANGING_VERBS
        and not words & _READING_VERBS
        and not evidence.commands
        and not any(iterate_sql(request.arguments))
        and not _has_dry_flag(evidence)
    ):
        return _describe_read(
            "request", f"the tool is {request.tool}, declared {_reverse(request)}."
        )
    return None


def compare_reading_verb(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare a claim that begins with "lists" or "shows" with the verb of the tool."""
    request = evidence.request
    words = set(split_into_words(get_operation(request.tool)))
    if request.reversibility == "read" or not words & _CHANGING_VERBS or words & _READING_VERBS:
        return None
    if len(evidence.text) > 100 or evidence.commands or evidence.has_git_words("push", "commit"):
        return None
    return _describe_read("request", f"the tool is {request.tool}, declared {_reverse(request)}.")


def compare_looking(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare a claim that begins with "lists" or "shows" with what the call deletes."""
    if len(evidence.text) > 100 or evidence.has_git_words("push", "commit"):
        return None
    for change in find_changes(evidence.request.arguments, evidence.commands):
        if not change.dry and DELETING.search(change.words):
            return _describe_read(change.concerns, f"{change.words} deletes something.")
    return None


def _reverse(request: CheckedRequest) -> str:
    return request.reversibility or "irreversible"


def _describe_read(where: str, fact: str) -> Contradiction:
    return Contradiction("not read-only", fact, where)


def compare_replica(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "on the read replica" with the host and what the call would change."""
    for where, key, value in evidence.values:
        if isinstance(value, str) and _HOSTS.intersection(split_into_words(key)):
            host = value.rpartition("@")[2].split("/")[0] if "@" in value else value
            word = next(iter(_PRIMARIES.intersection(split_into_words(host)[:12])), "")
            if word:
                return _describe_read(where, f"{key} names {word}.")
    change = next(
        (change for change in find_changes(evidence.request.arguments, evidence.commands)), None
    )
    if change is None or change.dry:
        return None
    return _describe_read(change.concerns, f"{change.words} changes something.")


def compare_dry_run(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "dry run" with flags, commands and earlier calls of the tool."""
    request, facts = evidence.request, evidence.facts
    for where, key, value in evidence.values:
        if "_".join(split_into_words(key)) in DRY_FLAGS and _is_false(value):
            return Contradiction("not a dry run", f"{key} is {_show(value)}.", where)
    if _has_dry_flag(evidence) or {"dry", "preview", "plan", "simulate"} & evidence.tool_words:
        return None
    for where, key, value in evidence.values:
        if "_".join(split_into_words(key)) in _WET_FLAGS and value in (True, "true", "yes"):
            return Contradiction("not a dry run", f"{key} is {_show(value)}.", where)
    for where, commands in evidence.commands:
        changing = [command for command in commands if name_changing_words(command)]
        wet = next((command for command in changing if not command.is_dry), None)
        if wet is not None:
            words = name_changing_words(wet)
            flag = next((word for word in wet.words if re.match(r"--(?:no-)?dry-?run", word)), "")
            fact = f"{words} runs with {flag}." if flag else f"{words} runs without --dry-run."
            if wet.program in ("terraform", "tofu", "terragrunt", "pulumi"):
                fact = f"{words} changes resources; a plan does not."
            return Contradiction("not a dry run", fact, where)
    change = next(
        (change for change in find_changes(request.arguments, evidence.commands) if not change.dry),
        None,
    )
    if change is not None and "command" not in change.concerns:
        return Contradiction("not a dry run", f"{change.words} changes something.", change.concerns)
    if facts.dry_flag and isinstance(request.arguments, dict):
        return Contradiction(
            "not a dry run",
            f"the call has no {facts.dry_flag}.",
            "request",
            f"An earlier call of {request.tool} had it: {facts.dry_handle}.",
        )
    return None


def _has_dry_flag(evidence: ClaimEvidence) -> bool:
    return any(
        "_".join(split_into_words(key)) in DRY_FLAGS and not _is_false(value) and value is not None
        for _where, key, value in evidence.values
    )


def _is_false(value: Any) -> bool:
    if isinstance(value, str):
        return value.casefold() in ("false", "no", "off", "none", "0")
    return value is False or (value == 0 and not isinstance(value, bool) and value is not None)


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
