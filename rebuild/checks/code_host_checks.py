"""The checks of what code hosts delivered, and of the event that each payload gives.

A project may have very many, so they are read in parts, and only rows that differ are selected and
folded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Model, Q, QuerySet
from django.db.models.expressions import RawSQL

from db import raw_sql
from db.clock import now_us
from erasure.word_match import ERASED as ERASED_WORDS
from hooks.code_hosts import host_deliveries, host_events
from hooks.code_hosts.event_facts import EventFacts
from hooks.code_hosts.event_matches import ACTIVE_STATUSES, DISMISSED, MATCHED
from hooks.code_hosts.host_deliveries import DELIVERED
from hooks.code_hosts.host_events import SETTLED
from hooks.models import CodeHostDelivery, CodeHostEvent
from ledger.fold.effect_state import CONFIRMED, UNCONFIRMED
from ledger.violations import ACTED_OUTSIDE
from rebuild.project_journal import (
    EARLIER_VERSION,
    ERASED,
    ProjectEntry,
    iterate_project_entries,
    load_project_entries,
)
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check

_AT_ONCE: Final = 200
_PAYLOADS_AT_ONCE: Final = 16  # of up to 8 MiB each
_OUTCOMES: Final = (
    CONFIRMED,
    UNCONFIRMED,
    MATCHED,
    DISMISSED,
    SETTLED,
    "integrity.violation",
)
_ERASURES: Final = ("erasure.confirmed", "erasure.executed")
_OF_PAYLOAD: Final = (
    *("kind", "action", "repository", "ref", "sha"),
    *("sender", "is_action", "facts", "occurred_us"),
)
_ERASABLE: Final = ("action", "repository", "ref", "sender", "facts")
_NO_WORDS: Final = "an erasure removed its words"
_NOT_READ: Final = "this version of Gatebook does not read such an event"


@dataclass(slots=True)
class _Delivered:
    """A delivery as its entry gives it. Without a body, `columns` and `event` are None."""

    entry: ProjectEntry  # without its body
    columns: dict[str, Any] | None = None
    event: EventFacts | None = None

    @property
    def has_ids(self) -> bool:
        """Return False for the entry of an earlier version, which has no ids of its rows."""
        return "delivery" in self.entry.facts

    def read_id(self, name: str) -> UUID | None:
        """Return an id that the entry has, or None."""
        value = self.entry.facts.get(name)
        return UUID(value) if value else None


@dataclass(slots=True)
class _Outcome:
    """What entries give about an event after its arrival."""

    effect: UUID | None = None  # the one behind it
    candidates: set[UUID] = field(default_factory=set)  # others that may be, or only planned it
    finding: int | None = None
    settled_us: int | None = None
    position: int = 0  # of the last of these entries


@dataclass(slots=True)
class _Differing:
    """The rows that differ, by id; None: no entry gives the row."""

    deliveries: dict[Any, FoldedRow | None] = field(default_factory=dict)
    events: dict[Any, FoldedRow | None] = field(default_factory=dict)


def list_restorable_events(batch: RebuildBatch) -> set[UUID]:
    """Return the ids of events that differ and that entries give as a whole."""
    events = _load_differing(batch).events
    return {key for key, row in events.items() if row is not None and not row.is_lost}


def _load_differing(batch: RebuildBatch) -> _Differing:
    if "code hosts" not in batch.cache:
        batch.cache["code hosts"] = _find_differing(batch)
    differing: _Differing = batch.cache["code hosts"]
    return differing


def _find_differing(batch: RebuildBatch) -> _Differing:
    differing = _Differing()
    outcomes = _fold_outcomes(batch)
    is_erased = bool(load_project_entries(batch, _ERASURES))
    given = dict[type[Model], set[Any]]({CodeHostDelivery: set(), CodeHostEvent: set()})
    delivered = _read_delivered(batch)
    while part := list(islice(delivered, _AT_ONCE)):
        stored_deliveries = _load_stored(CodeHostDelivery, part, "delivery")
        stored_events = _load_stored(CodeHostEvent, part, "event")
        for item in part:
            position = item.entry.position
            stored = stored_deliveries.get(position)
            row = _fold_delivery(item, stored)
            given[CodeHostDelivery].add(row.key[0])
            if _differs(row, stored):
                differing.deliveries[row.key[0]] = row
            stored = stored_events.get(position)
            event = _fold_event(item, row.key[0], stored, outcomes, is_erased=is_erased)
            if event is not None:
                given[CodeHostEvent].add(event.key[0])
                if _differs(event, stored):
                    differing.events[event.key[0]] = event
    for model, rows in (
        (CodeHostDelivery, differing.deliveries),
        (CodeHostEvent, differing.events),
    ):
        keys = model.objects.filter(project=batch.project).values_list("pk", flat=True)
        rows |= {key: None for key in keys.iterator(2_000) if key not in given[model]}
    return differing


def _read_delivered(batch: RebuildBatch) -> Iterator[_Delivered]:
    """Yield each delivery's entry with what its body gives, and without the body itself."""
    entries = iterate_project_entries(batch, (DELIVERED,), bodies_at_once=_PAYLOADS_AT_ONCE)
    for entry in entries:
        item = _Delivered(replace(entry, body=None))
        if entry.body is not None:
            item.columns, item.event = host_deliveries.read_delivered_words(
                entry.facts["host"], entry.body
            )
        yield item


def _load_stored(
    model: type[Model], part: Sequence[_Delivered], name: str
) -> dict[int, Mapping[str, Any]]:
    """Return the stored row of each delivery by the position of its entry.

    Entries of earlier versions have no ids: the row with their position is taken as theirs.
    """
    names = [column.attname for column in model._meta.concrete_fields]
    positions = {item.read_id(name): item.entry.position for item in part}
    positions.pop(None, None)
    earlier = [item.entry.position for item in part if not item.has_ids]
    project = part[0].entry.project
    rows = model._base_manager.filter(
        Q(pk__in=list(positions)) | Q(project=project, position__in=earlier)
    )
    stored: dict[int, Mapping[str, Any]] = {}
    for row in rows.order_by("pk").values(*names):
        place = positions.get(row["id"])
        if place is not None:
            stored[place] = row
        else:
            stored.setdefault(row["position"], row)
    return stored


def _fold_delivery(item: _Delivered, stored: Mapping[str, Any] | None) -> FoldedRow:
    entry, columns = item.entry, item.columns or {}
    key = item.read_id("delivery") or (stored["id"] if stored else f"d_{entry.position}")
    row = FoldedRow((key,), {}, entry.position)
    row.is_lost = item.columns is None or not isinstance(key, UUID)
    row.values = {
        "id": key,
        "project_id": entry.project,
        "source_id": entry.subject,
        "position": entry.position,
        "received_us": entry.received_us,
        **columns,
    }
    missing = EARLIER_VERSION if columns else ERASED
    for name in ("event", "action", "understood", "delivery_key", "body_digest"):
        if name not in columns:
            row.values[name] = None
            row.unknown[name] = missing
    if entry.facts.get("understood") is not None:
        _know(row, "understood", entry.facts["understood"])
    if stored is None:
        return row
    if not columns and entry.subject is not None:
        digest = host_deliveries.digest_delivery_key(entry.subject, stored["delivery_key"])
        _compare_digest(row, "delivery_key", stored, is_same=digest == entry.event_id)
    if "body_digest" not in columns and "body" in entry.facts:
        digest = host_deliveries.digest_body_digest(stored["body_digest"])
        _compare_digest(row, "body_digest", stored, is_same=digest == entry.facts["body"])
    return row


def _know(row: FoldedRow, name: str, value: Any) -> None:
    row.values[name] = value
    row.unknown.pop(name, None)


def _compare_digest(row: FoldedRow, name: str, stored: Mapping[str, Any], *, is_same: bool) -> None:
    """Take the stored value if an entry has its digest; else the row is altered."""
    if is_same:
        _know(row, name, stored[name])
    else:
        row.faults[name] = "altered"


def _fold_event(
    item: _Delivered,
    delivery: Any,
    stored: Mapping[str, Any] | None,
    outcomes: Mapping[UUID, _Outcome],
    *,
    is_erased: bool,
) -> FoldedRow | None:
    """Return the event of a delivery, or None if it says nothing that Gatebook understands."""
    entry = item.entry
    key: Any = item.read_id("event")
    if not item.has_ids and (item.event is not None or item.columns is None):
        key = stored["id"] if stored else f"d_{entry.position}" if item.event else None
    if key is None:
        return None
    outcome = outcomes.get(key, _Outcome())
    row = FoldedRow((key,), {}, max(entry.position, outcome.position))
    row.is_lost = item.event is None or not item.has_ids
    row.values = {
        "id": key,
        "project_id": entry.project,
        "delivery_id": delivery,
        "agent_id": item.read_id("agent"),
        "position": entry.position,
        "received_us": entry.received_us,
        "settle_by_us": entry.received_us + host_events.GRACE_S * host_events.US,
        "finding_position": outcome.finding,
        "settled_us": outcome.settled_us,
    }
    if not item.has_ids:
        row.unknown["agent_id"] = EARLIER_VERSION
    row.values["status"] = _choose_status(
        outcome, row.values["settle_by_us"], stored["status"] if stored else ""
    )
    if item.event is None:
        row.values |= dict.fromkeys(_OF_PAYLOAD)
        row.unknown |= dict.fromkeys(_OF_PAYLOAD, ERASED if item.columns is None else _NOT_READ)
        return row
    row.values |= host_events.build_event_columns(item.event, entry.received_us)
    if stored is not None and is_erased:
        _keep_erased(row, stored)
    return row


def _keep_erased(row: FoldedRow, stored: Mapping[str, Any]) -> None:
    """Leave texts as they are from which an erasure removed words: they must not come back."""
    for name in _ERASABLE:
        if stored[name] == row.values[name] or ERASED_WORDS not in stored[name]:
            continue
        row.unknown[name] = _NO_WORDS
        if not _fits_erased(_read_json(name, stored), _read_json(name, row.values)):
            row.faults[name] = "altered"


def _choose_status(outcome: _Outcome, settle_by_us: int, stored: str) -> str:
    """Return the stored status if the entries allow it, else the one that they give.

    Whether an event without an effect is settled is a matter of the clock, and whether one of
    several effects still fits a matter of the comparison: no entry says either.
    """
    if outcome.effect is not None:
        return "matched"
    allowed = ["outside"] if outcome.finding is not None else ["unmatched", "open"]
    if outcome.candidates:
        allowed.insert(0, "ambiguous")
    if stored in allowed:
        return stored
    is_open = allowed[0] == "unmatched" and now_us() < settle_by_us
    return "open" if is_open else allowed[0]


def _fold_outcomes(batch: RebuildBatch) -> dict[UUID, _Outcome]:
    """Return what entries give about each event after its arrival."""
    outcomes: dict[UUID, _Outcome] = {}
    for entry in iterate_project_entries(batch, _OUTCOMES):
        is_finding = entry.facts.get("violation") == ACTED_OUTSIDE
        if entry.subject is None or (entry.kind == "integrity.violation" and not is_finding):
            continue
        outcome = outcomes.setdefault(entry.subject, _Outcome())
        outcome.position = entry.position
        if is_finding:
            outcome.finding = outcome.finding or entry.position
        elif entry.kind == SETTLED:
            outcome.settled_us = entry.received_us
        elif entry.effect is not None:
            _fold_match(outcome, entry, entry.effect)
    return outcomes


def _fold_match(outcome: _Outcome, entry: ProjectEntry, effect: UUID) -> None:
    if entry.kind in (UNCONFIRMED, DISMISSED):
        outcome.candidates.discard(effect)
        if outcome.effect == effect:
            outcome.effect = outcome.settled_us = None
    elif entry.kind == CONFIRMED or entry.facts["status"] in ACTIVE_STATUSES:
        outcome.effect, outcome.candidates = effect, set()
    else:
        outcome.candidates.add(effect)


def _read_json(name: str, values: Mapping[str, Any]) -> Any:
    if name != "facts":
        return values[name]
    try:
        return orjson.loads(values[name])
    except orjson.JSONDecodeError:
        return values[name]


def _fits_erased(stored: Any, given: Any) -> bool:
    """Return True if `stored` is `given` with the mark of an erasure in place of some texts."""
    if isinstance(given, dict) and isinstance(stored, dict):
        return given.keys() == stored.keys() and all(
            _fits_erased(stored[name], value) for name, value in given.items()
        )
    if isinstance(given, list) and isinstance(stored, list):
        return len(given) == len(stored) and all(map(_fits_erased, stored, given))
    return bool(stored == given) or stored == ERASED_WORDS


def _differs(row: FoldedRow, stored: Mapping[str, Any] | None) -> bool:
    """Return True if a row is not stored as the journal gives it, or not all of it is known."""
    if stored is None or row.unknown or row.faults:
        return True
    return any(stored[name] != value for name, value in row.values.items())


def _fold_deliveries(batch: RebuildBatch) -> Iterator[FoldedRow]:
    yield from (row for row in _load_differing(batch).deliveries.values() if row is not None)


def _fold_events(batch: RebuildBatch) -> Iterator[FoldedRow]:
    yield from (row for row in _load_differing(batch).events.values() if row is not None)


def _select_deliveries(batch: RebuildBatch) -> "QuerySet[Any]":
    return _select_differing(CodeHostDelivery, _load_differing(batch).deliveries, batch)


def _select_events(batch: RebuildBatch) -> "QuerySet[Any]":
    return _select_differing(CodeHostEvent, _load_differing(batch).events, batch)


def _select_differing(
    model: type[Model], differing: Mapping[Any, FoldedRow | None], batch: RebuildBatch
) -> "QuerySet[Any]":
    """Select the rows of the project that differ, however many."""
    keys = raw_sql.to_array_parameter(key.hex for key in differing if isinstance(key, UUID))
    text = f"SELECT key FROM {raw_sql.wanted_table('uuid')}"
    return model._base_manager.filter(project=batch.project, pk__in=RawSQL(text, [keys]))  # noqa: S611


def register_code_host_checks() -> None:
    """Register the checks of deliveries and events, before that of the matches of events."""
    checks = (
        RowCheck(
            CodeHostDelivery,
            ("id",),
            "project",
            _fold_deliveries,
            _select_deliveries,
            host_deliveries.restore_host_deliveries,
            count=lambda batch: CodeHostDelivery.objects.filter(project=batch.project).count(),
        ),
        RowCheck(
            CodeHostEvent,
            ("id",),
            "project",
            _fold_events,
            _select_events,
            host_events.restore_host_events,
            count=lambda batch: CodeHostEvent.objects.filter(project=batch.project).count(),
        ),
    )
    for check in checks:
        register_row_check(check.table, check)
