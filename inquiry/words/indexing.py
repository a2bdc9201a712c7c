"""The chore that follows the journal and keeps the words of every effect that something was said of.

In the same steps it notes which effects have something in common (inquiry/repeating.py).

It moves its place in the transaction of the rows: a kill at any moment leaves both or neither, and of two at once one
finds that the place has moved and begins again.
"""

import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet

from inquiry import repeating
from inquiry.stuck import pulses
from inquiry.words import keeping, reading
from journal import sql
from journal.horizon import last_position
from journal.models import Entry

NAME: Final = "words"
MOMENT_S: Final = 2.0  # of one run by the job worker, which has other chores
FRESH: Final = 500  # newest entries beyond the index that a search looks at itself
FRESH_CHARACTERS: Final = 4_000_000  # … and of their bodies
COUNTED: Final = 10_000
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
    "SELECT position, kind, CAST(effect AS text) FROM journal_entry WHERE position > %s AND position <= %s"
    " ORDER BY position LIMIT %s"
)
# Of what searches ask each time, in order: so no planner comes to them but from the end of the journal.
_SAID: Final = (
    f"FROM journal_entry WHERE project = %s AND position > %s AND effect IS NOT NULL AND kind NOT IN {_WORDLESS!r}"
)
_FRESH: Final = f"SELECT CAST(effect AS text) {_SAID} ORDER BY position DESC LIMIT %s"
_UNSEEN: Final = (
    f"SELECT count(*) FROM (SELECT 1 {_SAID} AND position <= %s ORDER BY position DESC LIMIT %s OFFSET %s) unseen"
)
_LAST: Final = 2**63 - 1
_ERASED: Final = (
    "SELECT erasure.entry_id FROM {} CROSS JOIN journal_erasure erasure WHERE erasure.entry_id = wanted.key"
)


@dataclass(slots=True)
class Indexed:
    """What one run did: effects whose words were read, and the position up to which the journal is read now."""

    effects: int = 0
    position: int = 0


def index(most_s: float | None = None) -> Indexed:
    """Read on from where the last run ended up to what is settled, or for `most_s` seconds."""
    pulses.beat(NAME)
    ends = None if most_s is None else time.monotonic() + most_s
    done = Indexed(position=pulses.position(NAME))
    while (settled := last_position()) > done.position:
        done.effects += _step(done.position, settled)
        done.position = pulses.position(NAME)
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
    for position, kind, effect in entries:
        if effect is None:
            continue
        erased = erased or kind == "erasure.executed"
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


def fresh(project: UUID) -> list[reading.Words]:
    """The words of the effects of which something was said since the index was read, as they are now.

    Of the newest FRESH entries only. A search goes by these and not by their stored words.
    """
    place = pulses.position(NAME)
    effects = dict.fromkeys(one for (one,) in sql.rows(_FRESH, [sql.vendor_id(project), place, FRESH]))
    return reading.words(effects, FRESH_CHARACTERS) if effects else []


def behind(project: UUID, upto: int | None = None) -> int:
    """How many entries about effects of the project no search sees yet, at most COUNTED; nearly always 0.

    Of those up to the position `upto`; None for all.
    """
    place, home = pulses.position(NAME), sql.vendor_id(project)
    ((count,),) = sql.rows(_UNSEEN, [home, place, _LAST, COUNTED, FRESH])
    if count and upto is not None:
        ((until,),) = sql.rows(_UNSEEN, [home, place, upto, COUNTED, 0])
        count = min(count, until)
    return int(count)


def uncompared(project: UUID, upto: int | None = None) -> int:
    """How many entries tell of effects that were planned or ran and are not compared yet, at most COUNTED.

    Of those up to the position `upto`; None for all.
    """
    beyond = _beyond(project).filter(kind__in=repeating.TELLING)
    return (beyond if upto is None else beyond.filter(position__lte=upto))[:COUNTED].count()


def _beyond(project: UUID) -> "QuerySet[Entry]":
    place = pulses.position(NAME)
    return Entry.objects.filter(project=project, position__gt=place, effect__isnull=False)
