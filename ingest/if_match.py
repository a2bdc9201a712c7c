"""If-Match: a row is changed only if it still has the version that the agent saw."""

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
    """The version that If-Match asks for; None where it asks for none (absent, or `*`). Problem 400 for anything else.

    The number stands bare or between double quotes.
    """
    said: str | None = call.request.META.get("HTTP_IF_MATCH")
    if said is None or said.strip() == "*":
        return None
    found = _VERSION.fullmatch(said.strip())
    if found is None:
        detail = 'If-Match holds the `version` of the object that you saw, like "3", and nothing else.'
        raise Problem(400, "if_match_invalid", detail)
    return int(found[1] or found[2])


def refusal(call: Call, origin: Origin, version: int, present: Callable[[], dict[str, Any]]) -> Reply | None:
    """The refusal of a command that was decided on another version than the row has now; None where it may go on.

    `present` gives the object as it is, under its name. Raises Repeated where this very command was done already.
    """
    asked = wanted(call)
    if asked is None or asked == version:
        return None
    sentence = "Somebody changed this since you read it; look at the present one and decide again."
    return refused("VERSION_CHANGED", sentence, origin, present())


def refused(code: str, sentence: str, origin: Origin, present: dict[str, Any]) -> Reply:
    """A 409 with the object that is in the way. Raises Repeated where this very command was done already."""
    told_before(origin)
    return Reply(409, Problem(409, code, sentence).as_dict() | present, kept=False)


def told_before(origin: Origin) -> None:
    """Raise Repeated where the key of this command is in the book: what it was told then is its answer."""
    if entries.look(origin.draft("command.repeated"), origin.received_us) is not None:
        raise Repeated
