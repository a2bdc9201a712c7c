"""What stands before a change of working state: the lease under which it is made, and the version it was decided on."""

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
    """Lock the session of a command and return it. Problem 404 when the project has no such session."""
    if not sessions.lock(call.project, session, call.received_us, new_effects=0):
        raise Problem(404, "not_found", "This project has no such session; open it first with POST /sessions.")
    found = Session.objects.get(id=session)
    call.session, call.fence = found.id, found.fence
    return found


def refusal(
    call: Call,
    origin: Origin,
    version: int | None = None,
    present: Callable[[], dict[str, Any]] = dict,
    *,
    speaks: bool = True,
) -> Reply | None:
    """Why the command may not be done, or None. The session's row is locked by `enter`.

    `version` is that of the row it changes, `present` gives the object under its name; `speaks` is False for a command
    that says nothing for the session. Raises Repeated, NotAllowed.
    """
    if call.session is not None and speaks:
        speakers.expect(origin, call.session, call.kind, task=call.task)
    if call.session is not None and (call.fence is not None or call.task is not None):
        fenced = fencing.check(origin, call.session, call.kind, call.task)
        if fenced is not None:
            return fenced
    return None if version is None else if_match.refusal(call, origin, version, present)
