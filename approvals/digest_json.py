"""Canonical JSON (RFC 8785), independent of the parser of agents' requests.

The RFC writes numbers as doubles and has no integers beyond 2^53; those are written digit for
digit, as they were sent.
"""

import re
import secrets
from typing import Any, Final

import rfc8785

_MAX_DOUBLE_INTEGER: Final = 2**53 - 1


def to_canonical_json(value: Any) -> bytes:
    """Return the canonical text.

    Raises rfc8785.CanonicalizationError for values that JSON cannot represent, and RecursionError.
    """
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        mark = secrets.token_hex(16)  # random, so that no text sent by an agent contains the mark
        text = rfc8785.dumps(_mark_large_integers(value, mark))
        return re.sub(rb'"%s(-?[0-9]+)"' % mark.encode(), rb"\1", text)


def _mark_large_integers(value: Any, mark: str) -> Any:
    if isinstance(value, dict):
        return {name: _mark_large_integers(item, mark) for name, item in value.items()}
    if isinstance(value, list):
        return [_mark_large_integers(item, mark) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MAX_DOUBLE_INTEGER:
        return f"{mark}{value}"
    return value
