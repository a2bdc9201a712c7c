"""The one writer of Pulse: heartbeats of Gatebook's own jobs. Pages show late jobs."""

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

_COLUMNS: Final = (
    "name",
    "beat_us",
    "every_us",
    "held_until_us",
    "succeeded_us",
    "failed_us",
    "error",
)
_ALL: Final = "SELECT {gather}(" + " || ':' || ".join(_COLUMNS) + ", ' ') FROM inquiry_pulse"
# These jobs write their heartbeat when a run ends; the others when it begins.
_BEAT_AT_END: Final = frozenset({"outbox", "notices", "gates", "pruning"})

_OF_CHECKS: Final = (
    "SELECT (SELECT beat_us || ':' || every_us || ':' || position"
    " FROM inquiry_pulse WHERE name = %s),"
    " coalesce((SELECT max(position) FROM journal_entry), 0)"
)


@transaction.atomic
def beat(name: str, at_us: int | None = None, *, usual_s: int = 0) -> Pulse:
    """Record that a job runs now and return its heartbeat; an outage pauses alerts for HOLD_S.

    `usual_s` is the expected interval, used until a second heartbeat measures it.
    """
    row = _beaten(name, now_us() if at_us is None else at_us, usual_s)
    row.save()
    return row


@transaction.atomic
def ended(name: str, error: BaseException | None) -> None:
    """Record the end of a run. Stores only an error's type: every page and /readyz show it."""
    now = now_us()
    if name in _BEAT_AT_END:
        row = _beaten(name, now, 0)
    else:
        row, _ = Pulse.objects.select_for_update().get_or_create(
            name=name, defaults={"beat_us": now}
        )
    if error is None:
        row.succeeded_us, row.error = now, ""
    else:
        row.failed_us, row.error = now, re.sub(r"\W", "", type(error).__name__)[:64]
    row.save()


def _beaten(name: str, now: int, usual_s: int) -> Pulse:
    row = Pulse.objects.select_for_update().filter(name=name).first()
    if row is None:
        row, _ = Pulse.objects.get_or_create(
            name=name, defaults={"beat_us": now, "every_us": usual_s * US}
        )
        return row
    # Alerts never pause longer than HOLD_S, even if the clock was wrong when the pause began.
    longest_us = now + HOLD_S * US
    row.held_until_us = (
        longest_us if outage(row.beat_us, row.every_us, now) else min(row.held_until_us, longest_us)
    )
    if row.beat_us - now > CLOCK_STEP_US:
        _note_clock_step(now, row.beat_us - now)
    else:
        row.every_us = max(now - row.beat_us, 0)
    row.beat_us = now
    row.beats += 1
    return row


def _note_clock_step(now: int, by_us: int) -> None:
    """Record that the wall clock was set back by `by_us`; the first job of a step records it."""
    row, made = Pulse.objects.select_for_update().get_or_create(
        name=CLOCK, defaults={"beat_us": now, "every_us": by_us}
    )
    if not made:
        if now + by_us <= row.beat_us + row.every_us + CLOCK_STEP_US:
            return
        row.beat_us, row.every_us = now, by_us
        row.save()
    log.warning(
        "clock_moved",
        by_s=-by_us // US,
        detail="Deadlines and leases set before last longer by as much.",
    )


def heard(name: str) -> None:
    """Call `beat`; registered for jobs of lower layers."""
    beat(name)


def read_to(name: str, position: int) -> None:
    """Store the journal position that a job has read up to."""
    sql.write(
        "UPDATE inquiry_pulse SET position = %s WHERE name = %s AND position < %s",
        [position, name, position],
    )


def position(name: str) -> int:
    """Return the journal position that a job has read up to; 0 for none."""
    rows = sql.rows("SELECT position FROM inquiry_pulse WHERE name = %s", [name])
    return int(rows[0][0]) if rows else 0


def start_over(name: str) -> None:
    """Make a job read the journal from its beginning again."""
    Pulse.objects.filter(name=name).update(position=0)


def is_away(name: str, now: int) -> bool:
    """Return whether a job that ran before is now silent for too long (see `outage`)."""
    row = Pulse.objects.filter(name=name).first()
    return row is not None and outage(row.beat_us, row.every_us, now)


def progress_of_checks(at_us: int) -> Progress:
    """Return the sweeper's journal position and lateness at a moment. One query."""
    ((pulse, last),) = sql.rows(_OF_CHECKS, ["sweeper"])
    beat_us, every_us, position = map(int, pulse.split(":")) if pulse else (None, 0, 0)
    silent_us = (
        -1 if beat_us is None else at_us - beat_us if outage(beat_us, every_us, at_us) else 0
    )
    return Progress(STUCK, position, max(last, position), silent_us=silent_us)


def held_until() -> int:
    """Return until when alerts pause after an outage; a past moment if they do not."""
    return beating.held_until(sql.rows(_text())[0][0] or "")


def in_words(*_project: object) -> RawSQL:
    """Return all job heartbeats as one text column; journal/beating.py parses it."""
    return RawSQL(f"({_text()})", (), output_field=TextField())  # noqa: S611 - no user input


def all_of_them() -> list[Lateness]:
    """Return the lateness of every job. One query."""
    return lateness(sql.rows(_text())[0][0] or "", now_us())


def clock() -> ClockStep | None:
    """Return the last backward step of the wall clock while it affects deadlines."""
    return clock_step(sql.rows(_text())[0][0] or "", now_us())


def _text() -> str:
    return _ALL.format(gather="string_agg" if connection.vendor == "postgresql" else "group_concat")
