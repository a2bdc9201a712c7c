"""Erases the rows that contain a subject, in any table: the one exception to one writer per table.

It only removes text: a column becomes empty or `[erased]`, or its row goes. Bodies go by
journal/erasures.py, which records each one. The columns and their treatment are in
erasure/text_columns.py. Every function runs in the caller's transaction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import JSONField, Model

from api.models import StoredResponse
from db.clock import now_us
from erasure import erasure_journal
from erasure.row_scan import Match, Subject, find_matches, parse_json_text
from erasure.text_columns import TextTable, Treatment
from erasure.word_match import ERASED, erase_value, matches_value
from hooks.code_hosts import agent_identities
from hooks.models import AgentIdentity
from investigation.fulltext import store
from investigation.models import EffectText, FirstOccurrence, RepeatedOccurrence
from journal import entries, erasures
from journal.models import Entry, Erasure
from ledger.models import Effect
from notifications import channels

_ROW_GOES: Final = frozenset({Treatment.ROW, Treatment.WORDS, Treatment.LOGIN})


@dataclass(frozen=True, slots=True)
class ErasureOrder:
    """Who erases, why, and what is written before bodies go."""

    actor: str  # pseudonym of the person who confirmed
    reason: str
    # Gets [position, first 16 digits of the commitment] of each body before it is deleted.
    note_bodies: Callable[[list[list[Any]]], None] = lambda _rows: None


def erase_matches(
    table: TextTable, subject: Subject, matches: Sequence[Match], order: ErasureOrder
) -> None:
    """Erase matches of one table. Rows are locked and compared again first."""
    keys = [match.pk for match in matches if match.columns and not match.is_held]
    if not keys:
        return
    current = [match for match in find_matches(table, subject, keys) if not match.is_held]
    if table.label == "journal.Body":
        _erase_bodies(current, order)
        return
    if table.label == "ledger.Effect":
        delete_index_rows([match.pk for match in current])
    for match in current:
        _erase_row(table, subject, match, order)


def _erase_row(table: TextTable, subject: Subject, match: Match, order: ErasureOrder) -> None:
    row = table.model._base_manager.filter(pk=match.pk)
    if any(table.columns[name] in _ROW_GOES for name in match.columns):
        if table.label == "hooks.AgentIdentity":
            agent_identities.remove_identity(
                AgentIdentity.objects.get(pk=match.pk), actor=order.actor
            )
        else:
            row.delete()
        return
    values = {
        name: _build_erased_value(table, subject, name, match)
        for name in match.columns
        if table.columns[name] is not Treatment.PERSON
    }
    if table.label == "notifications.NotificationChannel":
        values |= channels.record_erased_channel(match.pk, actor=order.actor)
    if values:
        row.update(**values)


def _build_erased_value(table: TextTable, subject: Subject, name: str, match: Match) -> Any:
    """Return what replaces the value of a column."""
    treatment, value = table.columns[name], match.values[name]
    if treatment is Treatment.BLANK:
        return ""
    if treatment is Treatment.NAME:
        return build_erased_name(match.pk, _max_length(table.model, name))
    if treatment is Treatment.MARK:
        return ERASED
    is_text = treatment is Treatment.JSON_TEXT
    content = parse_json_text(value) if is_text else value
    if matches_value(content, subject.matches_text):
        erased = erase_value(content, subject.matches_text)
    else:
        erased = type(content)()  # all of the row goes
    return entries.dump_sorted_json(erased) if is_text else erased


def build_erased_name(key: Any, most: int) -> str:
    """Return a name that no other row of the table has."""
    number = key.hex if isinstance(key, UUID) else str(key)
    return f"{ERASED[:-1]} {number}"[: most - 1] + "]"


def _max_length(model: type[Model], name: str) -> int:
    column: Any = model._meta.get_field(name)
    return 100 if isinstance(column, JSONField) or not column.max_length else column.max_length


def _erase_bodies(matches: Sequence[Match], order: ErasureOrder) -> None:
    """Erase bodies, with the stored answers of their commands and the duplicates of their calls."""
    positions = [match.pk for match in matches]
    rows = {row.position: row for row in Entry.objects.filter(position__in=positions)}
    order.note_bodies(
        [
            [position, erasure_journal.shorten_commitment(rows[position].body_commit)]
            for position in positions
        ]
    )
    for position in positions:
        erase_entry_body(rows[position], reason=order.reason, actor=order.actor)
    effects = [entry.effect for entry in rows.values() if entry.effect is not None]
    delete_index_rows(effects)


def erase_entry_body(entry: Entry, *, reason: str, actor: str) -> Erasure:
    """Erase the body of an entry, and the stored answer of its command, which repeats it."""
    store.lock_words()  # before the row of Erasure, as every erasure: else two could wait in a ring
    erasure = erasures.erase_body(
        entry.project, entry.position, reason=reason, actor=actor, now_us=now_us()
    )
    delete_answers(entry.project, [(entry.source, entry.event_id)])
    return erasure


def delete_answers(project: UUID, commands: Sequence[tuple[str, str]]) -> None:
    """Delete the stored answers of commands, given by source and event id."""
    keys: dict[str, list[str]] = {}
    for source, event_id in commands:
        keys.setdefault(source, []).append(event_id)
    for source, ids in keys.items():
        for start in range(0, len(ids), 500):
            StoredResponse.objects.filter(
                project=project, source=source, key__in=ids[start : start + 500]
            ).delete()


def delete_index_rows(effects: Sequence[UUID]) -> None:
    """Delete the search words of effects, and what links them to equal calls.

    The end of the erasure indexes the rest of their words again, and so does the job of the index
    when it reaches the `erasure.executed` of a body.
    """
    opened = list(Effect.objects.filter(id__in=effects).values_list("opened_position", flat=True))
    for model in (EffectText, FirstOccurrence, RepeatedOccurrence):
        model._base_manager.filter(position__in=opened).delete()
