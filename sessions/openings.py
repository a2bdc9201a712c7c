"""What an opening says of a session: in the journal's words, and whether a second one agrees. Writes nothing."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User

from journal.text import column_text
from sessions import registers
from sessions.models import Session
from sessions.people import pseudonym_of


def started_facts(project: UUID, values: Mapping[str, Any], parent: UUID | None) -> dict[str, Any]:
    """What a start says in the journal's own words; on whose behalf as a pseudonym, where it names a member."""
    facts = {"mode": values.get("mode") or "reported", "parent": parent}
    person = member(project, values.get("on_behalf_of"))
    return facts if person is None else facts | {"on_behalf_of": pseudonym_of(person)}


def agrees(row: Session, values: Mapping[str, Any], parent: UUID | None, stem: UUID | None) -> bool:
    """True when a second opening describes the session as the first did; what it leaves out is not compared.

    `parent` and `stem` are the sessions under which it stands and from which it branched.
    """
    repository = row.repository.name if row.repository else None
    told = {"repository": repository, "branch": row.branch, "mode": row.mode, "labels": row.labels}
    told["title"] = registers.first_title(row)
    for name, person in (("owner", row.owner), ("on_behalf_of", row.on_behalf_of)):
        told[name] = person.get_username() if person is not None else None
    asked = {**values, "title": column_text(values.get("title") or "")}
    differs = any(asked.get(name) and asked[name] != told[name] for name in told)
    return not differs and parent in (None, row.parent_id) and stem in (None, row.branched_from_id)


def member(project: UUID, username: str | None) -> User | None:
    """The member of that name, or None."""
    if not username:
        return None
    return User.objects.filter(username=username, memberships__project=project).first()
