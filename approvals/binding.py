"""What leave is bound to: digests under the installation's pepper, the same for the same words on every database."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson
import rfc8785
from django.conf import settings


def binding(session: UUID, agent: UUID, tool: str, intent: str, target: Mapping[str, Any], on_behalf_of: str) -> str:
    """`v1:` and the keyed hash of everything that leave is for: intent, target, agent, session, and on whose behalf.

    `on_behalf_of` is a pseudonym, or nothing.
    """
    bound = [
        *("v1", tool, intent, session.hex, agent.hex, on_behalf_of),
        *(str(target.get(name) or "") for name in ("repository_id", "ref", "environment", "resource")),
    ]
    return "v1:" + hmac.new(settings.GATEBOOK_PEPPER, _canonical(["gate", *bound]), hashlib.sha256).hexdigest()


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
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError):
        # An integer past 2^53, which evidence may carry: digit for digit, with sorted keys, is as binding.
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
