"""Canonical JSON (RFC 8785) by another writer than the one that reads what agents send, so that each checks the other.

The RFC writes numbers as doubles and has no integers past 2^53; those are written digit for digit, as they were sent.
"""

import re
import secrets
from typing import Any, Final

import rfc8785

_MOST: Final = 2**53 - 1


def canonical(value: Any) -> bytes:
    """The canonical text. Raises rfc8785.CanonicalizationError for what JSON cannot carry, RecursionError."""
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        mark = secrets.token_hex(16)  # that no text of the sender's can hold
        text = rfc8785.dumps(_marked(value, mark))
        return re.sub(rb'"%s(-?[0-9]+)"' % mark.encode(), rb"\1", text)


def _marked(value: Any, mark: str) -> Any:
    if isinstance(value, dict):
        return {name: _marked(one, mark) for name, one in value.items()}
    if isinstance(value, list):
        return [_marked(one, mark) for one in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MOST:
        return f"{mark}{value}"
    return value
