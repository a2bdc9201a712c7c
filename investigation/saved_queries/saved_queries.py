"""The one writer of SavedQuery. Every change is recorded in the journal."""

from typing import Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.models import Membership, Project
from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from investigation.models import SavedQuery
from investigation.query import execute
from investigation.query.parser.ast import QueryError
from journal import entries

MAX_SAVED_NAME: Final = 80
MAX_SAVED_QUERIES: Final = 200  # Per person and project.


def visible_saved_queries(membership: Membership) -> "QuerySet[SavedQuery]":
    """Return a member's own queries and the shared ones, by name."""
    rows = SavedQuery.objects.filter(
        Q(owner=membership.user) | Q(shared=True), project=membership.project
    )
    return rows.select_related("owner").order_by("name", "id")


def get_saved_query(membership: Membership, identity: UUID) -> SavedQuery | None:
    """Return the query of that id if the member may see it, or None."""
    return visible_saved_queries(membership).filter(id=identity).first()


@transaction.atomic(savepoint=False)
def save_query(project: Project, owner: User, name: str, text: str, *, shared: bool) -> SavedQuery:
    """Save `text` under a new name. Raises ChangeRefused."""
    name, text = _validate(project, name, text)
    own_queries = SavedQuery.objects.filter(project=project, owner=owner)
    if own_queries.filter(name=name).exists():
        raise ChangeRefused(f"You already have a saved query “{name}”. Choose another name.")
    if own_queries.count() >= MAX_SAVED_QUERIES:
        raise ChangeRefused(
            f"You already have {MAX_SAVED_QUERIES} saved queries in this project. Delete one first."
        )
    saved_us, query_id = now_us(), new_uuid7()
    position = _record_change(
        project, query_id, "query.saved", owner, saved_us, name, text, shared, 1
    )
    return SavedQuery.objects.create(
        id=query_id,
        project=project,
        owner=owner,
        name=name,
        text=text,
        shared=shared,
        saved_position=position,
        created_at_us=saved_us,
        changed_at_us=saved_us,
    )


@transaction.atomic(savepoint=False)
def change_saved_query(
    saved: SavedQuery, owner: User, name: str, text: str, *, shared: bool, version: int
) -> bool:
    """Change name, text and sharing; return False if nothing differs.

    Raises ChangeRefused, also if the query is another person's, was deleted, or was changed after
    `version`.
    """
    name, text = _validate(saved.project, name, text)
    row = _lock_saved_query(saved, owner)
    if row.version != version:
        raise ChangeRefused(
            "The query was changed in the meantime; nothing was saved. Open the page again."
        )
    if (row.name, row.text, row.shared) == (name, text, shared):
        return False
    same_name = SavedQuery.objects.filter(project=row.project_id, owner=owner, name=name).exclude(
        pk=row.pk
    )
    if same_name.exists():
        raise ChangeRefused(f"You already have a saved query “{name}”. Choose another name.")
    changed_us = now_us()
    row.version += 1
    row.saved_position = _record_change(
        row.project, row.id, "query.changed", owner, changed_us, name, text, shared, row.version
    )
    row.name, row.text, row.shared, row.changed_at_us = (
        name,
        text,
        shared,
        max(changed_us, row.created_at_us),
    )
    row.save()
    return True


@transaction.atomic(savepoint=False)
def delete_saved_query(saved: SavedQuery, owner: User) -> None:
    """Delete the query; the journal keeps its entries. Raises ChangeRefused like
    `change_saved_query`."""
    row = _lock_saved_query(saved, owner)
    _record_change(
        row.project,
        row.id,
        "query.deleted",
        owner,
        now_us(),
        row.name,
        row.text,
        row.shared,
        row.version,
    )
    row.delete()


def _lock_saved_query(saved: SavedQuery, owner: User) -> SavedQuery:
    row = SavedQuery.objects.select_for_update().filter(pk=saved.pk, owner=owner).first()
    if row is None:
        raise ChangeRefused(
            "The query is not yours or was deleted. Only the owner of a saved query can change it."
        )
    return row


def _validate(project: Project, name: str, text: str) -> tuple[str, str]:
    name, text = " ".join(name.split()), text.strip()
    if not name or len(name) > MAX_SAVED_NAME or not name.isprintable():
        raise ChangeRefused(f"The name is not valid. Enter 1 to {MAX_SAVED_NAME} characters.")
    if not text:
        raise ChangeRefused("The query is empty. Enter a query.")
    try:
        execute.compile_query(text, project, now_us())
    except QueryError as fault:
        raise ChangeRefused(f"The query is not valid. {fault.sentence}") from None
    return name, text


def _record_change(
    project: Project,
    query_id: UUID,
    kind: str,
    owner: User,
    recorded_us: int,
    name: str,
    text: str,
    shared: bool,
    version: int,
) -> int:
    facts = {"shared": shared, "version": version}
    body = {"kind": kind, "name": name, "q": text, **facts}
    return entries.record_system_entry(
        project.id,
        kind,
        event_id=entries.keyed_digest(kind, query_id.hex, str(version)),
        text=entries.dump_sorted_json(body),
        received_us=recorded_us,
        actor=ensure_pseudonym(owner),
        facts=entries.dump_sorted_json(facts),
        subject=query_id,
    ).position
