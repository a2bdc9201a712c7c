"""The job that follows the journal and indexes the words of changed effects.

It also records which effects have something in common (investigation/fulltext/duplicate_index.py)
and the values of declared arguments (investigation/fulltext/field_index.py).
The job's position is stored in the transaction of the rows, so a kill leaves both or neither. If
two runs overlap, one finds that the position has moved and starts again.
"""

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection, transaction

from db import jobs as db_job_heartbeats
from db import raw_sql, retry
from display.index_progress import FIELDS, MAX_MISSING_COUNT, REPEATS, WORDS, IndexProgress
from investigation.fulltext import duplicate_index, extract, field_index, store
from investigation.models import EffectText
from journal.models import Entry
from journal.running_writers import load_last_position, wait_until_stable
from ledger.models import Effect
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from ledger.tools.argument_values import list_field_values
from monitoring import job_heartbeats

JOB_NAME: Final = "search_index"
RUN_LIMIT_S: Final = 2.0  # Seconds per run in the job worker, which has other jobs.
MAX_UNINDEXED_ENTRIES: Final = 500  # Newest entries beyond the index that a search reads itself,
MAX_UNINDEXED_CHARACTERS: Final = 4_000_000  # and the limit for their bodies.
# Entries per step. SQLite has one writer, so other writers wait for a step.
_STEP_ENTRIES: Final = {"postgresql": 2_000, "sqlite": 1_000}
# Entries of these kinds add no words; they are half of all entries on effects.
WORDLESS: Final = (
    "effect.dispatched",
    "effect.granted",
    "effect.withheld",
    "effect.replanned",
    "artifact.recorded",
    "access.viewed",
    "gate.requested",
    "gate.voted",
    "gate.ruled",
    "gate.used",
)
_ENTRIES: Final = (
    "SELECT position, kind, CAST(effect AS text), lane FROM journal_entry"
    " WHERE position > %s AND position <= %s ORDER BY position LIMIT %s"
)
# Used by every search. Ordered, so that a planner always starts from the end of the journal.
_CHANGES: Final = (
    "FROM journal_entry WHERE project = %s AND position > %s AND effect IS NOT NULL"
    f" AND kind NOT IN {WORDLESS!r}"
)
_FRESH: Final = (
    f"SELECT CAST(effect AS text) {_CHANGES} AND position <= %s ORDER BY position DESC LIMIT %s"
)
_OLDER_CHANGES: Final = (
    f"SELECT count(*) FROM (SELECT 1 {_CHANGES} AND position <= %s"
    " ORDER BY position DESC LIMIT %s OFFSET %s) unseen"
)
_LAST: Final = 2**63 - 1
_WINDOW: Final = 5_000  # Effects that one call of index_lacking_effects reads.
_INDEX_POSITION: Final = (
    "coalesce((SELECT position FROM monitoring_jobheartbeat WHERE name = %s), 0)"
)
_READ_TO: Final = (
    f"SELECT {_INDEX_POSITION}, coalesce((SELECT max(position) FROM journal_entry), 0)"
)
_UNREAD: Final = (
    f"{_READ_TO}, (SELECT count(*) FROM (SELECT 1 FROM journal_entry"
    f" WHERE position > {_INDEX_POSITION} AND project = %s"
    " AND position <= %s AND effect IS NOT NULL AND kind IN {}"
    " ORDER BY position DESC LIMIT %s) newest)"
)
_COMPARED: Final = _UNREAD.format(f"{(*sorted(duplicate_index.PLAN_AND_RUN_KINDS),)!r}")
_UNREAD_PLANS: Final = _UNREAD.format("('effect.planned')")
_ERASED: Final = (
    "SELECT erasure.entry_id FROM {} CROSS JOIN journal_erasure erasure"
    " WHERE erasure.entry_id = wanted.key"
)


@dataclass(slots=True)
class IndexResult:
    """The result of a run: the number of effects indexed, and the position reached."""

    effects: int = 0
    position: int = 0


@db_job_heartbeats.record_run(JOB_NAME)
def update_index(
    most_s: float | None = None,
    *,
    upto: int | None = None,
    after_step: Callable[[], None] = lambda: None,
) -> IndexResult:
    """Index from the last position on, until the journal's stable end or a limit.

    The limits are `most_s` seconds and position `upto`.
    """
    job_heartbeats.record_heartbeat(JOB_NAME)
    ends = None if most_s is None else time.monotonic() + most_s
    done = IndexResult(position=job_heartbeats.load_possible_position(JOB_NAME))
    while (stable := wait_until_stable(load_last_position())) > done.position and (
        upto is None or done.position < upto
    ):
        done.effects += _index_step(done.position, stable)
        done.position = job_heartbeats.load_position(JOB_NAME)
        after_step()
        if ends is not None and time.monotonic() > ends:
            break
    if upto is None:
        field_index.index_older_effects(done.position, ends)
    return done


def index_again(effects: Sequence[str]) -> None:
    """Index what is left of the words of these effects; needs the lock of `store.lock_words`.

    Effects that the index has not reached yet are left to it.
    """
    place = job_heartbeats.load_position(JOB_NAME)
    rows = [row for row in extract.extract_words(effects) if row.position <= place]
    store.store_words(rows)


def index_lacking_effects(project: UUID | None, after: UUID | None = None) -> UUID | None:
    """Index again which of the next effects have no words; return the last id, None at the end.

    `after` is the last id of the call before. In transactions of bounded size.
    """
    rows = Effect.objects.filter(opened_position__lte=job_heartbeats.load_position(JOB_NAME))
    if project is not None:
        rows = rows.filter(project=project)
    if after is not None:
        rows = rows.filter(id__gt=after)
    effects = list(rows.order_by("id").values_list("id", "opened_position")[:_WINDOW])
    positions = array("q", [position for _effect, position in effects])
    words = EffectText.objects.filter(position__listed=positions)
    indexed = set(words.values_list("position", flat=True))
    lacking = [
        raw_sql.uuid_as_cast_text(effect) for effect, position in effects if position not in indexed
    ]
    for start in range(0, len(lacking), extract.EFFECTS_AT_ONCE):
        part = lacking[start : start + extract.EFFECTS_AT_ONCE]

        def work(part: Sequence[str] = part) -> None:
            store.lock_words()
            index_again(part)

        retry.run_with_retry(work)
    return effects[-1][0] if len(effects) == _WINDOW else None


def reset_index() -> None:
    """Make the next run index everything again. Until then, searches use the old index."""
    job_heartbeats.record_heartbeat(JOB_NAME)
    job_heartbeats.reset_position(JOB_NAME)


def _index_step(start: int, stable: int) -> int:
    """Index the effects of the next entries after `start`, up to `stable`; return their number."""
    changed: dict[str, None] = {}
    started: dict[str, int] = {}
    has_erasure = False
    most = _STEP_ENTRIES[connection.vendor]
    entries = raw_sql.fetch_rows(_ENTRIES, [start, stable, most])
    until = entries[-1][0] if len(entries) == most else stable
    for position, kind, effect, lane in entries:
        if effect is None:
            continue
        has_erasure = has_erasure or (kind == "erasure.executed" and lane == "system")
        if kind not in WORDLESS:
            changed[effect] = None
        if kind in duplicate_index.PLAN_AND_RUN_KINDS:
            started[effect] = started.get(effect) or (
                position if kind in duplicate_index.RUN_KINDS else 0
            )
    declared = field_index.load_declared_fields()
    rows = extract.extract_words(changed)
    occurrences = duplicate_index.find_occurrences(
        started, start, {row.effect: row for row in rows}
    )
    if has_erasure:
        store.purge_erased_words()
    with transaction.atomic():
        store.lock_words()
        if job_heartbeats.load_position(JOB_NAME) != start:
            return 0  # Another run was faster.
        duplicate_index.store_occurrences(occurrences)
        rows = _drop_erased(rows)
        store.store_words(rows)
        field_index.store_field_values(_select_fields(rows, declared), declared)
        job_heartbeats.store_position(JOB_NAME, until)
    return len(rows)


def _select_fields(
    rows: list[extract.EffectText], declared: field_index.DeclaredFields
) -> list[field_index.EffectFields]:
    """Return the values of the declared arguments of each effect."""
    if not declared:
        return []
    return [
        field_index.EffectFields(
            row.effect,
            row.project,
            tool := row.row["tool"],
            row.position,
            row.row["plan_position"],
            list_field_values(declared.get((row.project, tool), {}), row.arguments),
        )
        for row in rows
    ]


def _drop_erased(rows: list[extract.EffectText]) -> list[extract.EffectText]:
    """Return the rows without the words of bodies that were erased since they were read."""
    bodies = [position for row in rows for position in row.bodies]
    erased = {
        entry
        for (entry,) in raw_sql.fetch_rows(
            _ERASED.format(raw_sql.wanted_table("bigint")), [raw_sql.to_array_parameter(bodies)]
        )
    }
    stale = {row.effect for row in rows if not erased.isdisjoint(row.bodies)}
    return [row for row in rows if row.effect not in stale] + extract.extract_words(stale)


def load_unindexed_words(
    project: UUID, upto: int | None = None
) -> tuple[list[extract.EffectText], IndexProgress]:
    """Return the current words of the effects that changed since the index was updated.

    Reads only the newest MAX_UNINDEXED_ENTRIES entries, up to position `upto` if given; the others
    are counted as `missing`. A search uses these words instead of the stored ones. The index
    position is read first, so the index may only be further than it says.
    """
    ((place, last),) = raw_sql.fetch_rows(_READ_TO, [JOB_NAME])
    project_key, top = raw_sql.vendor_id(project), _LAST if upto is None else upto
    changed_effects = [
        effect
        for (effect,) in raw_sql.fetch_rows(
            _FRESH, [project_key, place, top, MAX_UNINDEXED_ENTRIES]
        )
    ]
    erased = _find_erased_effects(project, max(place, upto)) if upto is not None else []
    words_found: list[extract.EffectText] = []
    not_read, characters_left = {*changed_effects}, MAX_UNINDEXED_CHARACTERS
    for part, words, characters in (
        extract.extract_words_in_parts(dict.fromkeys([*erased, *changed_effects]))
        if changed_effects or erased
        else ()
    ):
        words_found += words
        not_read.difference_update(part)
        characters_left -= characters
        if characters_left <= 0:
            break
    missing = sum(effect in not_read for effect in changed_effects)
    if len(changed_effects) == MAX_UNINDEXED_ENTRIES:
        ((older,),) = raw_sql.fetch_rows(
            _OLDER_CHANGES, [project_key, place, top, MAX_MISSING_COUNT, MAX_UNINDEXED_ENTRIES]
        )
        missing += older
    return words_found, IndexProgress(
        WORDS, place, max(last, place), min(missing, MAX_MISSING_COUNT)
    )


def _find_erased_effects(project: UUID, position: int) -> list[str]:
    """Return all effects from which an erasure removed stored words.

    A search as of any moment reads what is left of them.
    """
    erasures = Entry.objects.filter(
        IS_OF_A_RARE_KIND, project=project, kind="erasure.executed", lane="system"
    )
    effects = erasures.filter(position__gt=position, effect__isnull=False).values_list(
        "effect", flat=True
    )
    return [raw_sql.uuid_as_cast_text(effect) for effect in effects if effect is not None]


def load_fields_progress(project: UUID, upto: int | None = None) -> IndexProgress:
    """Return how far declared fields are indexed, up to the position `upto` or all."""
    project_key, top = raw_sql.vendor_id(project), _LAST if upto is None else upto
    ((place, last, missing),) = raw_sql.fetch_rows(
        _UNREAD_PLANS, [JOB_NAME, JOB_NAME, project_key, top, MAX_MISSING_COUNT]
    )
    return IndexProgress(FIELDS, place, max(last, place), missing)


def duplicates_progress(project: UUID, upto: int | None = None) -> IndexProgress:
    """Return how far duplicates are known, up to the position `upto` or all."""
    project_key, top = raw_sql.vendor_id(project), _LAST if upto is None else upto
    ((place, last, missing),) = raw_sql.fetch_rows(
        _COMPARED, [JOB_NAME, JOB_NAME, project_key, top, MAX_MISSING_COUNT]
    )
    return IndexProgress(REPEATS, place, max(last, place), missing)
