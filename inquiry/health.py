"""/healthz and /readyz: whether this process lives, and whether it can do its work. Plain text, for machines."""

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from journal import triggers


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
    return _text(f"not ready: {reason}" if reason else "ready", 503 if reason else 200)


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
