"""What an opening says of a session: in the journal's words, and whether a second one agrees. Writes nothing."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User

from journal.text import column_text
from sessions import registers
from sessions.models import Session
from sessions.people import pseudonym_of

MOST_ABOVE: Final = 100  # sessions that are asked for whom they work


def started_facts(project: UUID, values: Mapping[str, Any], parent: UUID | None) -> dict[str, Any]:
    """What a start says in the journal's own words; on whose behalf as a pseudonym, where it names a member."""
    facts = {"mode": values.get("mode") or "reported", "parent": parent}
    person = member(project, values.get("on_behalf_of"))
    return facts if person is None else facts | {"on_behalf_of": pseudonym_of(person)}


def agrees(row: Session, values: Mapping[str, Any], parent: UUID | None, stem: UUID | None, agent: UUID) -> bool:
    """True when a second opening describes the session as the first did; what it leaves out is not compared.

    Labels that the session does not have yet agree where its own agent sends them: they are added. `parent` and `stem`
    are the sessions under which it stands and from which it branched.
    """
    repository = row.repository.name if row.repository else None
    told = {"repository": repository, "branch": row.branch, "mode": row.mode}
    told["title"] = registers.first_title(row)
    for name, person in (("owner", row.owner), ("on_behalf_of", row.on_behalf_of)):
        told[name] = person.get_username() if person is not None else None
    asked = {**values, "title": column_text(values.get("title") or "")}
    differs = any(asked.get(name) and asked[name] != told[name] for name in told)
    labels = values.get("labels") or {}
    mine = row.agent_id == agent
    differs |= any(row.labels.get(name, value if mine else None) != value for name, value in labels.items())
    return not differs and parent in (None, row.parent_id) and stem in (None, row.branched_from_id)


def requester(session: UUID) -> str | None:
    """The name of whom a session works for: whom the farthest one above or before it names, else whom it names.

    A session that was reported may have come before those, or name somebody else than they do, so this is asked where
    it matters and not when it is kept.
    """
    seen, level, found = {session}, [session], None
    while level and len(seen) <= MOST_ABOVE:
        rows = list(
            Session.objects.filter(id__in=level).values_list("on_behalf_of__username", "parent_id", "branched_from_id")
        )
        found = min((name for name, _, _ in rows if name), default=found)
        level = [one for _, *above in rows for one in above if one is not None and one not in seen]
        seen.update(level)
    return found


def member(project: UUID, username: str | None) -> User | None:
    """The member of that name, or None."""
    if not username:
        return None
    return User.objects.filter(username=username, memberships__project=project).first()
