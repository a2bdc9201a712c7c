"""The one writer of Pulse: our own chores say when they last ran, and every page says so if that is long ago."""

import re
from typing import Final

import structlog
from django.db import connection, transaction
from django.db.models import TextField
from django.db.models.expressions import RawSQL

from inquiry.models import Pulse
from inquiry.progress import STUCK, Progress
from inquiry.stuck.following import HOLD_S, US, outage
from journal import beating, sql
from journal.beating import CLOCK, CLOCK_STEP_US, ClockStep, Lateness, clock_step, lateness
from journal.clock import now_us

log = structlog.get_logger("gatebook.jobs")

_COLUMNS: Final = ("name", "beat_us", "every_us", "held_until_us", "succeeded_us", "failed_us", "error")
_ALL: Final = "SELECT {gather}(" + " || ':' || ".join(_COLUMNS) + ", ' ') FROM inquiry_pulse"
# They record a run when it ends. The others need their row at the beginning.
_BEAT_AT_END: Final = frozenset({"outbox", "notices", "gates", "pruning"})

_OF_CHECKS: Final = (
    "SELECT (SELECT beat_us || ':' || every_us || ':' || position FROM inquiry_pulse WHERE name = %s),"
    " coalesce((SELECT max(position) FROM journal_entry), 0)"
)


@transaction.atomic
def beat(name: str, at_us: int | None = None, *, usual_s: int = 0) -> Pulse:
    """Say that the chore runs now, and return its pulse. After an outage of our own alarms are held for HOLD_S.

    `usual_s` is its interval, for the time until a second beat shows it.
    """
    row = _beaten(name, now_us() if at_us is None else at_us, usual_s)
    row.save()
    return row


@transaction.atomic
def ended(name: str, error: BaseException | None) -> None:
    """Record how a run ended: of an error its type alone, because every page and /readyz show it."""
    now = now_us()
    if name in _BEAT_AT_END:
        row = _beaten(name, now, 0)
    else:
        row, _ = Pulse.objects.select_for_update().get_or_create(name=name, defaults={"beat_us": now})
    if error is None:
        row.succeeded_us, row.error = now, ""
    else:
        row.failed_us, row.error = now, re.sub(r"\W", "", type(error).__name__)[:64]
    row.save()


def _beaten(name: str, now: int, usual_s: int) -> Pulse:
    row = Pulse.objects.select_for_update().filter(name=name).first()
    if row is None:
        row, _ = Pulse.objects.get_or_create(name=name, defaults={"beat_us": now, "every_us": usual_s * US})
        return row
    # Alarms are never held for longer than HOLD_S, whatever the clock read when the hold began.
    longest_us = now + HOLD_S * US
    row.held_until_us = longest_us if outage(row.beat_us, row.every_us, now) else min(row.held_until_us, longest_us)
    if row.beat_us - now > CLOCK_STEP_US:
        _note_clock_step(now, row.beat_us - now)
    else:
        row.every_us = max(now - row.beat_us, 0)
    row.beat_us = now
    row.beats += 1
    return row


def _note_clock_step(now: int, by_us: int) -> None:
    """Record that the wall clock was set back by `by_us`; of one step every job finds it, and the first records it."""
    row, made = Pulse.objects.select_for_update().get_or_create(
        name=CLOCK, defaults={"beat_us": now, "every_us": by_us}
    )
    if not made:
        if now + by_us <= row.beat_us + row.every_us + CLOCK_STEP_US:
            return
        row.beat_us, row.every_us = now, by_us
        row.save()
    log.warning("clock_moved", by_s=-by_us // US, detail="Deadlines and leases set before last longer by as much.")


def heard(name: str) -> None:
    """As `beat`, for chores that stand in rooms below."""
    beat(name)


def read_to(name: str, position: int) -> None:
    """Keep how far a chore has read the journal."""
    sql.write("UPDATE inquiry_pulse SET position = %s WHERE name = %s AND position < %s", [position, name, position])


def position(name: str) -> int:
    """How far a chore has read the journal; 0 for one that never did."""
    found = sql.rows("SELECT position FROM inquiry_pulse WHERE name = %s", [name])
    return int(found[0][0]) if found else 0


def start_over(name: str) -> None:
    """Let a chore read the journal from its beginning."""
    Pulse.objects.filter(name=name).update(position=0)


def is_away(name: str, now: int) -> bool:
    """True when a chore ran before, and has been silent for longer than the grace and its usual interval allow."""
    row = Pulse.objects.filter(name=name).first()
    return row is not None and outage(row.beat_us, row.every_us, now)


def progress_of_checks(at_us: int) -> Progress:
    """How far the check for stuck sessions had read the journal, and whether it was late at a moment. One query."""
    ((pulse, last),) = sql.rows(_OF_CHECKS, ["sweeper"])
    beat_us, every_us, position = map(int, pulse.split(":")) if pulse else (None, 0, 0)
    silent_us = -1 if beat_us is None else at_us - beat_us if outage(beat_us, every_us, at_us) else 0
    return Progress(STUCK, position, max(last, position), silent_us=silent_us)


def held_until() -> int:
    """Until when alarms are held after an outage of our own; a moment that has passed where they are not."""
    return beating.held_until(sql.rows(_text())[0][0] or "")


def in_words(*_project: object) -> RawSQL:
    """All pulses as one text, to be read beside a project's row (journal/beating.py reads it)."""
    return RawSQL(f"({_text()})", (), output_field=TextField())  # noqa: S611 - no value of anybody's


def all_of_them() -> list[Lateness]:
    """How each chore stands now. One query."""
    return lateness(sql.rows(_text())[0][0] or "", now_us())


def clock() -> ClockStep | None:
    """The last backward step of the wall clock, while it still matters."""
    return clock_step(sql.rows(_text())[0][0] or "", now_us())


def _text() -> str:
    return _ALL.format(gather="string_agg" if connection.vendor == "postgresql" else "group_concat")
