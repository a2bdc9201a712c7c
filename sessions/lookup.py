"""Session lookup by reference: an id, or a key that an agent chose."""

from collections.abc import Iterable
from uuid import UUID

from db.ids import derive_uuid
from sessions.models import Session


class SessionNotFound(LookupError):
    """The project has no session with that id or key."""


def derive_session_id(project: UUID, key: str) -> UUID:
    """Derive the id of the session that `key` names in a project, stored or not."""
    return derive_uuid(project, "session", key)


def resolve_session_references(
    project: UUID, references: Iterable[str]
) -> dict[str, tuple[UUID, str | None]]:
    """Return each reference's session id, and its key where the reference is a key.

    A text that looks like an id counts as an id only if that session is stored, because agents use
    UUIDs as keys too.
    """
    ids: dict[str, UUID] = {}
    meant: dict[str, tuple[UUID, str | None]] = {}
    for reference in references:
        meant[reference] = (derive_session_id(project, reference), reference)
        if len(reference) in (32, 36):
            try:
                ids[reference] = UUID(reference)
            except ValueError:
                continue
    if ids:
        # Filter by ids only: with the project too, SQLite might scan all its sessions.
        rows = Session.objects.filter(id__in=ids.values()).values_list("id", "project_id")
        existing = {session for session, owner in rows if owner == project}
        meant.update(
            {reference: (value, None) for reference, value in ids.items() if value in existing}
        )
    return meant


def resolve_session_id(project: UUID, reference: str) -> UUID:
    """Return the id of the session that `reference` names, stored or not."""
    return resolve_session_references(project, [reference])[reference][0]


def load_session(project: UUID, reference: str) -> Session:
    """Return the stored session with that id or key. Raises SessionNotFound."""
    identity = resolve_session_id(project, reference)
    session = Session.objects.filter(project=project, id=identity).first()
    if session is None:
        raise SessionNotFound(reference)
    return session
