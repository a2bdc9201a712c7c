"""What the pages of incidents read: the list, and one incident with its members, its history and their effects."""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Count, Exists, F, JSONField, OuterRef, QuerySet, Subquery
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from approvals.deadlines import current_status
from inquiry import keyset, liveness, things
from inquiry.keyset import Window
from inquiry.models_incidents import STATES, Incident, IncidentEntry, IncidentMember
from inquiry.things import EFFECT, ENTRY, GATE, SESSION
from journal.models import Body, Entry
from sessions.models import Membership, Person, Project
from sessions.models_state import text_at

PAGE: Final = 50
HISTORY: Final = 100  # entries on one page
CHOICES: Final = 50  # incidents that something can be added to by choosing


@dataclass(slots=True)
class Member:
    """A member as it is shown. `thing` is its row, None where there is none; `why` is None when it was erased."""

    row: IncidentMember
    name: str
    url: str
    thing: Any
    why: str | None
    who: str


@dataclass(slots=True)
class Said:
    """One entry of the history. `text` and `title` are people's words, None for none; `erased`: there were some."""

    position: int
    kind: str
    who: str
    at_us: int
    facts: dict[str, Any]
    text: str | None = None
    title: str | None = None
    erased: bool = False
    owner: str | None = None  # the name behind the pseudonym, where the owner changed
    member: str = ""  # the handle of what joined or left


@dataclass(slots=True)
class Held:
    """Everything of an incident but its timeline. `sessions` and `effects` are what the timeline is made of."""

    members: list[Member] = field(default_factory=list)
    history: list[Said] = field(default_factory=list)  # in order of time
    earlier: int | None = None  # what to pass as `before` for the history before that
    sessions: list[UUID] = field(default_factory=list)
    effects: list[UUID] = field(default_factory=list)


def incidents(project: Project, state: str, window: Window) -> keyset.Page[Any]:
    """A page of the project's incidents, newest first, with `title` (None: erased) and `member_count`. One query."""
    rows = _rows(project)
    if state in STATES:
        rows = rows.filter(state=state)
    page = keyset.page(rows, PAGE, window)
    for one in page.rows:
        one.title = _said(one.title_text, "title")
    return page


def incident(project: Project, identity: UUID) -> Any | None:
    """The incident with `title`, owner and who opened it, or None when it is not this project's. One query."""
    found = _rows(project).filter(id=identity).first()
    if found is not None:
        found.title = _said(found.title_text, "title")
    return found


def choices(project: Project) -> list[Any]:
    """The newest incidents that are not closed, for a form that adds to one. One query."""
    found = list(_rows(project).exclude(state="closed").order_by("-opened_position")[:CHOICES])
    for one in found:
        one.title = _said(one.title_text, "title")
    return found


def is_member(kind: str) -> Exists:
    """For a query of things of a kind: whether each belongs to any incident now."""
    there = IncidentMember.objects.filter(
        project=OuterRef("project"), kind=kind, number=OuterRef("opened_position")
    )
    return Exists(there.filter(removed_position__isnull=True))


def of(thing: Any, kind: str) -> list[Incident]:
    """The incidents that a thing read with `in_incident` belongs to now, the newest first; no query where none."""
    if not thing.in_incident:
        return []
    there = IncidentMember.objects.filter(
        project=thing.project_id, kind=kind, number=thing.opened_position
    )
    there = there.filter(removed_position__isnull=True)
    found = Incident.objects.filter(id__in=there.values("incident")).order_by("-opened_position")
    return list(found[:PAGE])


def owners(project: Project) -> list[Membership]:
    """Who can look after an incident here, by name. One query."""
    members = Membership.objects.filter(project=project).exclude(role="viewer")
    return list(members.select_related("user").order_by("user__username"))


def member(found: Incident, identity: UUID) -> IncidentMember | None:
    """A member that belongs to the incident now."""
    return IncidentMember.objects.filter(
        incident=found, id=identity, removed_position__isnull=True
    ).first()


def held(project: Project, found: Incident, now: int, before: int | None = None) -> Held:
    """Members and history of an incident: two queries, however many there are."""
    result = Held()
    rows = IncidentMember.objects.filter(
        incident=found, removed_position__isnull=True
    ).select_related("added_by")
    members: QuerySet[Any] = rows.annotate(text=text_at("added_position"), told=things.named())
    known: dict[str, list[Any]] = {kind: [] for kind in things.KINDS}
    for one in members.order_by("added_position"):
        thing = things.shown(one.kind, one.told) if one.told is not None else None
        if thing is not None and one.kind == GATE:
            thing.status = current_status(thing, now)
        if thing is not None:
            known[one.kind].append(thing)
        result.members.append(_member(one, thing))
    liveness.attach(known[SESSION])
    result.sessions = [thing.id for thing in known[SESSION]]
    alone = [_effect_of(kind, thing) for kind in (EFFECT, GATE, ENTRY) for thing in known[kind]]
    result.effects = [one for one in dict.fromkeys(alone) if one is not None]
    result.history, result.earlier = _history(found, before)
    return result


def _rows(project: Project) -> "QuerySet[Any]":
    there = IncidentMember.objects.filter(
        incident=OuterRef("pk"), removed_position__isnull=True
    ).order_by()
    present = Subquery(there.values("incident").annotate(n=Count("id")).values("n"))
    rows = Incident.objects.filter(project=project).select_related("owner", "opened_by")
    return rows.annotate(title_text=text_at("title_position"), member_count=Coalesce(present, 0))


def _effect_of(kind: str, thing: Any) -> UUID | None:
    """The effect whose bar shows a member: its own, its gate's, or that which the entry speaks of."""
    found: UUID | None = (
        thing.id if kind == EFFECT else thing.effect_id if kind == GATE else thing.effect
    )
    return found


def _member(row: Any, thing: Any) -> Member:
    url = things.address(row.kind, row.number, getattr(thing, "id", None))
    why = _said(row.text, "reason")
    return Member(
        row, things.name(row.kind, row.number), url, thing, why, row.added_by.get_username()
    )


def _history(found: Incident, before: int | None) -> tuple[list[Said], int | None]:
    listed = IncidentEntry.objects.filter(incident=found)
    if before is not None:
        listed = listed.filter(position__lt=before)
    at = listed.order_by("-position").values("position")[: HISTORY + 1]
    owner = KeyTextTransform("owner", Cast("facts", JSONField()))
    entries = Entry.objects.filter(position__in=at).annotate(
        text=Subquery(Body.objects.filter(entry=OuterRef("pk")).values("text")),
        who=_name("actor"),
        owner_pseudonym=owner,
        owner_name=_name("owner_pseudonym"),
    )
    rows = list(entries.annotate(erased=F("erasure__erased_at_us")).order_by("position"))
    more = len(rows) > HISTORY
    rows = rows[-HISTORY:]
    return [_told(one) for one in rows], rows[0].position if more else None


def _name(column: str) -> Subquery:
    return Subquery(Person.objects.filter(pseudonym=OuterRef(column)).values("user__username")[:1])


def _told(entry: Any) -> Said:
    facts = orjson.loads(entry.facts)
    said = Said(entry.position, entry.kind, entry.who or entry.actor, entry.received_us, facts)
    said.text = _said(entry.text, "text" if entry.kind == "incident.noted" else "reason")
    said.title = _said(entry.text, "title")
    said.erased = entry.erased is not None
    if facts.get("owner"):
        said.owner = entry.owner_name or str(facts["owner"])
    if "member" in facts:
        said.member = things.name(facts["member"], facts["number"])
    return said


def _said(text: str | None, name: str) -> str | None:
    """A word of a body; None where it was erased or has none."""
    found = orjson.loads(text).get(name) if text is not None else None
    return found if isinstance(found, str) else None
