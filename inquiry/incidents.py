"""The one writer of Incident, IncidentMember and IncidentEntry.

Every change is a journal entry under the author's pseudonym: facts hold states, handles and
pseudonyms; the body holds the text, which can be erased. A removed member stays in the history with
the reason.
"""

from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import transaction

from inquiry import bodies
from inquiry.models_incidents import STATES, Incident, IncidentEntry, IncidentMember
from inquiry.things import Thing
from journal import entries
from journal.clock import now_us
from journal.entries import Status
from journal.ids import uuid7
from sessions.models import Membership, Project
from sessions.people import pseudonym_of
from sessions.refused import RefusedError

MOST_TITLE: Final = 200
LEAST_REASON: Final = 3
MOST_REASON: Final = 2000
MOST_NOTE: Final = 10_000
MOST_MEMBERS: Final = 200
LONGEST_KEY: Final = 64


class ChangedError(RefusedError):
    """Title, state or owner changed since the page was loaded. Nothing was stored."""


@transaction.atomic(savepoint=False)
def open_(
    project: Project, title: str, by: User, *, key: str, first: Thing | None = None, why: str = ""
) -> Incident:
    """Open an incident, optionally with a first member and reason. Raises RefusedError.

    Idempotent by `key` and person.
    """
    words = _title(title)
    reason = _reason(why) if first is not None else ""
    now, actor, made = now_us(), pseudonym_of(by), uuid7()
    appended = entries.record(
        project.id,
        "incident.opened",
        event_id=_event("incident.opened", actor, str(project.id), key),
        text=_json({"kind": "incident.opened", "title": words}),
        received_us=now,
        actor=actor,
        facts=_json({"state": "open"}),
        subject=made,
    )
    if appended.status is not Status.CREATED:
        existing = Incident.objects.filter(
            project=project, opened_position=appended.position
        ).first()
        if existing is None or appended.status is Status.CONFLICT:
            raise RefusedError(
                "This form was already submitted with different values. Open a new form."
            )
        return existing
    incident = Incident.objects.create(
        id=made,
        project=project,
        opened_position=appended.position,
        title_position=appended.position,
        opened_by=by,
        opened_at_us=now,
        changed_at_us=now,
    )
    IncidentEntry.objects.create(incident=incident, position=appended.position)
    if first is not None:
        _join(incident, first, reason, by, now)
    return incident


@transaction.atomic(savepoint=False)
def change(
    incident: Incident,
    by: User,
    *,
    version: int,
    title: str,
    state: str,
    owner: Membership | None,
    why: str,
) -> bool:
    """Set title, state and owner, recording the differences; return False without any.

    Raises ChangedError if one of them changed after `version`, RefusedError for invalid values.
    """
    row = _lock(incident)
    if row.version != version:
        raise ChangedError(
            "The incident changed since you loaded the page. Nothing was saved; check the"
            " current values below."
        )
    words, before = _title(title), title_of(row)
    if state not in STATES:
        raise RefusedError(f"Unknown state. Choose one of {', '.join(STATES)}.")
    if owner is not None and (owner.project_id != row.project_id or owner.role == "viewer"):
        raise RefusedError(
            "Unknown owner. Choose a member of this project who is not a viewer, or nobody."
        )
    facts: dict[str, Any] = {}
    if state != row.state:
        facts |= {"state": state, "state_before": row.state}
    whose = owner.user if owner is not None else None
    if (whose.pk if whose is not None else None) != row.owner_id:
        facts["owner"] = pseudonym_of(whose) if whose is not None else None
        facts["owner_before"] = pseudonym_of(row.owner) if row.owner is not None else None
    new_title: dict[str, object] = {"title": words} if words != before else {}
    if not facts and not new_title:
        return False
    now = now_us()
    reason = _reason(why)
    facts |= {"version": row.version + 1, "titled": bool(new_title)}
    position = _record(row, "incident.changed", by, now, facts, {"reason": reason, **new_title})
    row.version += 1
    row.state, row.owner = state, whose
    row.closed_at_us = (row.closed_at_us or now) if state == "closed" else None
    if new_title:
        row.title_position = position
    row.save(update_fields=["version", "state", "owner", "closed_at_us", "title_position"])
    return True


@transaction.atomic(savepoint=False)
def note(incident: Incident, text: str, by: User, *, key: str) -> None:
    """Add a note. Idempotent by `key` and person. Raises RefusedError."""
    row = _lock(incident)
    words = text.replace("\r\n", "\n").strip()
    if not words or len(words) > MOST_NOTE:
        raise RefusedError(f"Enter a note of 1 to {MOST_NOTE:,} characters.")
    _record(row, "incident.noted", by, now_us(), {}, {"text": words}, key)


@transaction.atomic(savepoint=False)
def add(incident: Incident, thing: Thing, why: str, by: User) -> bool:
    """Add a member with a reason; return False if already a member. Raises RefusedError."""
    row, reason = _lock(incident), _reason(why)
    return _join(row, thing, reason, by, now_us())


@transaction.atomic(savepoint=False)
def remove(incident: Incident, member: UUID, why: str, by: User) -> bool:
    """Remove a member with a reason; return False if already removed. Raises RefusedError."""
    row, reason = _lock(incident), _reason(why)
    row_of_member = IncidentMember.objects.filter(
        incident=row, id=member, removed_position__isnull=True
    ).first()
    if row_of_member is None:
        return False
    now = now_us()
    position = _record(
        row,
        "incident.left",
        by,
        now,
        _facts(row_of_member.kind, row_of_member.number),
        {"reason": reason},
    )
    row_of_member.removed_at_us, row_of_member.removed_position = (
        max(now, row_of_member.added_at_us),
        position,
    )
    row_of_member.save(update_fields=["removed_at_us", "removed_position"])
    return True


def title_of(incident: Incident) -> str | None:
    """Return the current title; None once erased."""
    return titles([incident]).get(incident.id)


def titles(incidents: list[Incident]) -> dict[UUID, str]:
    """Return titles by incident id, for one project, without erased titles. One query."""
    at = {incident.title_position: incident.id for incident in incidents}
    texts = bodies.texts(incidents[0].project_id, at) if incidents else {}
    return {at[position]: str(orjson.loads(text)["title"]) for position, text in texts.items()}


def _join(incident: Incident, thing: Thing, reason: str, by: User, now: int) -> bool:
    there = IncidentMember.objects.filter(incident=incident, removed_position__isnull=True)
    if there.filter(kind=thing.kind, number=thing.number).exists():
        return False
    if there.count() >= MOST_MEMBERS:
        raise RefusedError(
            f"The incident already has {MOST_MEMBERS} items. Add the session, or open another."
        )
    position = _record(
        incident, "incident.joined", by, now, _facts(thing.kind, thing.number), {"reason": reason}
    )
    IncidentMember.objects.create(
        project_id=incident.project_id,
        incident=incident,
        kind=thing.kind,
        number=thing.number,
        added_by=by,
        added_at_us=now,
        added_position=position,
    )
    return True


def _lock(incident: Incident) -> Incident:
    return Incident.objects.select_for_update().get(pk=incident.pk)


def _record(
    incident: Incident,
    kind: str,
    by: User,
    now: int,
    facts: dict[str, Any],
    words: dict[str, object],
    key: str = "",
) -> int:
    """Append an entry about the incident, list it once, and return its position."""
    actor = pseudonym_of(by)
    appended = entries.record(
        incident.project_id,
        kind,
        event_id=_event(kind, actor, str(incident.id), key) if key else uuid7().hex,
        text=_json({"kind": kind, **words}),
        received_us=now,
        actor=actor,
        facts=_json(facts),
        subject=incident.id,
    )
    if appended.status is Status.CREATED:
        IncidentEntry.objects.create(incident=incident, position=appended.position)
        later = Incident.objects.filter(pk=incident.pk, changed_at_us__lt=now)
        later.update(changed_at_us=now)
    return appended.position


def _event(kind: str, actor: str, about: str, key: str) -> str:
    return entries.keyed_digest(kind, actor, about, key[:LONGEST_KEY])


def _facts(kind: str, number: int) -> dict[str, Any]:
    return {"member": kind, "number": number}


def _title(text: str) -> str:
    words = " ".join(text.split())
    if not 1 <= len(words) <= MOST_TITLE or not words.isprintable():
        raise RefusedError(f"Enter a title of 1 to {MOST_TITLE} printable characters on one line.")
    return words


def _reason(text: str) -> str:
    words = text.strip()
    if not LEAST_REASON <= len(words) <= MOST_REASON:
        raise RefusedError(f"Enter a reason of {LEAST_REASON} to {MOST_REASON} characters.")
    return words


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
