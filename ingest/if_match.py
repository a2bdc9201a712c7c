"""If-Match: change an object only if it has the version the agent has read."""

import re
from collections.abc import Callable
from typing import Any, Final

from ingest.doors import Call
from ingest.problems import Problem
from ingest.reply import Reply
from journal import entries
from sessions.origin import Origin, Repeated

_VERSION: Final = re.compile(r'"([0-9]{1,10})"|([0-9]{1,10})')


def wanted(call: Call) -> int | None:
    """Return the version in If-Match; None if absent or `*`. Problem 400.

    The number may be in double quotes.
    """
    header: str | None = call.request.META.get("HTTP_IF_MATCH")
    if header is None or header.strip() == "*":
        return None
    match = _VERSION.fullmatch(header.strip())
    if match is None:
        detail = (
            'If-Match is invalid. Send the `version` of the object that you have read, such as "3".'
        )
        raise Problem(400, "if_match_invalid", detail)
    return int(match[1] or match[2])


def refusal(
    call: Call, origin: Origin, version: int, get_current: Callable[[], dict[str, Any]]
) -> Reply | None:
    """Return a refusal if the object's version differs from If-Match; None otherwise.

    `get_current` returns the current object under its name. Raises Repeated if the command has
    run before.
    """
    wanted_version = wanted(call)
    if wanted_version is None or wanted_version == version:
        return None
    sentence = "The object was changed after you read it. Read the current object and decide again."
    return refused("VERSION_CHANGED", sentence, origin, get_current())


def refused(code: str, sentence: str, origin: Origin, current: dict[str, Any]) -> Reply:
    """Build a 409 with the conflicting object. Raises Repeated."""
    told_before(origin)
    return Reply(409, Problem(409, code, sentence).as_dict() | current, kept=False)


def told_before(origin: Origin) -> None:
    """Raise Repeated if the journal has this command's key, to replay it."""
    if entries.look(origin.draft("command.repeated"), origin.received_us) is not None:
        raise Repeated
