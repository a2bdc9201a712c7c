"""Preconditions of a command: session lock, lease epoch and object version."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from ingest import fencing, if_match
from ingest.doors import Call
from ingest.problems import Problem
from ingest.reply import Reply
from sessions import sessions, speakers
from sessions.models import Session
from sessions.origin import Origin


def enter(call: Call, session: UUID) -> Session:
    """Lock the session of a command and return it. Problem 404 if it does not exist."""
    if not sessions.lock(call.project, session, call.received_us, new_effects=0):
        raise Problem(
            404, "not_found", "The project has no such session. Open it first with POST /sessions."
        )
    row = Session.objects.get(id=session)
    call.session, call.fence = row.id, row.fence
    return row


def refusal(
    call: Call,
    origin: Origin,
    version: int | None = None,
    get_current: Callable[[], dict[str, Any]] = dict,
    *,
    speaks: bool = True,
) -> Reply | None:
    """Return the refusal of a command, or None. `enter` must have locked the session.

    `version` is the version of the row to change; `get_current` returns the current object under
    its name. `speaks` is False for commands that do not write to the session. Raises Repeated and
    NotAllowed.
    """
    if call.session is not None and speaks:
        speakers.expect(origin, call.session, call.kind, task=call.task)
    if call.session is not None and (call.fence is not None or call.task is not None):
        fenced = fencing.check(origin, call.session, call.kind, call.task)
        if fenced is not None:
            return fenced
    return None if version is None else if_match.refusal(call, origin, version, get_current)
