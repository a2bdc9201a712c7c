"""The one writer of Incident, IncidentMember and IncidentEntry: what people say and do about what they look into.

Every word is an entry of the journal under its author's pseudonym: facts hold states, handles and pseudonyms, the body
the text, which can be erased. Nothing vanishes: a member that is taken out stays in the history with the reason.
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
    """Somebody else changed title, state or owner since the page was made. Nothing was changed."""


@transaction.atomic(savepoint=False)
def open_(
    project: Project, title: str, by: User, *, key: str, first: Thing | None = None, why: str = ""
) -> Incident:
    """Open an incident, with its first member and why where there is one. Raises RefusedError.

    The same `key` from the same person again is the same incident.
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
        known = Incident.objects.filter(project=project, opened_position=appended.position).first()
        if known is None or appended.status is Status.CONFLICT:
            raise RefusedError(
                "This form was sent before with other words, and those stand. Open a new form."
            )
        return known
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
    """Set title, state and owner to what the form says, recording what differs; False where nothing does.

    Raises ChangedError when another changed one of them after `version`, RefusedError for what may not stand.
    """
    row = _lock(incident)
    if row.version != version:
        raise ChangedError(
            "It was changed since your page was made; nothing was recorded. Below stands what it is now."
        )
    words, before = _title(title), title_of(row)
    if state not in STATES:
        raise RefusedError(f"A state is one of {', '.join(STATES)}.")
    if owner is not None and (owner.project_id != row.project_id or owner.role == "viewer"):
        raise RefusedError(
            "Choose one of the people of this project who may change things, or nobody."
        )
    facts: dict[str, Any] = {}
    if state != row.state:
        facts |= {"state": state, "state_before": row.state}
    whose = owner.user if owner is not None else None
    if (whose.pk if whose is not None else None) != row.owner_id:
        facts["owner"] = pseudonym_of(whose) if whose is not None else None
        facts["owner_before"] = pseudonym_of(row.owner) if row.owner is not None else None
    said: dict[str, object] = {"title": words} if words != before else {}
    if not facts and not said:
        return False
    now = now_us()
    reason = _reason(why)
    facts |= {"version": row.version + 1, "titled": bool(said)}
    position = _record(row, "incident.changed", by, now, facts, {"reason": reason, **said})
    row.version += 1
    row.state, row.owner = state, whose
    row.closed_at_us = (row.closed_at_us or now) if state == "closed" else None
    if said:
        row.title_position = position
    row.save(update_fields=["version", "state", "owner", "closed_at_us", "title_position"])
    return True


@transaction.atomic(savepoint=False)
def note(incident: Incident, text: str, by: User, *, key: str) -> None:
    """Write a note; the same `key` from the same person again is the same note. Raises RefusedError."""
    row = _lock(incident)
    words = text.replace("\r\n", "\n").strip()
    if not words or len(words) > MOST_NOTE:
        raise RefusedError(f"A note has 1 to {MOST_NOTE:,} characters.")
    _record(row, "incident.noted", by, now_us(), {}, {"text": words}, key)


@transaction.atomic(savepoint=False)
def add(incident: Incident, thing: Thing, why: str, by: User) -> bool:
    """Add a member and say why; False where it belongs to the incident already. Raises RefusedError."""
    row, reason = _lock(incident), _reason(why)
    return _join(row, thing, reason, by, now_us())


@transaction.atomic(savepoint=False)
def remove(incident: Incident, member: UUID, why: str, by: User) -> bool:
    """Take a member out and say why; False where somebody else did before. Raises RefusedError."""
    row, reason = _lock(incident), _reason(why)
    found = IncidentMember.objects.filter(
        incident=row, id=member, removed_position__isnull=True
    ).first()
    if found is None:
        return False
    now = now_us()
    position = _record(
        row, "incident.left", by, now, _facts(found.kind, found.number), {"reason": reason}
    )
    found.removed_at_us, found.removed_position = max(now, found.added_at_us), position
    found.save(update_fields=["removed_at_us", "removed_position"])
    return True


def title_of(incident: Incident) -> str | None:
    """The title that stands; None where it was erased."""
    return titles([incident]).get(incident.id)


def titles(incidents: list[Incident]) -> dict[UUID, str]:
    """The titles of incidents of one project, by id; one that was erased is absent. One query."""
    at = {one.title_position: one.id for one in incidents}
    found = bodies.texts(incidents[0].project_id, at) if incidents else {}
    return {at[position]: str(orjson.loads(text)["title"]) for position, text in found.items()}


def _join(incident: Incident, thing: Thing, reason: str, by: User, now: int) -> bool:
    there = IncidentMember.objects.filter(incident=incident, removed_position__isnull=True)
    if there.filter(kind=thing.kind, number=thing.number).exists():
        return False
    if there.count() >= MOST_MEMBERS:
        raise RefusedError(
            f"An incident has at most {MOST_MEMBERS} members: add the session, or open another one."
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
    """Append an entry about the incident, list it, and return its position. What was sent before is listed once."""
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
        raise RefusedError(f"A title is one line of 1 to {MOST_TITLE} printable characters.")
    return words


def _reason(text: str) -> str:
    words = text.strip()
    if not LEAST_REASON <= len(words) <= MOST_REASON:
        raise RefusedError(f"Say why, in {LEAST_REASON} to {MOST_REASON} characters.")
    return words


def _json(value: dict[str, Any]) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
