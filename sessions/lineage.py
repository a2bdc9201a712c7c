"""Commands that change an open session, or record where its branch was merged."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson

from journal import entries
from journal.entries import Status
from sessions import references, sessions
from sessions.models import Session
from sessions.origin import Origin, Repeated


def change(
    origin: Origin, session: Session, values: Mapping[str, Any], meant: Mapping[str, UUID]
) -> Session:
    """Change a session's fields by command.

    Fields are title, cursor, status with waiting_on, merge_into and merge_intent. `meant` gives the
    id of the session that `merge_into` names. The row must be locked. Raises Repeated.
    """
    return _append_and_apply(origin, "session.changed", session, values, meant)


def merge(origin: Origin, session: Session, into: UUID) -> Session:
    """Record that this branch is merged into the session `into`. The first counts.

    Raises Repeated.
    """
    return _append_and_apply(
        origin, "session.merged", session, {"into": str(into)}, {str(into): into}
    )


def _append_and_apply(
    origin: Origin,
    kind: str,
    session: Session,
    values: Mapping[str, Any],
    meant: Mapping[str, UUID],
) -> Session:
    draft = origin.draft(kind, facts=as_facts(values, meant), session=session.id)
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    fact = sessions.Report(session.id, session.key, origin, kind, appended.position, dict(values))
    sessions.report([fact], meant)
    return references.find(origin.project, str(session.id))


def as_facts(values: Mapping[str, Any], meant: Mapping[str, UUID]) -> str:
    """Return a change's facts for the journal: the status, and other sessions by id."""
    facts = {"status": values["status"]} if values.get("status") else {}
    links = {
        name: meant.get(values[name])
        for name in ("merge_into", "branched_from", "into")
        if values.get(name)
    }
    return orjson.dumps({**facts, **links}, option=orjson.OPT_SORT_KEYS).decode()
