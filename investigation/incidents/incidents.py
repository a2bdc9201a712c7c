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

from accounts.models import Membership, Project
from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from display import entry_bodies
from display.references import Reference
from investigation.models import INCIDENT_STATES, Incident, IncidentEntry, IncidentMember
from journal import entries
from journal.entries import AppendStatus

MAX_TITLE: Final = 200
MIN_REASON: Final = 3
MAX_REASON: Final = 2000
MAX_NOTE: Final = 10_000
MAX_MEMBERS: Final = 200
MAX_KEY: Final = 64


class IncidentConflictError(ChangeRefused):
    """Title, state or owner changed since the page was loaded. Nothing was stored."""


@transaction.atomic(savepoint=False)
def open_incident(
    project: Project,
    title: str,
    by: User,
    *,
    key: str,
    first: Reference | None = None,
    why: str = "",
) -> Incident:
    """Open an incident, optionally with a first member and reason. Raises ChangeRefused.

    Idempotent by `key` and person.
    """
    words = _check_title(title)
    reason = _check_reason(why) if first is not None else ""
    now, actor, made = now_us(), ensure_pseudonym(by), new_uuid7()
    appended = entries.record_system_entry(
        project.id,
        "incident.opened",
        event_id=_event_id("incident.opened", actor, str(project.id), key),
        text=entries.dump_sorted_json({"kind": "incident.opened", "title": words}),
        received_us=now,
        actor=actor,
        facts=entries.dump_sorted_json({"state": "open"}),
        subject=made,
    )
    if appended.status is not AppendStatus.CREATED:
        existing = Incident.objects.filter(
            project=project, opened_position=appended.position
        ).first()
        if existing is None or appended.status is AppendStatus.CONFLICT:
            raise ChangeRefused(
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
        _add_member(incident, first, reason, by, now)
    return incident


@transaction.atomic(savepoint=False)
def change_incident(
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

    Raises IncidentConflictError if one of them changed after `version`, ChangeRefused for invalid
    values.
    """
    row = _lock_incident(incident)
    if row.version != version:
        raise IncidentConflictError(
            "The incident changed since you loaded the page. Nothing was saved; check the"
            " current values below."
        )
    words, before = _check_title(title), load_title(row)
    if state not in INCIDENT_STATES:
        raise ChangeRefused(f"Unknown state. Choose one of {', '.join(INCIDENT_STATES)}.")
    if owner is not None and (owner.project_id != row.project_id or owner.role == "viewer"):
        raise ChangeRefused(
            "Unknown owner. Choose a member of this project who is not a viewer, or nobody."
        )
    facts: dict[str, Any] = {}
    if state != row.state:
        facts |= {"state": state, "state_before": row.state}
    whose = owner.user if owner is not None else None
    if (whose.pk if whose is not None else None) != row.owner_id:
        facts["owner"] = ensure_pseudonym(whose) if whose is not None else None
        facts["owner_before"] = ensure_pseudonym(row.owner) if row.owner is not None else None
    new_title: dict[str, object] = {"title": words} if words != before else {}
    if not facts and not new_title:
        return False
    now = now_us()
    reason = _check_reason(why)
    facts |= {"version": row.version + 1, "titled": bool(new_title)}
    position = _record_entry(
        row, "incident.changed", by, now, facts, {"reason": reason, **new_title}
    )
    row.version += 1
    row.state, row.owner = state, whose
    row.closed_at_us = (row.closed_at_us or now) if state == "closed" else None
    if new_title:
        row.title_position = position
    row.save(update_fields=["version", "state", "owner", "closed_at_us", "title_position"])
    return True


@transaction.atomic(savepoint=False)
def add_note(incident: Incident, text: str, by: User, *, key: str) -> None:
    """Add a note. Idempotent by `key` and person. Raises ChangeRefused."""
    row = _lock_incident(incident)
    words = text.replace("\r\n", "\n").strip()
    if not words or len(words) > MAX_NOTE:
        raise ChangeRefused(f"Enter a note of 1 to {MAX_NOTE:,} characters.")
    _record_entry(row, "incident.noted", by, now_us(), {}, {"text": words}, key)


@transaction.atomic(savepoint=False)
def add_member(incident: Incident, thing: Reference, why: str, by: User) -> bool:
    """Add a member with a reason; return False if already a member. Raises ChangeRefused."""
    row, reason = _lock_incident(incident), _check_reason(why)
    return _add_member(row, thing, reason, by, now_us())


@transaction.atomic(savepoint=False)
def remove_member(incident: Incident, member: UUID, why: str, by: User) -> bool:
    """Remove a member with a reason; return False if already removed. Raises ChangeRefused."""
    row, reason = _lock_incident(incident), _check_reason(why)
    row_of_member = IncidentMember.objects.filter(
        incident=row, id=member, removed_position__isnull=True
    ).first()
    if row_of_member is None:
        return False
    now = now_us()
    position = _record_entry(
        row,
        "incident.left",
        by,
        now,
        _member_facts(row_of_member.kind, row_of_member.number),
        {"reason": reason},
    )
    row_of_member.removed_at_us, row_of_member.removed_position = (
        max(now, row_of_member.added_at_us),
        position,
    )
    row_of_member.save(update_fields=["removed_at_us", "removed_position"])
    return True


def load_title(incident: Incident) -> str | None:
    """Return the current title; None once erased."""
    return load_titles([incident]).get(incident.id)


def load_titles(incidents: list[Incident]) -> dict[UUID, str]:
    """Return titles by incident id, for one project, without erased titles. One query."""
    at = {incident.title_position: incident.id for incident in incidents}
    texts = entry_bodies.load_body_texts(incidents[0].project_id, at) if incidents else {}
    return {at[position]: str(orjson.loads(text)["title"]) for position, text in texts.items()}


def _add_member(incident: Incident, thing: Reference, reason: str, by: User, now: int) -> bool:
    there = IncidentMember.objects.filter(incident=incident, removed_position__isnull=True)
    if there.filter(kind=thing.kind, number=thing.number).exists():
        return False
    if there.count() >= MAX_MEMBERS:
        raise ChangeRefused(
            f"The incident already has {MAX_MEMBERS} items. Add the session, or open another."
        )
    position = _record_entry(
        incident,
        "incident.joined",
        by,
        now,
        _member_facts(thing.kind, thing.number),
        {"reason": reason},
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


def _lock_incident(incident: Incident) -> Incident:
    return Incident.objects.select_for_update().get(pk=incident.pk)


def _record_entry(
    incident: Incident,
    kind: str,
    by: User,
    now: int,
    facts: dict[str, Any],
    words: dict[str, object],
    key: str = "",
) -> int:
    """Append an entry about the incident, list it once, and return its position."""
    actor = ensure_pseudonym(by)
    appended = entries.record_system_entry(
        incident.project_id,
        kind,
        event_id=_event_id(kind, actor, str(incident.id), key) if key else new_uuid7().hex,
        text=entries.dump_sorted_json({"kind": kind, **words}),
        received_us=now,
        actor=actor,
        facts=entries.dump_sorted_json(facts),
        subject=incident.id,
    )
    if appended.status is AppendStatus.CREATED:
        IncidentEntry.objects.create(incident=incident, position=appended.position)
        later = Incident.objects.filter(pk=incident.pk, changed_at_us__lt=now)
        later.update(changed_at_us=now)
    return appended.position


def _event_id(kind: str, actor: str, about: str, key: str) -> str:
    return entries.keyed_digest(kind, actor, about, key[:MAX_KEY])


def _member_facts(kind: str, number: int) -> dict[str, Any]:
    return {"member": kind, "number": number}


def _check_title(text: str) -> str:
    words = " ".join(text.split())
    if not 1 <= len(words) <= MAX_TITLE or not words.isprintable():
        raise ChangeRefused(f"Enter a title of 1 to {MAX_TITLE} printable characters on one line.")
    return words


def _check_reason(text: str) -> str:
    words = text.strip()
    if not MIN_REASON <= len(words) <= MAX_REASON:
        raise ChangeRefused(f"Enter a reason of {MIN_REASON} to {MAX_REASON} characters.")
    return words
