"""Health endpoints /healthz, /readyz and /metrics in plain text for machines."""

import os

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from db import jobs as db_job_heartbeats
from db import schema_inventory, triggers
from db.postgres import excess_rights
from journal import fingerprints
from monitoring import job_heartbeats
from monitoring.metric_texts import METRICS
from proofs import seal_lag, sealer
from web.templatetags.gatebook import elapsed


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while the process can answer. No query."""
    return _text_response("ok", 200)


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 if the database answers, is migrated and has its triggers, else 503.

    The body of a 503 has the reason.
    The reason names no host, role or path: everyone who reaches the port can read it.
    """
    try:
        reason = _unready_reason()
    except (DatabaseError, InterfaceError):
        reason = "the database does not answer"
    if reason:
        return _text_response(f"not ready: {reason}", 503)
    return _text_response("\n".join(_ready_lines()), 200)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the seal's lag and the jobs' state, in the text format of Prometheus.

    It says what /readyz says, in numbers: nothing of any project.
    """
    try:
        jobs, lag = job_heartbeats.load_lateness(), seal_lag.load_seal_lag()
    except (DatabaseError, InterfaceError):
        return _text_response("not ready: the database does not answer", 503)
    troubled = [(job.name, int(job.in_trouble)) for job in jobs if job.ago_us is not None]
    samples = {
        "gatebook_seal_lag_seconds": [f" {lag.age_us / 1_000_000:.6f}"],
        "gatebook_seal_late": [f" {int(lag.is_late)}"],
        "gatebook_sealed_entries": [f" {lag.size}"],
        "gatebook_job_in_trouble": [f'{{job="{name}"}} {value}' for name, value in troubled],
    }
    lines = []
    for name, meaning in METRICS.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        lines += [f"{name}{sample}" for sample in samples[name]]
    response = _text_response("\n".join(lines), 200)
    response.headers["Content-Type"] = "text/plain; version=0.0.4; charset=utf-8"
    return response


def _ready_lines() -> list[str]:
    """Return a summary line, and one line per job that ever ran.

    Late jobs do not make Gatebook unready: pages and API work without them.
    """
    jobs, step = (
        [job for job in job_heartbeats.load_lateness() if job.ago_us is not None],
        job_heartbeats.load_clock_step(),
    )
    troubled = [job.name for job in jobs if job.in_trouble] + (
        [db_job_heartbeats.CLOCK_ROW] if step else []
    )
    lines = [f"{job.name}: {_job_status(job)}" for job in jobs]
    if any(job.name == sealer.JOB_NAME for job in jobs):
        lines.append(_seal_line())
    if step:
        moved = f"set back {elapsed(step.by_us)}, {elapsed(step.ago_us)} ago"
        lines.append(
            f"clock: {moved}; earlier deadlines and leases last longer;"
            f" this ends in {elapsed(step.left_us)}"
        )
    return [f"ready, degraded: {', '.join(troubled)}" if troubled else "ready", *lines]


def _seal_line() -> str:
    """Return how far the seal is behind the journal. The job fails when it is late."""
    lag = seal_lag.load_seal_lag()
    behind = f"{elapsed(lag.age_us)} behind" if lag.age_us else "not behind"
    return f"seal lag: {behind}, {lag.size} entries sealed"


def _job_status(job: db_job_heartbeats.JobState) -> str:
    if job.ahead_us:
        return f"clock set back, last ran at a time {elapsed(job.ahead_us)} in the future"
    late = "late, " if job.late else ""
    if job.is_beyond:
        late += "claims to have read beyond the journal's end, "
    if job.failing:
        never = job.succeeded_ago_us is None
        succeeded = (
            "never succeeded" if never else f"last succeeded {elapsed(job.succeeded_ago_us)} ago"
        )
        return (
            f"{late}failing, {succeeded}; last error {job.error}, {elapsed(job.failed_ago_us)} ago"
        )
    if job.late or job.succeeded_ago_us is None:
        return f"{late}last ran {elapsed(job.ago_us)} ago"
    return f"{late}last succeeded {elapsed(job.succeeded_ago_us)} ago"


def _unready_reason() -> str | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        if connection.vendor == "postgresql":
            cursor.execute("SHOW transaction_read_only")
            if cursor.fetchone() == ("on",):
                return "the database is read-only"
    if connection.vendor == "sqlite" and not os.access(connection.settings_dict["NAME"], os.W_OK):
        return "the database is read-only"
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return "the database is not migrated; run `manage.py migrate`"
    # The keys come first: with another pepper no trigger of PostgreSQL has its digest.
    if foreign := fingerprints.find_changed_keys():
        return f"the key {foreign[0]} is not the one that the database was written with"
    if triggers.find_missing_triggers(connection):
        return "database triggers are missing; run `manage.py migrate`"
    if excess_rights.find_excess_rights(connection):
        return (
            "the application's role of the database can change history or remove its guards; run"
            " `manage.py check --database default`"
        )
    if different := schema_inventory.find_schema_differences(connection):
        summary = schema_inventory.summarize_differences(different)
        return f"the tables are not those of this version: {summary}"
    return None


def _text_response(words: str, status: int) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
