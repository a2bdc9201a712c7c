"""The chore that follows the journal and keeps the words of every effect that something was said of.

In the same steps it notes which effects have something in common (inquiry/repeating.py).

It moves its place in the transaction of the rows: a kill at any moment leaves both or neither, and of two at once one
finds that the place has moved and begins again.
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
MOMENT_S: Final = 2.0  # of one run by the job worker, which has other chores
FRESH: Final = 500  # newest entries beyond the index that a search looks at itself
FRESH_CHARACTERS: Final = 4_000_000  # … and of their bodies
_STEP: Final = {"postgresql": 2_000, "sqlite": 1_000}  # entries at once; SQLite has one writer, and others wait
# They add no word to an effect: half of all that is said of effects.
_WORDLESS: Final = (
    *(
        "effect.dispatched",
        "effect.granted",
        "effect.withheld",
        "effect.replanned",
        "artifact.recorded",
        "access.viewed",
    ),
    *("gate.requested", "gate.voted", "gate.ruled", "gate.used"),
)
_ENTRIES: Final = (
    "SELECT position, kind, CAST(effect AS text), lane FROM journal_entry WHERE position > %s AND position <= %s"
    " ORDER BY position LIMIT %s"
)
# Of what searches ask each time, in order: so no planner comes to them but from the end of the journal.
_SAID: Final = (
    f"FROM journal_entry WHERE project = %s AND position > %s AND effect IS NOT NULL AND kind NOT IN {_WORDLESS!r}"
)
_FRESH: Final = f"SELECT CAST(effect AS text) {_SAID} AND position <= %s ORDER BY position DESC LIMIT %s"
_UNSEEN: Final = (
    f"SELECT count(*) FROM (SELECT 1 {_SAID} AND position <= %s ORDER BY position DESC LIMIT %s OFFSET %s) unseen"
)
_LAST: Final = 2**63 - 1
_PLACE: Final = "coalesce((SELECT position FROM inquiry_pulse WHERE name = %s), 0)"
_READ_TO: Final = f"SELECT {_PLACE}, coalesce((SELECT max(position) FROM journal_entry), 0)"
_COMPARED: Final = (
    f"{_READ_TO}, (SELECT count(*) FROM (SELECT 1 FROM journal_entry WHERE position > {_PLACE} AND project = %s"
    f" AND position <= %s AND effect IS NOT NULL AND kind IN {(*sorted(repeating.TELLING),)!r}"
    " ORDER BY position DESC LIMIT %s) told)"
)
_ERASED: Final = (
    "SELECT erasure.entry_id FROM {} CROSS JOIN journal_erasure erasure WHERE erasure.entry_id = wanted.key"
)


@dataclass(slots=True)
class Indexed:
    """What one run did: effects whose words were read, and the position up to which the journal is read now."""

    effects: int = 0
    position: int = 0


@beating.watched(NAME)
def index(
    most_s: float | None = None, *, upto: int | None = None, after_step: Callable[[], None] = lambda: None
) -> Indexed:
    """Read on from where the last run ended up to what is settled, or for `most_s` seconds, or to position `upto`."""
    pulses.beat(NAME)
    ends = None if most_s is None else time.monotonic() + most_s
    done = Indexed(position=pulses.position(NAME))
    while (settled := last_position()) > done.position and (upto is None or done.position < upto):
        done.effects += _step(done.position, settled)
        done.position = pulses.position(NAME)
        after_step()
        if ends is not None and time.monotonic() > ends:
            break
    return done


def start_over() -> None:
    """Let the next run read everything anew; until it is done, searches go by what was read before."""
    pulses.beat(NAME)
    pulses.start_over(NAME)


def _step(place: int, settled: int) -> int:
    """Read the effects of which something was said in the next entries beyond `place`; returns how many.

    Not beyond `settled`.
    """
    said: dict[str, None] = {}
    begun: dict[str, int] = {}
    erased = False
    most = _STEP[connection.vendor]
    entries = sql.rows(_ENTRIES, [place, settled, most])
    until = entries[-1][0] if len(entries) == most else settled
    for position, kind, effect, lane in entries:
        if effect is None:
            continue
        erased = erased or (kind == "erasure.executed" and lane == "system")
        if kind not in _WORDLESS:
            said[effect] = None
        if kind in repeating.TELLING:
            begun[effect] = begun.get(effect) or (position if kind in repeating.RUNS else 0)
    rows = reading.words(said)
    doings = repeating.doings(begun, place, {row.effect: row for row in rows})
    if erased:
        keeping.forget_erased()
    with transaction.atomic():
        keeping.alone()
        if pulses.position(NAME) != place:
            return 0  # another was quicker
        repeating.note(doings)
        keeping.write(_without_erased(rows))
        pulses.read_to(NAME, until)
    return len(rows)


def _without_erased(rows: list[reading.Words]) -> list[reading.Words]:
    """The rows as they are after erasures that were executed since their bodies were read."""
    bodies = [position for row in rows for position in row.bodies]
    erased = {entry for (entry,) in sql.rows(_ERASED.format(sql.wanted("bigint")), [sql.keys(bodies)])}
    stale = {row.effect for row in rows if not erased.isdisjoint(row.bodies)}
    return [row for row in rows if row.effect not in stale] + reading.words(stale)


def fresh(project: UUID, upto: int | None = None) -> tuple[list[reading.Words], Progress]:
    """The words of the effects of which something was said since the index was read, as they are now.

    Of the newest FRESH entries only, as of a position `upto` of those up to there; what that leaves out is `missing`. A
    search goes by these and not by their stored words. The index is asked first: it may only be further than it says.
    """
    ((place, last),) = sql.rows(_READ_TO, [NAME])
    home, top = sql.vendor_id(project), _LAST if upto is None else upto
    said = [one for (one,) in sql.rows(_FRESH, [home, place, top, FRESH])]
    erased = _erased_since(project, max(place, upto)) if upto is not None else []
    found: list[reading.Words] = []
    unread, left = {*said}, FRESH_CHARACTERS
    for part, words, characters in reading.in_parts(dict.fromkeys([*erased, *said])) if said or erased else ():
        found += words
        unread.difference_update(part)
        left -= characters
        if left <= 0:
            break
    missing = sum(one in unread for one in said)
    if len(said) == FRESH:
        ((older,),) = sql.rows(_UNSEEN, [home, place, top, COUNTED, FRESH])
        missing += older
    return found, Progress(WORDS, place, max(last, place), min(missing, COUNTED))


def _erased_since(project: UUID, position: int) -> list[str]:
    """Effects whose stored words an erasure took along, all of them: what is left of one is found as of any moment."""
    told = Entry.objects.filter(IS_OF_A_RARE_KIND, project=project, kind="erasure.executed", lane="system")
    effects = told.filter(position__gt=position, effect__isnull=False).values_list("effect", flat=True)
    return [sql.as_text(one) for one in effects if one is not None]


def compared(project: UUID, upto: int | None = None) -> Progress:
    """How far it is known which effects repeat others, up to the position `upto`; None for all."""
    home, top = sql.vendor_id(project), _LAST if upto is None else upto
    ((place, last, missing),) = sql.rows(_COMPARED, [NAME, NAME, home, top, COUNTED])
    return Progress(REPEATS, place, max(last, place), missing)
