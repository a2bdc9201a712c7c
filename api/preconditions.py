"""Preconditions of a command: session lock, lease epoch and object version."""

import re
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from api import writer_refusals
from api.endpoint import Call
from api.idempotency import Reply
from api.problems import Problem, build_not_found
from journal import entries
from journal.entries import Origin, RepeatedKey
from sessions import lookup, sessions, writers
from sessions.models import Session


def require_session_id(project: UUID, reference: str) -> UUID:
    """Return the id of a session by id or key. Problem 404 if it does not exist."""
    try:
        return lookup.load_session(project, reference).id
    except lookup.SessionNotFound:
        raise build_not_found("session") from None


def lock_session_of_call(call: Call, session: UUID) -> Session:
    """Lock the session of a command and return it. Problem 404 if it does not exist."""
    if not sessions.lock_session_row(call.project, session, call.received_us, new_effects=0):
        raise build_not_found("session")
    row = Session.objects.get(id=session)
    call.session, call.fence = row.id, row.fence
    return row


def check_preconditions(
    call: Call,
    origin: Origin,
    version: int | None = None,
    get_current: Callable[[], dict[str, Any]] = dict,
    *,
    speaks: bool = True,
) -> Reply | None:
    """Return the refusal of a command, or None. `lock_session_of_call` must have locked the
    session.

    `version` is the version of the row to change; `get_current` returns the current object under
    its name. `speaks` is False for commands that do not write to the session. Raises RepeatedKey
    and WriterNotAllowed.
    """
    if call.session is not None and speaks:
        writers.require_writer(origin, call.session, call.kind, task=call.task)
    if call.session is not None and (call.fence is not None or call.task is not None):
        fenced = writer_refusals.check_lease_epoch(origin, call.session, call.kind, call.task)
        if fenced is not None:
            return fenced
    return None if version is None else check_version(call, origin, version, get_current)


_VERSION: Final = re.compile(r'"([0-9]{1,10})"|([0-9]{1,10})')


def read_if_match(call: Call) -> int | None:
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


def check_version(
    call: Call, origin: Origin, version: int, get_current: Callable[[], dict[str, Any]]
) -> Reply | None:
    """Return a refusal if the object's version differs from If-Match; None otherwise.

    `get_current` returns the current object under its name. Raises RepeatedKey if the command has
    run before.
    """
    wanted_version = read_if_match(call)
    if wanted_version is None or wanted_version == version:
        return None
    sentence = "The object was changed after you read it. Read the current object and decide again."
    return conflict_reply("VERSION_CHANGED", sentence, origin, get_current())


def conflict_reply(code: str, sentence: str, origin: Origin, current: dict[str, Any]) -> Reply:
    """Build a 409 with the conflicting object. Raises RepeatedKey."""
    raise_if_repeated(origin)
    return Reply(409, Problem(409, code, sentence).as_dict() | current, kept=False)


def raise_if_repeated(origin: Origin) -> None:
    """Raise RepeatedKey if the journal has this command's key, to replay it."""
    if (
        entries.compare_with_stored(origin.draft("command.repeated"), origin.received_us)
        is not None
    ):
        raise RepeatedKey
