"""The one writer of EffectHour: a job counts new effects by the hour they were first seen in.

An effect never changes its position or hour, so each is counted once: those up to the job's
position are in the table, later ones are counted by readers. Both together are exact.
"""

import time
from typing import Final

from django.db import transaction

from accounts.models import Project
from db import jobs, raw_sql
from journal.running_writers import load_last_position, wait_until_stable
from monitoring import job_heartbeats
from monitoring.models import EffectHour

JOB_NAME: Final = "counts"
RUN_LIMIT_S: Final = 2.0  # seconds per run in the job worker, which has other jobs
HOUR_US: Final = 3_600_000_000
_STEP_POSITIONS: Final = 100_000  # journal positions that one transaction counts
_COUNT: Final = (
    "INSERT INTO monitoring_effecthour (project_id, hour_us, effects, first_position)"
    f" SELECT project_id, received_us - received_us % {HOUR_US}, count(*), min(opened_position)"
    " FROM ledger_effect WHERE project_id = %s AND opened_position > %s AND opened_position <= %s"
    " GROUP BY 1, 2"
    " ON CONFLICT (project_id, hour_us) DO UPDATE SET"
    " effects = monitoring_effecthour.effects + excluded.effects,"
    " first_position = CASE WHEN excluded.first_position < monitoring_effecthour.first_position"
    " THEN excluded.first_position ELSE monitoring_effecthour.first_position END"
)


@jobs.record_run(JOB_NAME)
def count_effect_hours(most_s: float | None = None) -> int:
    """Count new effects up to the journal's settled end, or for `most_s` seconds.

    Returns the journal position up to which all effects are counted.
    """
    jobs.send_job_heartbeat(JOB_NAME)
    ends = None if most_s is None else time.monotonic() + most_s
    settled = wait_until_stable(load_last_position())
    while (position := _count_step(settled)) < settled:
        if ends is not None and time.monotonic() > ends:
            break
    return position


def rebuild_effect_hours() -> int:
    """Delete all counts and count every effect again; return the position reached."""
    jobs.send_job_heartbeat(JOB_NAME)
    with transaction.atomic():
        job_heartbeats.lock_position(JOB_NAME)
        EffectHour.objects.all().delete()
        job_heartbeats.reset_position(JOB_NAME)
    return count_effect_hours()


@transaction.atomic
def _count_step(settled: int) -> int:
    """Count the effects of the next positions; the lock keeps a second worker from doing it too."""
    start = job_heartbeats.lock_position(JOB_NAME)
    until = min(settled, start + _STEP_POSITIONS)
    if until <= start:
        return start
    for project in Project.objects.values_list("id", flat=True):
        raw_sql.execute_write(_COUNT, [raw_sql.vendor_id(project), start, until])
    job_heartbeats.store_position(JOB_NAME, until)
    return until
