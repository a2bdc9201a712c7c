"""The one writer of EffectHour and EffectDay: a job counts new effects by hour and by day.

An effect never changes its position, agent, tool or time, so each is counted once: those up to the
job's position are in the tables, later ones are counted by readers. Both together are exact.
"""

import time
from collections import Counter
from typing import Final
from uuid import UUID

import structlog
from django.db import transaction

from accounts.models import Project
from db import jobs, raw_sql
from db.whole_days import DAY_US
from journal.running_writers import load_last_position, wait_until_stable
from monitoring import job_heartbeats
from monitoring.models import EffectDay, EffectHour

log = structlog.get_logger("gatebook.jobs")
JOB_NAME: Final = "counts"
RUN_LIMIT_S: Final = 2.0  # seconds per run in the job worker, which has other jobs
HOUR_US: Final = 3_600_000_000
_STEP_POSITIONS: Final = 100_000  # journal positions that one transaction counts
_OF_STEP: Final = (
    " FROM ledger_effect WHERE project_id = %s AND opened_position > %s AND opened_position <= %s"
)
_COUNT_HOURS: Final = (
    "INSERT INTO monitoring_effecthour (project_id, hour_us, effects, first_position)"
    f" SELECT project_id, received_us - received_us % {HOUR_US}, count(*), min(opened_position)"
    f"{_OF_STEP} GROUP BY 1, 2"
    " ON CONFLICT (project_id, hour_us) DO UPDATE SET"
    " effects = monitoring_effecthour.effects + excluded.effects,"
    " first_position = CASE WHEN excluded.first_position < monitoring_effecthour.first_position"
    " THEN excluded.first_position ELSE monitoring_effecthour.first_position END"
)
_COUNT_DAYS: Final = (
    "INSERT INTO monitoring_effectday (project_id, agent_id, tool, day_us, effects)"
    f" SELECT project_id, agent_id, tool, received_us - received_us % {DAY_US}, count(*)"
    f"{_OF_STEP} GROUP BY 1, 2, 3, 4"
    " ON CONFLICT (project_id, agent_id, tool, day_us) DO UPDATE SET"
    " effects = monitoring_effectday.effects + excluded.effects"
)
# The position up to which the job has counted; readers count the effects above it.
COUNTED_POSITION: Final = (
    f"coalesce((SELECT position FROM monitoring_jobheartbeat WHERE name = '{JOB_NAME}'), 0)"
)
# Always true. PostgreSQL expects a third of all rows above a position that it does not know, and
# reads the whole table; of a range with two ends it expects little, and uses an index.
IS_OF_A_RANGE: Final = f"opened_position <= {2**63 - 1}"
# Materialized, so that the effects that are not counted yet are found by their positions.
_BY_TOOL: Final = f"""
WITH uncounted AS MATERIALIZED (
  SELECT agent_id, tool, received_us FROM ledger_effect
  WHERE project_id = %s AND opened_position > {COUNTED_POSITION} AND {IS_OF_A_RANGE}
)
SELECT tool, day_us, effects FROM monitoring_effectday
WHERE project_id = %s {{of_agent}} AND day_us >= %s
UNION ALL
SELECT tool, received_us - received_us % {DAY_US}, count(*) FROM uncounted
WHERE received_us >= %s {{of_agent}} GROUP BY 1, 2
"""


@jobs.record_run(JOB_NAME)
def count_effect_hours(most_s: float | None = None) -> int:
    """Count new effects up to the journal's settled end, or for `most_s` seconds.

    Returns the journal position up to which all effects are counted.
    """
    jobs.send_job_heartbeat(JOB_NAME)
    ends = None if most_s is None else time.monotonic() + most_s
    if job_heartbeats.load_position(JOB_NAME) > load_last_position():
        log.error("position_beyond_journal", job=JOB_NAME)
        _delete_counts()  # counting on from any other place would count twice, or leave out
    settled = wait_until_stable(load_last_position())
    while (position := _count_step(settled)) < settled:
        if ends is not None and time.monotonic() > ends:
            break
    return position


def rebuild_effect_hours() -> int:
    """Delete all counts and count every effect again; return the position reached."""
    jobs.send_job_heartbeat(JOB_NAME)
    _delete_counts()
    return count_effect_hours()


def _delete_counts() -> None:
    with transaction.atomic():
        job_heartbeats.lock_position(JOB_NAME)
        EffectHour.objects.all().delete()
        EffectDay.objects.all().delete()
        job_heartbeats.reset_position(JOB_NAME)


def load_effect_days(
    project: UUID, since_us: int, agent: UUID | None = None
) -> dict[str, Counter[int]]:
    """Return the effects by tool and day, from the start of a day on. One query."""
    counts: dict[str, Counter[int]] = {}
    of_agent = [] if agent is None else [raw_sql.vendor_id(agent)]
    key = raw_sql.vendor_id(project)
    text = _BY_TOOL.format(of_agent="AND agent_id = %s" if of_agent else "")
    parameters = [key, key, *of_agent, since_us, since_us, *of_agent]
    for tool, day_us, number in raw_sql.fetch_rows(text, parameters):
        counts.setdefault(tool, Counter())[day_us] += number
    return counts


@transaction.atomic
def _count_step(settled: int) -> int:
    """Count the effects of the next positions; the lock keeps a second worker from doing it too."""
    start = job_heartbeats.lock_position(JOB_NAME)
    until = min(settled, start + _STEP_POSITIONS)
    if until <= start:
        return start
    for project in Project.objects.values_list("id", flat=True):
        for text in (_COUNT_HOURS, _COUNT_DAYS):
            raw_sql.execute_write(text, [raw_sql.vendor_id(project), start, until])
    job_heartbeats.store_position(JOB_NAME, until)
    return until
