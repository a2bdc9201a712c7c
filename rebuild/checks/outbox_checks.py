"""The check of the outbox: whether each request and violation of a session was announced."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from db.clock import now_us
from db.jobs import CLOCK_STEP_US
from investigation.history.past_entries import PastEntry
from journal import outbox
from journal.models import Outbox
from rebuild.project_journal import load_project_entries
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, Unit, register_row_check
from rebuild.session_journal import SessionJournal, load_session_journals

Fold = Callable[[RebuildBatch], Iterator[FoldedRow]]
_DELIVERY: Final = "the course of a delivery, which no entry has"
_KEYS_AT_ONCE: Final = 500
_DENIALS: Final = ("denied", "denied_session")
_ENDS: Final = ("changes_requested", "expired", "expired_unused", "revoked", "cancelled")


def _fold_deliveries(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield what is queued with each request, its result, and each violation."""
    if "deliveries" not in batch.cache:
        batch.cache["deliveries"] = [
            row
            for journal in load_session_journals(batch).values()
            for row in _fold_session_deliveries(journal)
        ]
        _compare_due_times(batch.project, batch.cache["deliveries"])
    rows: list[FoldedRow] = batch.cache["deliveries"]
    yield from rows


def _fold_session_deliveries(journal: SessionJournal) -> Iterator[FoldedRow]:
    opened: dict[str, int] = {}  # hex id of a gate -> position of its request
    for entry in journal.entries:
        gate = entry.subject.hex if entry.subject is not None else ""
        if entry.kind == "integrity.violation" and entry.is_ours:
            yield _build_delivery(journal.project, entry.event_id, "integrity", entry.position)
        elif entry.kind == "gate.requested" and entry.is_ours:
            opened[gate] = entry.position
            key = f"gate.requested:{gate}"
            yield _build_delivery(journal.project, key, "gate.requested", entry.position)
        elif (position := opened.get(gate)) and (status := _read_new_status(entry)):
            key = f"gate.resolved:{gate}:{status}"
            yield _build_delivery(journal.project, key, "gate.resolved", position)


def _read_new_status(entry: PastEntry) -> str:
    """Return the status that an entry gives its request, and that people hear of."""
    if (entry.lane, entry.kind) == ("command", "gate.cancelled"):
        return "cancelled"
    if not entry.is_ours:
        return ""
    if entry.kind == "effect.granted":
        return "approved"
    if entry.kind == "gate.ruled":
        ruling: str = entry.facts["ruling"]
        return ruling if ruling in _DENIALS else ""
    status = entry.kind.removeprefix("gate.")
    return status if status in _ENDS else ""


def _fold_project_deliveries(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield what is queued with each violation outside of any session."""
    if batch.project is None:
        return
    rows = [
        _build_delivery(batch.project, entry.event_id, "integrity", entry.position)
        for entry in load_project_entries(batch, ("integrity.violation",))
        if entry.session is None
    ]
    _compare_due_times(batch.project, rows)
    yield from rows


def _build_delivery(project: UUID, key: str, topic: str, position: int) -> FoldedRow:
    values = {
        "project": project,
        "entry_id": position,
        "topic": topic,
        "deduplication_key": key,
    }
    return FoldedRow((key,), values, position)


def _compare_due_times(project: UUID | None, rows: Sequence[FoldedRow]) -> None:
    """Set when a row is due where it waits longer than any failure lets it wait.

    The last try is in no entry, so every earlier time counts as given.
    """
    by_key = {row.key[0]: row for row in rows}
    now = now_us()
    for start in range(0, len(rows), _KEYS_AT_ONCE):
        keys = [row.key[0] for row in rows[start : start + _KEYS_AT_ONCE]]
        waiting = Outbox.objects.filter(
            project__in=[project],
            deduplication_key__in=keys,
            sent_at_us=None,
            due_at_us__gt=now + CLOCK_STEP_US,
        )
        names = ("deduplication_key", "due_at_us", "tries", "entry__received_us")
        for key, due_at_us, tries, received_us in waiting.values_list(*names):
            latest = max(now, received_us) + outbox.delivery_delay_us(tries) + CLOCK_STEP_US
            if due_at_us > latest:
                by_key[key].values["due_at_us"] = now


def _select_by_keys(fold: Fold, batch: RebuildBatch) -> "QuerySet[Any]":
    """Select by the keys: rows that no entry gives, such as alerts, decide nothing."""
    keys = [row.key[0] for row in fold(batch)]
    return Outbox.objects.filter(project__in=[batch.project], deduplication_key__in=keys)


def register_outbox_checks() -> None:
    """Register the checks of what is queued for people, of sessions and outside of them."""
    folds: dict[Unit, Fold] = {"session": _fold_deliveries, "project": _fold_project_deliveries}
    for unit, fold in folds.items():
        check = RowCheck(
            Outbox,
            ("deduplication_key",),
            unit,
            fold,
            partial(_select_by_keys, fold),
            outbox.restore_deliveries,
            {
                "id": "a number of the table, to which nothing refers",
                **dict.fromkeys(("tries", "sent_at_us", "last_error"), _DELIVERY),
            },
            lambda _row: {"due_at_us": now_us()},  # sent, perhaps again: receivers know the key
            per_effect=unit == "session",
        )
        register_row_check(check.table, check)
