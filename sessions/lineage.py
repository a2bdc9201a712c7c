"""Changing a session that is open, and saying where a branch went: commands over the fold of sessions."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson

from journal import entries
from journal.entries import Status
from sessions import references, sessions
from sessions.models import Session
from sessions.origin import Origin, Repeated


def change(origin: Origin, session: Session, values: Mapping[str, Any], meant: Mapping[str, UUID]) -> Session:
    """Change what `values` names (title, cursor, status with waiting_on, merge_into, merge_intent) by command.

    `meant` gives the id of the session that `merge_into` names. The row must be locked. Raises Repeated.
    """
    return _told(origin, "session.changed", session, values, meant)


def merge(origin: Origin, session: Session, into: UUID) -> Session:
    """Say that what this branch did is in the session `into` now. The first word stands. Raises Repeated."""
    return _told(origin, "session.merged", session, {"into": str(into)}, {str(into): into})


def _told(origin: Origin, kind: str, session: Session, values: Mapping[str, Any], meant: Mapping[str, UUID]) -> Session:
    draft = origin.draft(kind, facts=as_facts(values, meant), session=session.id)
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    fact = sessions.Report(session.id, session.key, origin, kind, appended.position, dict(values))
    sessions.report([fact], meant)
    return references.find(origin.project, str(session.id))


def as_facts(values: Mapping[str, Any], meant: Mapping[str, UUID]) -> str:
    """What a change says in the journal's own words: the status, and other sessions by id."""
    facts = {"status": values["status"]} if values.get("status") else {}
    links = {name: meant.get(values[name]) for name in ("merge_into", "branched_from", "into") if values.get(name)}
    return orjson.dumps({**facts, **links}, option=orjson.OPT_SORT_KEYS).decode()
