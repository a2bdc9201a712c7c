"""Health endpoints /healthz and /readyz in plain text for machines."""

import os

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from inquiry.stuck import pulses
from journal import beating, fingerprints, inventory, triggers
from journal.templatetags.gatebook import elapsed


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while the process can answer. No query."""
    return _text("ok", 200)


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 if the database answers, is migrated and has its triggers, else 503.

    The body of a 503 has the reason.
    The reason names no host, role or path: everyone who reaches the port can read it.
    """
    try:
        reason = _why_not()
    except (DatabaseError, InterfaceError):
        reason = "the database does not answer"
    if reason:
        return _text(f"not ready: {reason}", 503)
    return _text("\n".join(_standing()), 200)


def _standing() -> list[str]:
    """Return a summary line, and one line per job that ever ran.

    Late jobs do not make Gatebook unready: pages and API work without them.
    """
    jobs, step = [job for job in pulses.all_of_them() if job.ago_us is not None], pulses.clock()
    troubled = [job.name for job in jobs if job.in_trouble] + ([beating.CLOCK] if step else [])
    lines = [f"{job.name}: {_in_words(job)}" for job in jobs]
    if step:
        moved = f"set back {elapsed(step.by_us)}, {elapsed(step.ago_us)} ago"
        lines.append(
            f"clock: {moved}; earlier deadlines and leases last longer,"
            f" for {elapsed(step.left_us)} more"
        )
    return [f"ready, degraded: {', '.join(troubled)}" if troubled else "ready", *lines]


def _in_words(job: beating.Lateness) -> str:
    if job.ahead_us:
        return f"clock moved, last ran {elapsed(job.ahead_us)} ahead of the clock"
    late = "late, " if job.late else ""
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


def _why_not() -> str | None:
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
    if triggers.missing(connection):
        return "database triggers are missing; run `manage.py migrate`"
    if foreign := fingerprints.foreign_keys():
        return f"the key {foreign[0]} is not the one that the database was written with"
    if different := inventory.differences(connection):
        return f"the tables are not those of this version: {inventory.sentence(different)}"
    return None


def _text(words: str, status: int) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
