"""Checks of messages and of who read them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from investigation.history.past_entries import PastEntry
from journal.entries import SYSTEM_SOURCE
from rebuild.project_journal import NO_PERSON
from rebuild.project_names import load_project_names
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, Unit, register_row_check
from rebuild.session_journal import SessionJournal, list_agent_journals
from sessions import messages
from sessions.models import Message, MessageRead

_LANES: Final = ("command", "system")  # an agent's report of a message sends none
_UNITS: Final[tuple[Unit, Unit]] = ("project", "session")


@dataclass(slots=True)
class _Messages:
    """The messages of a batch, and who read them."""

    rows: dict[UUID, FoldedRow] = field(default_factory=dict)
    reads: dict[tuple[UUID, UUID], FoldedRow] = field(default_factory=dict)


def _load_folded_messages(batch: RebuildBatch) -> _Messages:
    if "messages" not in batch.cache:
        folded = batch.cache["messages"] = _Messages()
        for journal in list_agent_journals(batch):
            for entry in journal.list_entries("message."):
                if entry.lane in _LANES and entry.subject is not None:
                    _fold_entry(batch, journal, folded, entry, entry.subject)
    loaded: _Messages = batch.cache["messages"]
    return loaded


def _fold_entry(
    batch: RebuildBatch, journal: SessionJournal, folded: _Messages, entry: PastEntry, key: UUID
) -> None:
    if entry.kind == "message.sent":
        folded.rows[key] = _fold_sent(batch, journal, entry, key)
    elif entry.kind == "message.read" and key in folded.rows:
        message, agent = folded.rows[key], UUID(entry.facts["agent"])
        if message.values["recipient_id"] is None:
            values = {"message_id": key, "agent_id": agent, "read_at_us": entry.received_us}
            folded.reads.setdefault((key, agent), FoldedRow((key, agent), values, entry.position))
        elif message.values["read_at_us"] is None:
            message.values["read_at_us"] = entry.received_us
            message.position = entry.position


def _fold_sent(
    batch: RebuildBatch, journal: SessionJournal, entry: PastEntry, key: UUID
) -> FoldedRow:
    row = FoldedRow((key,), {}, entry.position)
    body, box, reply = journal.read_body(entry.position), entry.facts["box"], None
    if "in_reply_to" in entry.facts:
        reply = UUID(entry.facts["in_reply_to"])
    sender = None
    if entry.lane == "system" and entry.actor != SYSTEM_SOURCE:
        sender = load_project_names(batch).find_person(entry.actor)
        if sender is None:
            row.unknown["from_user_id"] = NO_PERSON
    if not body:
        row.unknown["size"] = journal.explain_missing_body(entry.position)
    row.values = {
        "id": key,
        "project_id": journal.project,
        "recipient_id": None if box == messages.SHARED_INBOX else UUID(box),
        "session_id": entry.session,
        "from_agent_id": entry.agent if entry.lane == "command" else None,
        "from_user_id": sender,
        "in_reply_to_id": reply,
        "size": messages.measure_message(body.get("subject") or "", body.get("body") or ""),
        "opened_position": entry.position,
        "sent_at_us": entry.received_us,
        "read_at_us": None,
    }
    return row


def _fold_messages(batch: RebuildBatch) -> Iterator[FoldedRow]:
    yield from _load_folded_messages(batch).rows.values()


def _fold_reads(batch: RebuildBatch) -> Iterator[FoldedRow]:
    yield from _load_folded_messages(batch).reads.values()


def _select_messages(batch: RebuildBatch) -> "QuerySet[Any]":
    if batch.sessions:
        return Message.objects.filter(session__in=batch.sessions)
    return Message.objects.filter(project=batch.project, session=None)


def _select_reads(batch: RebuildBatch) -> "QuerySet[Any]":
    return MessageRead.objects.filter(message__in=_select_messages(batch))


def register_message_checks() -> None:
    """Register the checks of messages, within sessions and outside of them."""
    for unit in _UNITS:
        register_row_check(
            Message._meta.db_table,
            RowCheck(
                Message,
                ("id",),
                unit,
                _fold_messages,
                _select_messages,
                messages.restore_messages,
                insert_values=lambda row: {"size": 0} if row.unknown else {},
            ),
        )
        register_row_check(
            MessageRead._meta.db_table,
            RowCheck(
                MessageRead,
                ("message_id", "agent_id"),
                unit,
                _fold_reads,
                _select_reads,
                messages.restore_message_reads,
                {"id": "a number of the table, to which nothing refers"},
            ),
        )
