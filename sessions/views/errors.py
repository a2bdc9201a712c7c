"""The pages for what went wrong: calm, in the frame where it can be had, saying what to do."""

import sys
from typing import Final

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone

from journal import again
from sessions.access import attach

RETRY_AFTER_S: Final = 2
BUSY: Final = "Gatebook is busy and could not answer in time. Nothing was recorded. Go back and try again."
LOST: Final = (
    "The database was lost while Gatebook answered. What you sent may be recorded or not: go back, load the page "
    "again, and look before you send it once more."
)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404. The same page for what never was and for what another project holds."""
    return _page(request, "404.html", 404)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403."""
    return _page(request, "403.html", 403)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400: nothing of the request is believed, so nobody's frame is drawn."""
    return HttpResponse(render_to_string("400.html"), status=400)


def server_error(request: HttpRequest) -> HttpResponse:
    """500, without the database, which may be the trouble. Names the moment, by which the log can be searched.

    503 when the trouble is the database's and will pass.
    """
    answer = unavailable(request, sys.exception())
    if answer is not None:
        return answer
    return HttpResponse(render_to_string("500.html", {"now": timezone.now()}), status=500)


def unavailable(request: HttpRequest, error: BaseException | None) -> HttpResponse | None:
    """503 where `error` says that the database had no room or was lost; None for every other fault."""
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    cause = error.__cause__
    if type(cause).__name__ == "PoolTimeout" or "database is locked" in str(error) or again.asked(error):
        words = BUSY
    elif _was_lost(cause):
        words = LOST
    else:
        return None
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    if request.headers.get("HX-Request"):  # stands where a part of the page was to stand
        return HttpResponse(f"{words}\n", status=503, content_type="text/plain; charset=utf-8", headers=headers)
    return HttpResponse(render_to_string("503.html", {"words": words}), status=503, headers=headers)


def _was_lost(cause: BaseException | None) -> bool:
    """Whether PostgreSQL said that it ends, or nothing any more; SQLite's errors have no `sqlstate` at all."""
    state = getattr(cause, "sqlstate", "none")
    return state is None or state.startswith(("08", "57P"))


def _page(request: HttpRequest, template: str, status: int) -> HttpResponse:
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated and not hasattr(request, "membership"):
        attach(request)
    return render(request, template, status=status)
