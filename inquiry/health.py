"""/healthz and /readyz: whether this process lives, and whether it can do its work. Plain text, for machines."""

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from inquiry.stuck import pulses
from journal import triggers
from journal.templatetags.gatebook import elapsed


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 as long as the process answers at all; asks nothing of the database."""
    return _text("ok", 200)


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when the database answers, is migrated and guards its history, else 503 with the reason.

    The reason names no host, role or path: whoever can reach the port can read it.
    """
    try:
        reason = _why_not()
    except (DatabaseError, InterfaceError):
        reason = "the database does not answer"
    if reason:
        return _text(f"not ready: {reason}", 503)
    return _text("\n".join(["ready", *_chores()]), 200)


def _chores() -> list[str]:
    """How late our own chores are: what has never run is not told. Without them pages and doors work all the same."""
    told = [one for one in pulses.all_of_them() if one.ago_us is not None]
    return [f"{one.name}: {'late, ' if one.late else ''}last ran {elapsed(one.ago_us)} ago" for one in told]


def _why_not() -> str | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return "the database is not migrated; run `manage.py migrate`"
    if triggers.missing(connection):
        return "triggers that guard the record are missing; run `manage.py migrate`"
    return None


def _text(words: str, status: int) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
