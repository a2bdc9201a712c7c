"""If-Match: change an object only if it still has the version that the agent has read."""

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
    """Return the version in If-Match; None if it is absent or `*`. Problem 400 if invalid.

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
    call: Call, origin: Origin, version: int, present: Callable[[], dict[str, Any]]
) -> Reply | None:
    """Return a refusal if the object's version differs from If-Match; None otherwise.

    `present` returns the current object under its name. Raises Repeated if the command ran before.
    """
    wanted_version = wanted(call)
    if wanted_version is None or wanted_version == version:
        return None
    sentence = "The object was changed after you read it. Read the current object and decide again."
    return refused("VERSION_CHANGED", sentence, origin, present())


def refused(code: str, sentence: str, origin: Origin, present: dict[str, Any]) -> Reply:
    """Build a 409 with the conflicting object. Raises Repeated if the command ran before."""
    told_before(origin)
    return Reply(409, Problem(409, code, sentence).as_dict() | present, kept=False)


def told_before(origin: Origin) -> None:
    """Raise Repeated if the journal has this command's key, so that its response is replayed."""
    if entries.look(origin.draft("command.repeated"), origin.received_us) is not None:
        raise Repeated
