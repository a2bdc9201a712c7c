"""Checks of the search index: the words of effects, and the values of their declared arguments.

Words follow from the texts that still exist, so they are extracted again as the index does it. What
the index has not read yet, it stores again itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet

from db import raw_sql
from erasure.models import ErasureRequest
from investigation.fulltext import extract, field_index, indexer, store
from investigation.fulltext.sql import join_words
from investigation.models import EffectText, FieldCoverage, FieldValue
from journal.models import Entry
from ledger.models import Attempt, Effect
from ledger.tools.argument_values import list_field_values
from monitoring.job_heartbeats import load_position
from rebuild.checks.effect_checks import load_folded_effects
from rebuild.effect_fold import FoldedEffect
from rebuild.project_names import load_project_names
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check
from rebuild.session_journal import CHANGED, SessionJournal, load_session_journals

UNREAD: Final = "the index has not read the newest entries yet"
ERASING: Final = "an erasure that may remove them is running"
UNCOVERED: Final = "the index has not read older effects by the declaration of their tool yet"
_TEXTS: Final = ("tool", "ref", "environment", "resource", "external_reference", "repository_id")
VALUE_UNCOMPUTED: Final = {"id": "a number of the table, to which nothing refers"}


@dataclass(slots=True)
class ExtractedWords:
    """The words of the effects of a batch, each with its last entry; why others are not compared.

    `reasons` are by effect and by its position.
    """

    words: list[tuple[FoldedEffect, extract.EffectText]] = field(default_factory=list)
    reasons: dict[Any, str] = field(default_factory=dict)
    is_erasing: bool = False


def load_extracted_words(batch: RebuildBatch) -> ExtractedWords:
    """Return the words of the batch, extracted once for both tables."""
    if "words" not in batch.cache:
        batch.cache["words"] = _extract_batch(batch)
    extracted: ExtractedWords = batch.cache["words"]
    return extracted


def _extract_batch(batch: RebuildBatch) -> ExtractedWords:
    extracted = ExtractedWords()
    running = ErasureRequest.objects.filter(
        Q(project=batch.project) | Q(project=None), state="running"
    )
    extracted.is_erasing = running.exists()
    if extracted.is_erasing:
        return extracted
    place, journals = load_position(indexer.JOB_NAME), load_session_journals(batch)
    compared: list[tuple[FoldedEffect, SessionJournal]] = []
    for session, effects in load_folded_effects(batch).items():
        unread = _list_unread_effects(journals[session], place)
        for folded in effects:
            if folded.row.id in unread:
                _leave_out(extracted, folded, UNREAD)
            else:
                compared.append((folded, journals[session]))
    if not compared:
        return extracted
    repositories = load_project_names(batch).load_repositories()
    names = {identity: name for name, identity in repositories.items()}
    stored = _load_unknown_texts([folded for folded, _journal in compared])
    for folded, journal in compared:
        effect = _complete_texts(folded, names, stored)
        reason = CHANGED if effect is None else _explain_bodies(effect, journal)
        if effect is None or reason:
            _leave_out(extracted, folded, reason)
            continue
        texts = {
            position: journal.read_text(position)
            for position in effect.bodies
            if journal.has_body(position)
        }
        extracted.words.append((folded, extract.extract_effect_words(effect, texts)))
    return extracted


def _list_unread_effects(journal: SessionJournal, place: int) -> set[UUID | None]:
    """Return the effects that the index will read again, because of entries after `place`."""
    unread = set()
    for entry in reversed(journal.entries):
        if entry.position <= place:
            break
        if entry.kind not in indexer.WORDLESS:
            unread.add(entry.effect)
    return unread


def _leave_out(extracted: ExtractedWords, folded: FoldedEffect, reason: str) -> None:
    extracted.reasons[folded.row.id] = extracted.reasons[folded.row.opened_position] = reason


StoredTexts = Mapping[UUID, tuple[Mapping[str, Any], Mapping[int, str]]]


def _load_unknown_texts(effects: list[FoldedEffect]) -> StoredTexts:
    """Return the stored texts of effects of which an erasure removed some from the journal."""
    lacking = [
        folded.row.id
        for folded in effects
        if any(name in folded.unknown for name in _TEXTS)
        or any("external_reference" in names for names in folded.unknown_of_attempts.values())
    ]
    if not lacking:
        return {}
    attempts: dict[UUID, dict[int, str]] = {}
    rows = Attempt.objects.filter(effect__id__listed=lacking)
    for effect, number, reference in rows.values_list("effect", "number", "external_reference"):
        attempts.setdefault(effect, {})[number] = reference
    texts = Effect.objects.filter(id__listed=lacking).values("id", *_TEXTS)
    return {row["id"]: (row, attempts.get(row["id"], {})) for row in texts}


def _complete_texts(
    folded: FoldedEffect, repositories: Mapping[UUID, str], stored: StoredTexts
) -> extract.SearchableEffect | None:
    """Return what is searchable; None if neither the journal nor a row has a text of it."""
    columns, references = stored.get(folded.row.id, ({}, {}))
    lacking = [name for name in _TEXTS if name in folded.unknown]
    lost = [
        number
        for number, names in folded.unknown_of_attempts.items()
        if "external_reference" in names
    ]
    if not columns.keys() >= set(lacking) or not references.keys() >= set(lost):
        return None
    row = replace(folded.row, **{name: columns[name] for name in lacking})
    attempts = [
        replace(attempt, external_reference=references[number]) if number in lost else attempt
        for number, attempt in folded.attempts.items()
    ]
    repository = repositories.get(row.repository_id) if row.repository_id else None
    return extract.build_searchable(row, attempts, repository)


def _explain_bodies(effect: extract.SearchableEffect, journal: SessionJournal) -> str:
    """Return why the texts of an effect are not those that were indexed; empty if they are."""
    missing = (position for position in effect.bodies if not journal.has_body(position))
    reasons = map(journal.explain_missing_body, missing)
    return CHANGED if CHANGED in reasons else ""


def _fold_words(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for folded, extracted in load_extracted_words(batch).words:
        if extracted.words:
            values = {
                "position": extracted.position,
                "project_id": folded.row.project_id,
                "words": join_words(extracted.project, extracted.words),
                "cut_short": extracted.cut_short,
            }
            yield FoldedRow((extracted.position,), values, folded.position)


def _fold_field_values(batch: RebuildBatch) -> Iterator[FoldedRow]:
    declared, coverage = _load_declarations(batch)
    if not declared and not coverage:
        return
    extracted = load_extracted_words(batch)
    for folded, texts in extracted.words:
        row, fields = folded.row, declared.get(folded.row.tool, {})
        covered, complete_from = coverage.get(row.tool, ({}, 0))
        if covered != fields or row.opened_position < complete_from:
            extracted.reasons[row.id] = UNCOVERED
            continue
        for name, value in list_field_values(fields, texts.arguments):
            values = {
                "project_id": row.project_id,
                "effect_id": row.id,
                "position": row.opened_position,
                "plan_position": row.plan_position,
                "field": name,
                "value": value,
            }
            yield FoldedRow((row.id, name, value), values, folded.position)


def _load_declarations(
    batch: RebuildBatch,
) -> tuple[dict[str, Mapping[str, str]], dict[str, tuple[Mapping[str, str], int]]]:
    """Return by tool what is declared, and what older effects are indexed by from where on."""
    if batch.project is None:
        return {}, {}
    project = raw_sql.uuid_as_cast_text(batch.project)
    tools = field_index.load_declared_fields().items()
    covered = FieldCoverage.objects.filter(project=batch.project)
    return {tool: fields for (of_project, tool), fields in tools if of_project == project}, {
        tool: (fields, complete_from)
        for tool, fields, complete_from in covered.values_list("tool", "fields", "complete_from")
    }


def _select_entries(batch: RebuildBatch) -> "QuerySet[Entry]":
    """Select the entries about effects of the batch: a forged row may be of any."""
    entries = Entry.objects.filter(session__in=batch.sessions, effect__isnull=False)
    return entries if batch.effects is None else entries.filter(effect__in=batch.effects)


def _select_words(batch: RebuildBatch) -> "QuerySet[Any]":
    return EffectText.objects.filter(position__gathered=_select_entries(batch).values("position"))


def _select_field_values(batch: RebuildBatch) -> "QuerySet[Any]":
    return FieldValue.objects.filter(effect__in=_select_entries(batch).values("effect"))


def _excuse_words(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    extracted = load_extracted_words(batch)
    return ERASING if extracted.is_erasing else extracted.reasons.get(stored["position"], "")


def _excuse_field_values(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    extracted = load_extracted_words(batch)
    return ERASING if extracted.is_erasing else extracted.reasons.get(stored["effect_id"], "")


def register_search_word_checks() -> None:
    """Register the checks of search words and of the values of declared arguments."""
    register_row_check(
        EffectText._meta.db_table,
        RowCheck(
            EffectText,
            ("position",),
            "session",
            _fold_words,
            _select_words,
            store.restore_words,
            per_effect=True,
            excuse=_excuse_words,
        ),
    )
    register_row_check(
        FieldValue._meta.db_table,
        RowCheck(
            FieldValue,
            ("effect_id", "field", "value"),
            "session",
            _fold_field_values,
            _select_field_values,
            field_index.restore_field_values,
            VALUE_UNCOMPUTED,
            per_effect=True,
            excuse=_excuse_field_values,
        ),
    )
