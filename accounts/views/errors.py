"""Error pages: what went wrong and what to do, in the layout where possible."""

import sys
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone

from accounts.access import attach_membership
from db import outages

RETRY_AFTER_S: Final = 2
DATABASE_BUSY_TEXT: Final = (
    "Gatebook is busy and could not answer in time. Nothing was recorded. Go back and try again."
)
DATABASE_LOST_TEXT: Final = (
    "Gatebook lost its database connection while it answered. What you sent may or may not be"
    " recorded. Go back, reload the page and check before you send it again."
)
DATABASE_READ_ONLY_TEXT: Final = (
    "The database is read-only at the moment, for example during a failover. Nothing was recorded."
    " Go back and try again in a minute. If it lasts, ask your operator."
)
DISK_FULL_TEXT: Final = (
    "The disk of the database is full. Nothing was recorded. Ask your operator to free space, then"
    " go back and try again."
)
OUTAGE_TEXTS: Final[dict[outages.Outage, str]] = {
    "busy": DATABASE_BUSY_TEXT,
    "lost": DATABASE_LOST_TEXT,
    "read_only": DATABASE_READ_ONLY_TEXT,
    "full": DISK_FULL_TEXT,
}


def not_found_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 404: the same page for missing objects and for other projects' objects."""
    return _render_page(request, "404.html", 404)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 403."""
    return _render_page(request, "403.html", 403)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 400 without the layout, because nothing in the request is trusted."""
    return HttpResponse(render_to_string("400.html"), status=400)


def method_not_allowed(request: HttpRequest, refused: HttpResponse) -> HttpResponse:
    """Return 405 for a GET of a form's address. Django's own answer is an empty page."""
    answer = _render_page(request, "405.html", 405)
    answer.headers["Allow"] = refused.headers.get("Allow", "POST")
    return answer


def server_error(request: HttpRequest) -> HttpResponse:
    """Return 500 with the time, to find the error in the log; uses no database.

    Returns 503 instead for a temporary fault of the database.
    """
    answer = render_unavailable(request, sys.exception())
    if answer is not None:
        return answer
    return HttpResponse(render_to_string("500.html", {"now": timezone.now()}), status=500)


def render_unavailable(request: HttpRequest, error: BaseException | None) -> HttpResponse | None:
    """Return 503 where `error` is a temporary fault of the database; else None."""
    outage = outages.classify_outage(error)
    if outage is None:
        return None
    outages.drop_read_only_connection(outage)
    message = OUTAGE_TEXTS[outage]
    headers = {"Retry-After": str(max(RETRY_AFTER_S, outages.RETRY_AFTER_S[outage]))}
    if request.headers.get("HX-Request"):  # replaces only a part of the page
        return HttpResponse(
            f"{message}\n", status=503, content_type="text/plain; charset=utf-8", headers=headers
        )
    return HttpResponse(
        render_to_string("503.html", {"words": message}), status=503, headers=headers
    )


def _render_page(request: HttpRequest, template: str, status: int) -> HttpResponse:
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated and not hasattr(request, "membership"):
        attach_membership(request)
    return render(request, template, status=status)
