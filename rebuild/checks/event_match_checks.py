"""The check of event matches: which effect a code host's event shows, and which person said so."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from db.ids import new_uuid7
from hooks.code_hosts import event_matches
from hooks.code_hosts.event_matches import ACTIVE_STATUSES, DISMISSED, MATCHED
from hooks.models import CodeHostEvent, EventMatch
from journal.entries import SYSTEM_SOURCE, dump_sorted_json
from ledger.fold.effect_state import CONFIRMED, UNCONFIRMED
from rebuild.checks.code_host_checks import list_restorable_events
from rebuild.project_journal import ProjectEntry, iterate_project_entries, match_clock
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check

_KINDS: Final = (CONFIRMED, UNCONFIRMED, MATCHED, DISMISSED)
_NO_TEXT: Final = "only the body of a confirmation has it, which may be erased"
_Key = tuple[UUID, UUID]  # event and effect


def _fold_matches(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield each match. Candidates of an event go when its effect is known."""
    columns = ("event", "effect", "made_us", "decided_us")
    clocks = {row[:2]: row[2:] for row in _select_matches(batch).values_list(*columns)}
    rows: dict[UUID, dict[_Key, FoldedRow]] = {}
    for entry in iterate_project_entries(batch, _KINDS):
        if entry.subject is None or entry.effect is None:
            continue
        of_event, key = rows.setdefault(entry.subject, {}), (entry.subject, entry.effect)
        made_us, decided_us = clocks.get(key, (None, None))
        if entry.kind in (UNCONFIRMED, DISMISSED):
            if key in of_event:
                _withdraw(of_event[key], entry, decided_us)
            continue
        row = of_event.setdefault(key, _start_row(key, batch.project))
        _match(row, entry, made_us, decided_us)
        if row.values["status"] in ACTIVE_STATUSES:
            rows[entry.subject] = {
                other: match
                for other, match in of_event.items()
                if match.values["status"] not in ("candidate", "undispatched")
            }
    missing = {key[0] for of_event in rows.values() for key in of_event} - {
        event for event, _ in clocks
    }
    gone = missing - set(CodeHostEvent.objects.filter(pk__in=missing).values_list("pk", flat=True))
    gone -= list_restorable_events(batch) if gone else set()
    for of_event in rows.values():
        for row in of_event.values():
            row.is_lost = row.key[0] in gone
            yield row


def _start_row(key: _Key, project: UUID | None) -> FoldedRow:
    values = {
        "project_id": project,
        "event_id": key[0],
        "effect_id": key[1],
        "compared": "[]",
        "decided_by": "",
        "decided_us": None,
        "reason": "",
    }
    return FoldedRow(key, values)


def _match(
    row: FoldedRow, entry: ProjectEntry, made_us: int | None, decided_us: int | None
) -> None:
    """Let an entry give the rule and the result; a person's name stays where Gatebook matches."""
    row.position = entry.position
    is_confirmed = entry.kind == CONFIRMED
    row.values |= {
        "rule": entry.facts["rule"],
        "status": "confirmed" if is_confirmed else entry.facts["status"],
        "position": entry.position,
        "made_us": match_clock(made_us, entry),
    }
    row.unknown.pop("compared", None)
    compared = (entry.body or {}).get("compared")
    if is_confirmed and compared is not None:
        row.values["compared"] = dump_sorted_json(compared["values"])
    else:
        row.unknown["compared"] = _NO_TEXT
    if entry.actor != SYSTEM_SOURCE:
        row.values["decided_by"] = entry.actor
        row.values["decided_us"] = match_clock(decided_us, entry)


def _withdraw(row: FoldedRow, entry: ProjectEntry, decided_us: int | None) -> None:
    """Let a person's entry withdraw a match."""
    row.position = entry.position
    row.unknown.pop("reason", None)
    row.values |= {
        "status": "withdrawn",
        "position": entry.position,
        "decided_by": entry.actor,
        "decided_us": match_clock(decided_us, entry),
        "reason": entry.read("reason", row.unknown),
    }


def _select_matches(batch: RebuildBatch) -> "QuerySet[Any]":
    return EventMatch.objects.filter(project=batch.project)


def _complete_match(row: FoldedRow) -> dict[str, Any]:
    """Return what a missing row gets for what no entry gives."""
    return {
        "id": new_uuid7(),
        "compared": row.values["compared"],
        "reason": "unknown" if row.values["reason"] is None else row.values["reason"],
    }


def register_event_match_checks() -> None:
    """Register the check of event matches."""
    check = RowCheck(
        EventMatch,
        ("event_id", "effect_id"),
        "project",
        _fold_matches,
        _select_matches,
        event_matches.restore_event_matches,
        {"id": "a number of the table, to which nothing refers"},
        _complete_match,
    )
    register_row_check(check.table, check)
