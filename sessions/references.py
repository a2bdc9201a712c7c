"""Which session a reference means: an id, or a key that some agent gave."""

from collections.abc import Iterable
from uuid import UUID

from journal.ids import derived
from sessions.models import Session


class NotFound(LookupError):
    """The project has no such session."""


def identity(project: UUID, key: str) -> UUID:
    """The id of the session that `key` names in a project, whether or not it is stored yet."""
    return derived(project, "session", key)


def by_reference(project: UUID, references: Iterable[str]) -> dict[str, tuple[UUID, str | None]]:
    """Tell which session each reference (an id or a key) means: its id, and its key where the reference is one.

    A text that looks like an id is one only if such a session is stored; agents use UUIDs as keys too.
    """
    shaped: dict[str, UUID] = {}
    meant: dict[str, tuple[UUID, str | None]] = {}
    for reference in references:
        meant[reference] = (identity(project, reference), reference)
        if len(reference) in (32, 36):
            try:
                shaped[reference] = UUID(reference)
            except ValueError:
                continue
    if shaped:
        # By ids alone: beside them the project tempts SQLite to read all of its sessions.
        named = Session.objects.filter(id__in=shaped.values()).values_list("id", "project_id")
        stored = {session for session, home in named if home == project}
        meant.update({reference: (value, None) for reference, value in shaped.items() if value in stored})
    return meant


def find(project: UUID, reference: str) -> Session:
    """The stored session of an id or key. Raises NotFound."""
    meant, _key = by_reference(project, [reference])[reference]
    session = Session.objects.filter(project=project, id=meant).first()
    if session is None:
        raise NotFound(reference)
    return session
