"""Data of the pages of code hosts: deliveries, events, matches, and those of one effect."""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import F, OuterRef, Subquery
from django.db.models.functions import Substr

from accounts.models import Person, Project
from display import entry_bodies
from display.entry_bodies import Excerpt
from hooks.code_hosts.event_facts import EventFacts
from hooks.code_hosts.host_events import describe_event
from hooks.code_hosts.labels import MATCH_LOOKS, RULE_TEXTS, STATUS_LOOKS
from hooks.models import CodeHostDelivery, CodeHostEvent, EventMatch
from journal.models import Entry
from ledger.confirmations import CODE_HOST_LABELS
from ledger.models import Effect

DELIVERIES_PER_PAGE: Final = 50
MAX_MATCHES: Final = 50


@dataclass(slots=True)
class ShownEvent:
    """A delivery with its event as a page shows it; texts of the payload are untrusted."""

    delivery: CodeHostDelivery
    host: str
    event: CodeHostEvent | None = None
    facts: EventFacts = field(default_factory=lambda: EventFacts(""))
    words: str = ""
    look: str = ""
    status: str = ""
    matches: list["ShownMatch"] = field(default_factory=list)

    @property
    def was_settled_after_s(self) -> int | None:
        """The seconds from the finding's event to the effect's appearance, if it did."""
        if self.event is None or self.event.settled_us is None:
            return None
        return (self.event.settled_us - self.event.received_us) // 1_000_000


@dataclass(slots=True)
class ShownMatch:
    """A match as a page shows it: rule in words, both sides, status and who decided."""

    row: EventMatch
    rule_text: str
    compared: list[tuple[str, str, str]]
    look: str
    status: str
    who: str
    may_choose: bool = False
    of_event: ShownEvent | None = None
    payload: Excerpt | None = None


@dataclass(slots=True)
class DeliveryPage:
    """Deliveries, newest first; `older`: the position from which the next page reads."""

    rows: list[ShownEvent]
    older: int | None


def list_deliveries(project: Project, shown: str, before: int | None) -> DeliveryPage:
    """Return one page of deliveries of a filter. Two queries."""
    rows = CodeHostDelivery.objects.filter(project=project)
    if before is not None:
        rows = rows.filter(position__lt=before)
    if shown == "not-understood":
        rows = rows.filter(understood=False)
    elif shown:
        events = CodeHostEvent.objects.filter(project=project, status=shown)
        if before is not None:
            events = events.filter(position__lt=before)
        newest = events.order_by("-position").values_list("delivery", flat=True)
        rows = rows.filter(id__in=list(newest[: DELIVERIES_PER_PAGE + 1]))
    rows = rows.select_related("source", "said_event__agent").order_by("-position")
    deliveries = list(rows[: DELIVERIES_PER_PAGE + 1])
    is_cut = len(deliveries) > DELIVERIES_PER_PAGE
    page = [show_event(delivery) for delivery in deliveries[:DELIVERIES_PER_PAGE]]
    _attach_matches(page)
    return DeliveryPage(page, page[-1].delivery.position if is_cut else None)


def load_delivery(project: Project, delivery: UUID) -> ShownEvent | None:
    """Return a delivery of the project with its matches, or None."""
    row = (
        CodeHostDelivery.objects.filter(project=project, id=delivery)
        .select_related("source", "said_event__agent")
        .first()
    )
    if row is None:
        return None
    shown = show_event(row)
    _attach_matches([shown])
    return shown


def load_payload(project: UUID, position: int) -> Excerpt | None:
    """Return the beginning of a delivery's payload; None if its body was erased."""
    entry = (
        Entry.objects.filter(project=project, position=position)
        .annotate(
            head=Substr("body__text", 1, entry_bodies.SHOWN_BYTES),
            octets=entry_bodies.Octets("body__text"),
        )
        .first()
    )
    return None if entry is None else entry_bodies.excerpt_from_head(entry.head, entry.octets)


def load_effect_matches(effect: Effect) -> list[ShownMatch]:
    """Return what code hosts said of an effect, newest first, with payloads. Bounded."""
    rows = _matches().filter(effect=effect.pk, project=effect.project_id)
    joined = rows.select_related("event__delivery__source", "event__agent", "effect")
    shown = []
    for row in joined.order_by("-position")[:10]:
        match = _show_match(row)
        match.of_event = show_event(row.event.delivery, row.event)
        match.payload = load_payload(effect.project_id, row.event.position)
        shown.append(match)
    return shown


def show_event(delivery: CodeHostDelivery, event: CodeHostEvent | None = None) -> ShownEvent:
    """Return a delivery with its event in words; no query if both were joined."""
    event = event or getattr(delivery, "said_event", None)
    shown = ShownEvent(delivery, CODE_HOST_LABELS[delivery.source.host], event)
    if event is None:
        shown.look, shown.status = (
            ("acknowledged", "the webhook works")
            if delivery.understood
            else ("superseded", "not understood")
        )
        return shown
    shown.facts = EventFacts.from_dict(orjson.loads(event.facts))
    shown.words = describe_event(shown.facts)
    shown.look, shown.status = STATUS_LOOKS[event.status]
    return shown


def _matches() -> Any:
    person = Person.objects.filter(pseudonym=OuterRef("decided_by")).values("user__username")[:1]
    return EventMatch.objects.annotate(who=Subquery(person), handle=F("effect__opened_position"))


def _attach_matches(page: list[ShownEvent]) -> None:
    by_event = {shown.event.pk: shown for shown in page if shown.event is not None}
    rows = _matches().filter(event__in=list(by_event)).select_related("effect__agent")
    for row in rows.order_by("-position")[: MAX_MATCHES * len(page)]:
        shown = by_event[row.event_id]
        match = _show_match(row)
        match.may_choose = row.status in ("candidate", "withdrawn") and (
            shown.event is not None and shown.event.status != "matched"
        )
        if len(shown.matches) < MAX_MATCHES:
            shown.matches.append(match)


def _show_match(row: Any) -> ShownMatch:
    look, status = MATCH_LOOKS[row.status]
    return ShownMatch(
        row,
        RULE_TEXTS.get(row.rule, row.rule),
        [
            (str(what), str(one_side), str(other))
            for what, one_side, other in orjson.loads(row.compared)
        ],
        look,
        status,
        row.who or row.decided_by,
    )
