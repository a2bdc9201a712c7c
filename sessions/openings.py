"""Facts of a session's opening; comparison with a second one. Writes nothing."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User

from journal.text import column_text
from sessions import registers
from sessions.models import Session
from sessions.people import pseudonym_of

MOST_ABOVE: Final = 100  # sessions whose requester is read


def started_facts(project: UUID, values: Mapping[str, Any], parent: UUID | None) -> dict[str, Any]:
    """Return the facts of a start for the journal, with the requester's pseudonym."""
    facts = {"mode": values.get("mode") or "reported", "parent": parent}
    person = member(project, values.get("on_behalf_of"))
    return facts if person is None else facts | {"on_behalf_of": pseudonym_of(person)}


def agrees(
    row: Session, values: Mapping[str, Any], parent: UUID | None, stem: UUID | None, agent: UUID
) -> bool:
    """Return True when a second opening describes the session as the first did.

    Omitted fields are not compared. Labels that the session lacks agree where its own agent sends
    them, because they are added. `parent` is the parent session, `stem` the one that it branched
    from.
    """
    repository = row.repository.name if row.repository else None
    stored = {"repository": repository, "branch": row.branch, "mode": row.mode}
    stored["title"] = registers.first_title(row)
    for name, person in (("owner", row.owner), ("on_behalf_of", row.on_behalf_of)):
        stored[name] = person.get_username() if person is not None else None
    sent = {**values, "title": column_text(values.get("title") or "")}
    differs = any(sent.get(name) and sent[name] != stored[name] for name in stored)
    labels = values.get("labels") or {}
    is_own = row.agent_id == agent
    differs |= any(
        row.labels.get(name, value if is_own else None) != value for name, value in labels.items()
    )
    return not differs and parent in (None, row.parent_id) and stem in (None, row.branched_from_id)


def requester(session: UUID) -> str | None:
    """Return the name of the person that a session works on behalf of.

    The person named farthest up, by its parents and source sessions, counts before its own.
    Reported sessions may arrive before their parents, or name another person, so that this is
    computed on use and not stored.
    """
    visited, level, requester_name = {session}, [session], None
    while level and len(visited) <= MOST_ABOVE:
        rows = list(
            Session.objects.filter(id__in=level).values_list(
                "on_behalf_of__username", "parent_id", "branched_from_id"
            )
        )
        requester_name = min((name for name, _, _ in rows if name), default=requester_name)
        level = [
            ancestor
            for _, *ancestors in rows
            for ancestor in ancestors
            if ancestor is not None and ancestor not in visited
        ]
        visited.update(level)
    return requester_name


def member(project: UUID, username: str | None) -> User | None:
    """Return the project's member of that name, or None."""
    if not username:
        return None
    return User.objects.filter(username=username, memberships__project=project).first()
