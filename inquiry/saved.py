"""The one writer of SavedQuery: what people keep of what they ask, recorded as what people do."""

from typing import Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from inquiry.models_saved import SavedQuery
from inquiry.query import asking
from inquiry.query.tree import Fault
from journal import entries
from journal.clock import now_us
from journal.ids import uuid7
from sessions.models import Membership, Project
from sessions.people import pseudonym_of
from sessions.refused import RefusedError

MOST_NAME: Final = 80
MOST: Final = 200  # of one person in one project


def visible(membership: Membership) -> "QuerySet[SavedQuery]":
    """A member's own queries and those that others share, by name."""
    rows = SavedQuery.objects.filter(Q(owner=membership.user) | Q(shared=True), project=membership.project)
    return rows.select_related("owner").order_by("name", "id")


def one(membership: Membership, identity: UUID) -> SavedQuery | None:
    """The query of that id, as far as the member may know of it."""
    return visible(membership).filter(id=identity).first()


@transaction.atomic(savepoint=False)
def save(project: Project, owner: User, name: str, text: str, *, shared: bool) -> SavedQuery:
    """Keep `text` under a new name of its owner's. Raises RefusedError."""
    name, text = _checked(project, name, text)
    own = SavedQuery.objects.filter(project=project, owner=owner)
    if own.filter(name=name).exists():
        raise RefusedError(f"You have saved a query as “{name}” already. Give this one another name, or change that.")
    if own.count() >= MOST:
        raise RefusedError(f"You have saved {MOST} queries here. Delete one first.")
    now, made = now_us(), uuid7()
    position = _record(project, made, "query.saved", owner, now, name, text, shared, 1)
    return SavedQuery.objects.create(
        id=made,
        project=project,
        owner=owner,
        name=name,
        text=text,
        shared=shared,
        saved_position=position,
        created_at_us=now,
        changed_at_us=now,
    )


@transaction.atomic(savepoint=False)
def change(saved: SavedQuery, owner: User, name: str, text: str, *, shared: bool, version: int) -> bool:
    """Set name, text and who finds it; False where nothing differs.

    Raises RefusedError, also when it is another's, was deleted, or was changed after `version`.
    """
    name, text = _checked(saved.project, name, text)
    row = _lock(saved, owner)
    if row.version != version:
        raise RefusedError("It was changed since this page was made; nothing was saved. Open it again.")
    if (row.name, row.text, row.shared) == (name, text, shared):
        return False
    others = SavedQuery.objects.filter(project=row.project_id, owner=owner, name=name).exclude(pk=row.pk)
    if others.exists():
        raise RefusedError(f"You have saved a query as “{name}” already. Choose another name.")
    now = now_us()
    row.version += 1
    row.saved_position = _record(row.project, row.id, "query.changed", owner, now, name, text, shared, row.version)
    row.name, row.text, row.shared, row.changed_at_us = name, text, shared, max(now, row.created_at_us)
    row.save()
    return True


@transaction.atomic(savepoint=False)
def delete(saved: SavedQuery, owner: User) -> None:
    """Forget it; the journal keeps that it was. Raises RefusedError when it is another's, or gone."""
    row = _lock(saved, owner)
    _record(row.project, row.id, "query.deleted", owner, now_us(), row.name, row.text, row.shared, row.version)
    row.delete()


def _lock(saved: SavedQuery, owner: User) -> SavedQuery:
    row = SavedQuery.objects.select_for_update().filter(pk=saved.pk, owner=owner).first()
    if row is None:
        raise RefusedError("Only its owner changes a saved query, and this one may be gone.")
    return row


def _checked(project: Project, name: str, text: str) -> tuple[str, str]:
    name, text = " ".join(name.split()), text.strip()
    if not name or len(name) > MOST_NAME or not name.isprintable():
        raise RefusedError(f"Give it a name of 1 to {MOST_NAME} characters.")
    if not text:
        raise RefusedError("There is no query to save.")
    try:
        asking.understand(text, project, now_us())
    except Fault as fault:
        raise RefusedError(f"This is no query yet: {fault.sentence}") from None
    return name, text


def _record(
    project: Project, made: UUID, kind: str, owner: User, now: int, name: str, text: str, shared: bool, version: int
) -> int:
    facts = {"shared": shared, "version": version}
    words = {"kind": kind, "name": name, "q": text, **facts}
    return entries.record(
        project.id,
        kind,
        event_id=entries.keyed_digest(kind, made.hex, str(version)),
        text=orjson.dumps(words, option=orjson.OPT_SORT_KEYS).decode(),
        received_us=now,
        actor=pseudonym_of(owner),
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        subject=made,
    ).position
