"""What leave is bound to: digests under the installation's pepper, the same for the same words on every database."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
import rfc8785
from django.conf import settings

from approvals.canonical import canonical
from journal import exact
from sessions import refs


def binding(
    session: UUID, agent: UUID, tool: str, intent: str, target: Mapping[str, Any], on_behalf_of: str
) -> str:
    """`v1:` and the keyed hash of everything that leave is for: intent, target, agent, session, and on whose behalf.

    `on_behalf_of` is a pseudonym, or nothing.
    """
    bound = [
        *("v1", tool, intent, session.hex, agent.hex, on_behalf_of),
        *(str(target.get(name) or "") for name in ("repository_id", "environment", "resource")),
        refs.identity(target.get("ref") or "", target.get("moved_refs") or ""),
    ]
    return (
        "v1:"
        + hmac.new(
            settings.GATEBOOK_PEPPER, _canonical(["gate", *bound]), hashlib.sha256
        ).hexdigest()
    )


TARGET: Final = ("repository_id", "moved_refs", "environment", "resource")  # columns of an effect


def may_be_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """True unless two targets, by the columns of TARGET, both name something of one kind and not the same."""
    return all(
        not mine or not theirs or mine == theirs or "*" in f"{mine}{theirs}"
        for mine, theirs in zip(one, other, strict=True)
    )


def is_named(target: Sequence[Any]) -> bool:
    """True when a target, by the columns of TARGET, names anything: two that name nothing are not known to be one."""
    return any(one and one != refs.ANY for one in target)


def preconditions_digest(preconditions: Mapping[str, Any] | None) -> str:
    """`v1:` and the keyed hash of the named facts that must still hold at dispatch; empty when there are none."""
    if not preconditions:
        return ""
    text = _canonical(["preconditions", dict(preconditions)])
    return "v1:" + hmac.new(settings.GATEBOOK_PEPPER, text, hashlib.sha256).hexdigest()


def same(one: Any, other: Any) -> bool:
    """True when two JSON values are the same in canonical form."""
    return _canonical(one) == _canonical(other)


def _canonical(value: Any) -> bytes:
    try:
        return canonical(value)
    except (rfc8785.CanonicalizationError, RecursionError):
        return exact.dumps(value, orjson.OPT_SORT_KEYS)  # sorted keys are as binding
