"""The job that follows the journal and indexes the words of changed effects.

It also records which effects have something in common (inquiry/repeating.py).
The job's position is stored in the transaction of the rows, so a kill leaves both or neither. If
two runs overlap, one finds that the position has moved and starts again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection, transaction

from inquiry import repeating
from inquiry.indexes import IS_OF_A_RARE_KIND
from inquiry.progress import COUNTED, REPEATS, WORDS, Progress
from inquiry.stuck import pulses
from inquiry.words import keeping, reading
from journal import beating, sql
from journal.horizon import last_position
from journal.models import Entry

NAME: Final = "words"
MOMENT_S: Final = 2.0  # Seconds per run in the job worker, which has other jobs.
FRESH: Final = 500  # Newest entries beyond the index that a search reads itself,
FRESH_CHARACTERS: Final = 4_000_000  # and the limit for their bodies.
# Entries per step. SQLite has one writer, so other writers wait for a step.
_STEP_ENTRIES: Final = {"postgresql": 2_000, "sqlite": 1_000}
# Entries of these kinds add no words; they are half of all entries on effects.
_WORDLESS: Final = (
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
    f" AND kind NOT IN {_WORDLESS!r}"
)
_FRESH: Final = (
    f"SELECT CAST(effect AS text) {_CHANGES} AND position <= %s ORDER BY position DESC LIMIT %s"
)
_OLDER_CHANGES: Final = (
    f"SELECT count(*) FROM (SELECT 1 {_CHANGES} AND position <= %s"
    " ORDER BY position DESC LIMIT %s OFFSET %s) unseen"
)
_LAST: Final = 2**63 - 1
_INDEX_POSITION: Final = "coalesce((SELECT position FROM inquiry_pulse WHERE name = %s), 0)"
_READ_TO: Final = (
    f"SELECT {_INDEX_POSITION}, coalesce((SELECT max(position) FROM journal_entry), 0)"
)
_COMPARED: Final = (
    f"{_READ_TO}, (SELECT count(*) FROM (SELECT 1 FROM journal_entry"
    f" WHERE position > {_INDEX_POSITION} AND project = %s"
    f" AND position <= %s AND effect IS NOT NULL AND kind IN {(*sorted(repeating.TELLING),)!r}"
    " ORDER BY position DESC LIMIT %s) told)"
)
_ERASED: Final = (
    "SELECT erasure.entry_id FROM {} CROSS JOIN journal_erasure erasure"
    " WHERE erasure.entry_id = wanted.key"
)


@dataclass(slots=True)
class Indexed:
    """The result of a run: the number of effects indexed, and the position reached."""

    effects: int = 0
    position: int = 0


@beating.watched(NAME)
def index(
    most_s: float | None = None,
    *,
    upto: int | None = None,
    after_step: Callable[[], None] = lambda: None,
) -> Indexed:
    """Index from the last position on, until the journal's settled end or a limit.

    The limits are `most_s` seconds and position `upto`.
    """
    pulses.beat(NAME)
    ends = None if most_s is None else time.monotonic() + most_s
    done = Indexed(position=pulses.position(NAME))
    while (settled := last_position()) > done.position and (upto is None or done.position < upto):
        done.effects += _index_step(done.position, settled)
        done.position = pulses.position(NAME)
        after_step()
        if ends is not None and time.monotonic() > ends:
            break
    return done


def start_over() -> None:
    """Make the next run index everything again. Until then, searches use the old index."""
    pulses.beat(NAME)
    pulses.start_over(NAME)


def _index_step(start: int, settled: int) -> int:
    """Index the effects of the next entries after `start`, up to `settled`; return their number."""
    changed: dict[str, None] = {}
    started: dict[str, int] = {}
    has_erasure = False
    most = _STEP_ENTRIES[connection.vendor]
    entries = sql.rows(_ENTRIES, [start, settled, most])
    until = entries[-1][0] if len(entries) == most else settled
    for position, kind, effect, lane in entries:
        if effect is None:
            continue
        has_erasure = has_erasure or (kind == "erasure.executed" and lane == "system")
        if kind not in _WORDLESS:
            changed[effect] = None
        if kind in repeating.TELLING:
            started[effect] = started.get(effect) or (position if kind in repeating.RUNS else 0)
    rows = reading.words(changed)
    occurrences = repeating.doings(started, start, {row.effect: row for row in rows})
    if has_erasure:
        keeping.forget_erased()
    with transaction.atomic():
        keeping.alone()
        if pulses.position(NAME) != start:
            return 0  # Another run was faster.
        repeating.note(occurrences)
        keeping.write(_drop_erased(rows))
        pulses.read_to(NAME, until)
    return len(rows)


def _drop_erased(rows: list[reading.Words]) -> list[reading.Words]:
    """Return the rows without the words of bodies that were erased since they were read."""
    bodies = [position for row in rows for position in row.bodies]
    erased = {
        entry for (entry,) in sql.rows(_ERASED.format(sql.wanted("bigint")), [sql.keys(bodies)])
    }
    stale = {row.effect for row in rows if not erased.isdisjoint(row.bodies)}
    return [row for row in rows if row.effect not in stale] + reading.words(stale)


def fresh(project: UUID, upto: int | None = None) -> tuple[list[reading.Words], Progress]:
    """Return the current words of the effects that changed since the index was updated.

    Reads only the newest FRESH entries, up to position `upto` if given; the others are counted as
    `missing`. A search uses these words instead of the stored ones. The index position is read
    first, so the index may only be further than it says.
    """
    ((place, last),) = sql.rows(_READ_TO, [NAME])
    project_key, top = sql.vendor_id(project), _LAST if upto is None else upto
    changed_effects = [effect for (effect,) in sql.rows(_FRESH, [project_key, place, top, FRESH])]
    erased = _find_erased_effects(project, max(place, upto)) if upto is not None else []
    words_found: list[reading.Words] = []
    not_read, characters_left = {*changed_effects}, FRESH_CHARACTERS
    for part, words, characters in (
        reading.in_parts(dict.fromkeys([*erased, *changed_effects]))
        if changed_effects or erased
        else ()
    ):
        words_found += words
        not_read.difference_update(part)
        characters_left -= characters
        if characters_left <= 0:
            break
    missing = sum(effect in not_read for effect in changed_effects)
    if len(changed_effects) == FRESH:
        ((older,),) = sql.rows(_OLDER_CHANGES, [project_key, place, top, COUNTED, FRESH])
        missing += older
    return words_found, Progress(WORDS, place, max(last, place), min(missing, COUNTED))


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
    return [sql.as_text(effect) for effect in effects if effect is not None]


def compared(project: UUID, upto: int | None = None) -> Progress:
    """Return how far duplicates are known, up to the position `upto` or all."""
    project_key, top = sql.vendor_id(project), _LAST if upto is None else upto
    ((place, last, missing),) = sql.rows(_COMPARED, [NAME, NAME, project_key, top, COUNTED])
    return Progress(REPEATS, place, max(last, place), missing)
