"""Queries of the incident pages: the list, and one incident with members and history."""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Count, Exists, F, JSONField, OuterRef, QuerySet, Subquery
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from accounts.models import Membership, Person, Project
from approvals.gates.gates import current_gate_status
from display import keyset_pagination, references
from display.keyset_pagination import Window
from display.references import EFFECT, ENTRY, GATE, SESSION
from investigation.models import INCIDENT_STATES, Incident, IncidentEntry, IncidentMember
from journal.entry_times import read_stated_us
from journal.models import Body, Entry
from recovery import liveness
from sessions.models import select_body_text

PAGE: Final = 50
HISTORY_PAGE: Final = 100  # entries on one page
MAX_CHOICES: Final = 50  # incidents offered when adding an item


@dataclass(slots=True)
class MemberView:
    """A shown member. `thing` is its row or None; `why` is None once erased."""

    row: IncidentMember
    name: str
    url: str
    thing: Any
    why: str | None
    who: str


@dataclass(slots=True)
class HistoryItem:
    """One history entry. `text` and `title` are written by people, None if absent or erased."""

    position: int
    kind: str
    who: str
    at_us: int
    facts: dict[str, Any]
    text: str | None = None
    title: str | None = None
    erased: bool = False
    owner: str | None = None  # user name if the owner changed
    member: str = ""  # handle of the item added or removed


@dataclass(slots=True)
class IncidentDetails:
    """An incident without its timeline, whose contents are `sessions` and `effects`."""

    members: list[MemberView] = field(default_factory=list)
    history: list[HistoryItem] = field(default_factory=list)  # oldest first
    earlier: int | None = None  # value of `before` for the previous page
    sessions: list[UUID] = field(default_factory=list)
    effects: list[UUID] = field(default_factory=list)


def list_incidents(project: Project, state: str, window: Window) -> keyset_pagination.Page[Any]:
    """Load incidents, newest first; erased ones have `title` None. One query."""
    rows = _query_incidents(project)
    if state in INCIDENT_STATES:
        rows = rows.filter(state=state)
    page = keyset_pagination.load_keyset_page(rows, PAGE, window)
    for row in page.rows:
        row.title = _text_field(row.title_text, "title")
    return page


def load_incident(project: Project, identity: UUID) -> Any | None:
    """Load an incident with `title`, owner and opener; None outside the project. One query."""
    row = _query_incidents(project).filter(id=identity).first()
    if row is not None:
        row.title = _text_field(row.title_text, "title")
    return row


def list_open_incidents(project: Project) -> list[Any]:
    """List the newest incidents that are not closed, for a form. One query."""
    rows = list(
        _query_incidents(project).exclude(state="closed").order_by("-opened_position")[:MAX_CHOICES]
    )
    for row in rows:
        row.title = _text_field(row.title_text, "title")
    return rows


def incident_member_condition(kind: str) -> Exists:
    """Return the condition that a row of a kind belongs to an incident now."""
    there = IncidentMember.objects.filter(
        project=OuterRef("project"), kind=kind, number=OuterRef("opened_position")
    )
    return Exists(there.filter(removed_position__isnull=True))


def list_row_incidents(thing: Any, kind: str) -> list[Incident]:
    """List the incidents of a row read with `in_incident`, newest first. No query if none."""
    if not thing.in_incident:
        return []
    there = IncidentMember.objects.filter(
        project=thing.project_id, kind=kind, number=thing.opened_position
    )
    there = there.filter(removed_position__isnull=True)
    rows = Incident.objects.filter(id__in=there.values("incident")).order_by("-opened_position")
    return list(rows[:PAGE])


def list_owners(project: Project) -> list[Membership]:
    """List the people who can own an incident, by name. One query."""
    members = Membership.objects.filter(project=project).exclude(role="viewer")
    return list(members.select_related("user").order_by("user__username"))


def load_member(incident: Incident, identity: UUID) -> IncidentMember | None:
    """Load a current member of the incident."""
    return IncidentMember.objects.filter(
        incident=incident, id=identity, removed_position__isnull=True
    ).first()


def load_details(
    project: Project, incident: Incident, now: int, before: int | None = None
) -> IncidentDetails:
    """Load members and history of an incident. Two queries for any number of members."""
    result = IncidentDetails()
    rows = IncidentMember.objects.filter(
        incident=incident, removed_position__isnull=True
    ).select_related("added_by")
    members: QuerySet[Any] = rows.annotate(
        text=select_body_text("added_position"), reference_json=references.referenced_object_json()
    )
    things_by_kind: dict[str, list[Any]] = {kind: [] for kind in references.KINDS}
    for member in members.order_by("added_position"):
        thing = (
            references.model_from_reference_json(member.kind, member.reference_json)
            if member.reference_json is not None
            else None
        )
        if thing is not None and member.kind == GATE:
            thing.status = current_gate_status(thing, now)
        if thing is not None:
            things_by_kind[member.kind].append(thing)
        result.members.append(_member_view(member, thing))
    liveness.attach_liveness(things_by_kind[SESSION])
    result.sessions = [thing.id for thing in things_by_kind[SESSION]]
    alone = [
        _effect_of_member(kind, thing)
        for kind in (EFFECT, GATE, ENTRY)
        for thing in things_by_kind[kind]
    ]
    result.effects = [effect for effect in dict.fromkeys(alone) if effect is not None]
    result.history, result.earlier = _load_history(incident, before)
    return result


def _query_incidents(project: Project) -> "QuerySet[Any]":
    there = IncidentMember.objects.filter(
        incident=OuterRef("pk"), removed_position__isnull=True
    ).order_by()
    present = Subquery(there.values("incident").annotate(n=Count("id")).values("n"))
    rows = Incident.objects.filter(project=project).select_related("owner", "opened_by")
    return rows.annotate(
        title_text=select_body_text("title_position"), member_count=Coalesce(present, 0)
    )


def _effect_of_member(kind: str, thing: Any) -> UUID | None:
    """Return the effect that shows a member in the timeline: its own, its gate's or its entry's."""
    effect_id: UUID | None = (
        thing.id if kind == EFFECT else thing.effect_id if kind == GATE else thing.effect
    )
    return effect_id


def _member_view(row: Any, thing: Any) -> MemberView:
    url = references.reference_url(row.kind, row.number, getattr(thing, "id", None))
    why = _text_field(row.text, "reason")
    return MemberView(
        row,
        references.reference_handle(row.kind, row.number),
        url,
        thing,
        why,
        row.added_by.get_username(),
    )


def _load_history(incident: Incident, before: int | None) -> tuple[list[HistoryItem], int | None]:
    listed = IncidentEntry.objects.filter(incident=incident)
    if before is not None:
        listed = listed.filter(position__lt=before)
    at = listed.order_by("-position").values("position")[: HISTORY_PAGE + 1]
    owner = KeyTextTransform("owner", Cast("facts", JSONField()))
    entries = Entry.objects.filter(position__in=at).annotate(
        text=Subquery(Body.objects.filter(entry=OuterRef("pk")).values("text")),
        who=_username_of("actor"),
        owner_pseudonym=owner,
        owner_name=_username_of("owner_pseudonym"),
    )
    rows = list(entries.annotate(erased=F("erasure__erased_at_us")).order_by("position"))
    more = len(rows) > HISTORY_PAGE
    rows = rows[-HISTORY_PAGE:]
    return [_history_item(entry) for entry in rows], rows[0].position if more else None


def _username_of(column: str) -> Subquery:
    return Subquery(Person.objects.filter(pseudonym=OuterRef(column)).values("user__username")[:1])


def _history_item(entry: Any) -> HistoryItem:
    facts = orjson.loads(entry.facts)
    item = HistoryItem(
        entry.position, entry.kind, entry.who or entry.actor, read_stated_us(entry), facts
    )
    item.text = _text_field(entry.text, "text" if entry.kind == "incident.noted" else "reason")
    item.title = _text_field(entry.text, "title")
    item.erased = entry.erased is not None
    if facts.get("owner"):
        item.owner = entry.owner_name or str(facts["owner"])
    if "member" in facts:
        item.member = references.reference_handle(facts["member"], facts["number"])
    return item


def _text_field(text: str | None, name: str) -> str | None:
    """Return a text field of a body; None if erased or absent."""
    value = orjson.loads(text).get(name) if text is not None else None
    return value if isinstance(value, str) else None
