"""Keyed digests of what an approval covers; equal on every database."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
import rfc8785
from django.conf import settings

from accounts import git_refs
from approvals.digest_json import to_canonical_json
from db import long_numbers


def compute_approval_digest(
    session: UUID, agent: UUID, tool: str, intent: str, target: Mapping[str, Any], on_behalf_of: str
) -> str:
    """Return `v1:` and the keyed hash of everything that an approval covers.

    That is intent, target, agent, session, and on whose behalf. `on_behalf_of` is a pseudonym, or
    empty.
    """
    bound = [
        "v1",
        tool,
        intent,
        session.hex,
        agent.hex,
        on_behalf_of,
        *(str(target.get(name) or "") for name in ("repository_id", "environment", "resource")),
        git_refs.canonical_refs(target.get("ref") or "", target.get("moved_refs") or ""),
    ]
    text = _canonical(["gate", *bound])
    return "v1:" + hmac.new(settings.GATEBOOK_PEPPER, text, hashlib.sha256).hexdigest()


BOUND_TARGET_COLUMNS: Final = (
    "repository_id",
    "moved_refs",
    "environment",
    "resource",
)  # columns of an effect


def may_be_same_target(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """True unless two targets name different values of the same column of BOUND_TARGET_COLUMNS."""
    return all(
        not left_value
        or not right_value
        or left_value == right_value
        or "*" in f"{left_value}{right_value}"
        for left_value, right_value in zip(first, second, strict=True)
    )


def is_target_named(target: Sequence[Any]) -> bool:
    """True if a target names anything in the columns of BOUND_TARGET_COLUMNS.

    Two targets that name nothing are not known to be the same.
    """
    return any(value and value != git_refs.ANY_REF for value in target)


def compute_preconditions_digest(preconditions: Mapping[str, Any] | None) -> str:
    """Return `v1:` and the keyed hash of the preconditions; empty without any.

    Preconditions are named facts that must still hold at dispatch.
    """
    if not preconditions:
        return ""
    text = _canonical(["preconditions", dict(preconditions)])
    return "v1:" + hmac.new(settings.GATEBOOK_PEPPER, text, hashlib.sha256).hexdigest()


def is_same_json(first: Any, second: Any) -> bool:
    """True if two JSON values have the same canonical form."""
    return _canonical(first) == _canonical(second)


def _canonical(value: Any) -> bytes:
    try:
        return to_canonical_json(value)
    except (rfc8785.CanonicalizationError, RecursionError):
        return long_numbers.to_json_bytes(value, orjson.OPT_SORT_KEYS)  # sorted keys are as exact
