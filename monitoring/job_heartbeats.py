"""The one writer of JobHeartbeat: heartbeats of Gatebook's own jobs. Pages show late jobs."""

import re
from typing import Final

import structlog
from django.db import connection, transaction
from django.db.models import TextField
from django.db.models.expressions import RawSQL

from db import jobs, raw_sql
from db.clock import now_us
from db.jobs import CLOCK_ROW, CLOCK_STEP_US, ClockStep, JobState, evaluate_jobs, find_clock_step
from display.index_progress import STUCK, IndexProgress
from journal.running_writers import load_last_position
from monitoring.models import JobHeartbeat
from monitoring.stuck.hysteresis import PAUSE_S, US, is_outage

log = structlog.get_logger("gatebook.jobs")

# No job has read what the journal does not have. A position beyond its end was written by hand, and
# what such a job makes would look complete. The index of names keeps its position itself.
_IS_BEYOND: Final = (
    "CASE WHEN CASE name WHEN 'name_index'"
    " THEN coalesce((SELECT position FROM ledger_usednameprogress), 0) ELSE position END"
    " > coalesce((SELECT max(position) FROM journal_entry), 0) THEN 1 ELSE 0 END"
)
_COLUMNS: Final = (
    "name",
    "heartbeat_us",
    "every_us",
    "paused_until_us",
    "succeeded_us",
    "failed_us",
    _IS_BEYOND,
    "error",
)
_ALL_SQL: Final = (
    "SELECT {gather}(" + " || ':' || ".join(_COLUMNS) + ", ' ') FROM monitoring_jobheartbeat"
)
# These jobs write their heartbeat when a run ends; the others when it begins.
_HEARTBEAT_AT_END: Final = frozenset({"outbox", "notifications", "gates", "pruning"})

_STUCK_JOB_SQL: Final = (
    "SELECT (SELECT heartbeat_us || ':' || every_us || ':' || position"
    " FROM monitoring_jobheartbeat WHERE name = %s),"
    " coalesce((SELECT max(position) FROM journal_entry), 0)"
)


@transaction.atomic
def record_heartbeat(name: str, at_us: int | None = None, *, usual_s: int = 0) -> JobHeartbeat:
    """Record that a job runs now and return its heartbeat; an outage pauses alerts for PAUSE_S.

    `usual_s` is the expected interval, used until a second heartbeat measures it.
    """
    row = _update_heartbeat(name, now_us() if at_us is None else at_us, usual_s)
    row.save()
    return row


@transaction.atomic
def record_run_end(name: str, error: BaseException | None) -> None:
    """Record the end of a run. Stores only an error's type: every page and /readyz show it."""
    now = now_us()
    if name in _HEARTBEAT_AT_END:
        row = _update_heartbeat(name, now, 0)
    else:
        row, _ = JobHeartbeat.objects.select_for_update().get_or_create(
            name=name, defaults={"heartbeat_us": now}
        )
    if error is None:
        row.succeeded_us, row.error = now, ""
    else:
        row.failed_us, row.error = now, re.sub(r"\W", "", type(error).__name__)[:64]
    row.save()


def _update_heartbeat(name: str, now: int, usual_s: int) -> JobHeartbeat:
    # Locked also if another run has just made it: the caller saves every field, the position too.
    row, is_new = JobHeartbeat.objects.select_for_update().get_or_create(
        name=name, defaults={"heartbeat_us": now, "every_us": usual_s * US}
    )
    if is_new:
        return row
    # Alerts never pause longer than PAUSE_S, even if the clock was wrong when the pause began.
    longest_us = now + PAUSE_S * US
    row.paused_until_us = (
        longest_us
        if is_outage(row.heartbeat_us, row.every_us, now)
        else min(row.paused_until_us, longest_us)
    )
    if row.heartbeat_us - now > CLOCK_STEP_US:
        _note_clock_step(now, row.heartbeat_us - now)
    else:
        row.every_us = max(now - row.heartbeat_us, 0)
    row.heartbeat_us = now
    row.heartbeats += 1
    return row


def _note_clock_step(now: int, by_us: int) -> None:
    """Record that the wall clock was set back by `by_us`; the first job of a step records it."""
    row, made = JobHeartbeat.objects.select_for_update().get_or_create(
        name=CLOCK_ROW, defaults={"heartbeat_us": now, "every_us": by_us}
    )
    if not made:
        if now + by_us <= row.heartbeat_us + row.every_us + CLOCK_STEP_US:
            return
        row.heartbeat_us, row.every_us = now, by_us
        row.save()
    log.warning(
        "clock_moved",
        by_s=-by_us // US,
        detail="Deadlines and leases set before last longer by as much.",
    )


def store_position(name: str, position: int) -> None:
    """Store the journal position that a job has read up to."""
    raw_sql.execute_write(
        "UPDATE monitoring_jobheartbeat SET position = %s WHERE name = %s AND position < %s",
        [position, name, position],
    )


def load_position(name: str) -> int:
    """Return the journal position that a job has read up to; 0 for none."""
    rows = raw_sql.fetch_rows(
        "SELECT position FROM monitoring_jobheartbeat WHERE name = %s", [name]
    )
    return int(rows[0][0]) if rows else 0


def lock_position(name: str) -> int:
    """Return the position of a job that has a heartbeat, and keep other runs of it waiting."""
    row = JobHeartbeat.objects.select_for_update().filter(name=name)
    return row.values_list("position", flat=True).get()


def load_possible_position(name: str) -> int:
    """Return `load_position`, or 0 if the journal ends before that: then the job begins again."""
    position = load_position(name)  # read first: the journal only grows
    if position <= load_last_position():
        return position
    log.error("position_beyond_journal", job=name, position=position)
    reset_position(name)
    return 0


def reset_position(name: str) -> None:
    """Make a job read the journal from its beginning again."""
    JobHeartbeat.objects.filter(name=name).update(position=0)


def is_job_silent(name: str, now: int) -> bool:
    """Return whether a job that ran before is now silent for too long (see `outage`)."""
    row = JobHeartbeat.objects.filter(name=name).first()
    return row is not None and is_outage(row.heartbeat_us, row.every_us, now)


def load_stuck_check_progress(at_us: int) -> IndexProgress:
    """Return the sweeper's journal position and lateness at a moment. One query."""
    ((job_heartbeat_text, last),) = raw_sql.fetch_rows(_STUCK_JOB_SQL, ["stuck_checks"])
    heartbeat_us, every_us, position = (
        map(int, job_heartbeat_text.split(":")) if job_heartbeat_text else (None, 0, 0)
    )
    silent_us = (
        -1
        if heartbeat_us is None
        else at_us - heartbeat_us
        if is_outage(heartbeat_us, every_us, at_us)
        else 0
    )
    return IndexProgress(STUCK, position, max(last, position), silent_us=silent_us)


def load_pause_end() -> int:
    """Return until when alerts pause after an outage; a past moment if they do not."""
    return jobs.alerts_paused_until(raw_sql.fetch_rows(_heartbeats_sql())[0][0] or "")


def heartbeats_column(*_project: object) -> RawSQL:
    """Return all job heartbeats as one text column; db/jobs.py parses it."""
    return RawSQL(f"({_heartbeats_sql()})", (), output_field=TextField())  # noqa: S611 - no user input


def load_lateness() -> list[JobState]:
    """Return the lateness of every job. One query."""
    return evaluate_jobs(raw_sql.fetch_rows(_heartbeats_sql())[0][0] or "", now_us())


def load_clock_step() -> ClockStep | None:
    """Return the last backward step of the wall clock while it affects deadlines."""
    return find_clock_step(raw_sql.fetch_rows(_heartbeats_sql())[0][0] or "", now_us())


def _heartbeats_sql() -> str:
    return _ALL_SQL.format(
        gather="string_agg" if connection.vendor == "postgresql" else "group_concat"
    )
