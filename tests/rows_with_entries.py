"""Rows that decide, written by hand with the entries that the guards of the database require."""

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import models, transaction

from accounts.models import AgentToken, Membership, Person, TeamMember
from accounts.people import ensure_pseudonym
from db.ids import new_uuid7
from journal import entries

Row = Any  # a model's instance
Facts = dict[str, Any]


def write_entry(
    project: UUID, kind: str, subject: UUID | None, facts: Facts, **columns: Any
) -> int:
    """Append an entry of Gatebook itself and return its position."""
    stored = entries.record_system_entry(
        project,
        kind,
        event_id=columns.pop("event_id", new_uuid7().hex),
        text=orjson.dumps({"kind": kind}).decode(),
        received_us=1,
        facts=entries.dump_sorted_json(facts),
        subject=subject,
        **columns,
    )
    return stored.position


def _member(row: Row, kind: str = "admin.member_added") -> None:
    facts = {"person": ensure_pseudonym(row.user), "role": row.role}
    write_entry(row.project_id, kind, row.id, facts)


def _token(row: Row) -> None:
    ends = row.expires_at
    facts = {
        "agent": row.agent_id.hex,
        "scope": row.scope,
        "expires_us": None if ends is None else int(ends.timestamp() * 1_000_000),
        "digest": bytes(row.digest).hex()[:32],
    }
    write_entry(row.project_id, "admin.token_issued", row.id, facts)


def _team_member(row: Row) -> None:
    facts = {"person": ensure_pseudonym(row.membership.user)}
    write_entry(row.project_id, "admin.team_member_added", row.team_id, facts)


# Model -> what writes the entry of a new row, before it is inserted.
ENTRIES: Final[dict[type[models.Model], Callable[[Row], None]]] = {
    AgentToken: _token,
    Membership: _member,
    TeamMember: _team_member,
}


def add_row(row: Row) -> Row:
    """Insert a row after its entry, in its own savepoint; return it."""
    with transaction.atomic():
        if isinstance(row, Membership | TeamMember):
            user: User = row.user if isinstance(row, Membership) else row.membership.user
            Person.objects.get_or_create(user=user, defaults={"pseudonym": f"p_user_{user.pk}"})
        if type(row) in ENTRIES:
            ENTRIES[type(row)](row)
        row.save(force_insert=True)
    return row


def add_rows(rows: Iterable[Row]) -> list[Row]:
    """Insert each row after its entry."""
    return [add_row(row) for row in rows]


def change_roles(members: "models.QuerySet[Membership]", role: str) -> None:
    """Give members a role, whatever the verbs would refuse."""
    with transaction.atomic():
        for member in members.select_related("user"):
            member.role = role
            _member(member, "admin.member_changed")
            member.save(update_fields=["role"])


def remove_members(members: "models.QuerySet[Membership]") -> None:
    """Remove members, whatever the verbs would refuse."""
    with transaction.atomic():
        for member in members.select_related("user"):
            for listed in TeamMember.objects.filter(membership=member):
                facts = {"person": ensure_pseudonym(member.user)}
                write_entry(listed.project_id, "admin.team_member_removed", listed.team_id, facts)
                listed.delete()
            _member(member, "admin.member_removed")
            member.delete()
