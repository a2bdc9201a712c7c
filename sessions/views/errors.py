"""The pages for what went wrong: calm, in the frame where it can be had, saying what to do."""

import sys
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone

from journal import outages
from sessions.access import attach

RETRY_AFTER_S: Final = 2
BUSY: Final = "Gatebook is busy and could not answer in time. Nothing was recorded. Go back and try again."
LOST: Final = (
    "The database was lost while Gatebook answered. What you sent may be recorded or not: go back, load the page "
    "again, and look before you send it once more."
)
READ_ONLY: Final = (
    "The database is read-only at the moment, for example during a failover. Nothing was recorded. Go back and try "
    "again in a minute; if it lasts, ask your operator."
)
FULL: Final = (
    "The disk of the database is full. Nothing was recorded. Ask your operator to free space; then go back and try "
    "again."
)
WORDS: Final[dict[outages.Outage, str]] = {"busy": BUSY, "lost": LOST, "read_only": READ_ONLY, "full": FULL}


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404. The same page for what never was and for what another project holds."""
    return _page(request, "404.html", 404)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403."""
    return _page(request, "403.html", 403)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400: nothing of the request is believed, so nobody's frame is drawn."""
    return HttpResponse(render_to_string("400.html"), status=400)


def form_only(request: HttpRequest, refused: HttpResponse) -> HttpResponse:
    """405 for whoever reads the address of a form, which Django answers with an empty page."""
    answer = _page(request, "405.html", 405)
    answer.headers["Allow"] = refused.headers.get("Allow", "POST")
    return answer


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
    outage = outages.outage_of(error)
    if outage is None:
        return None
    outages.drop_read_only_connection(outage)
    words = WORDS[outage]
    headers = {"Retry-After": str(max(RETRY_AFTER_S, outages.RETRY_AFTER_S[outage]))}
    if request.headers.get("HX-Request"):  # stands where a part of the page was to stand
        return HttpResponse(f"{words}\n", status=503, content_type="text/plain; charset=utf-8", headers=headers)
    return HttpResponse(render_to_string("503.html", {"words": words}), status=503, headers=headers)


def _page(request: HttpRequest, template: str, status: int) -> HttpResponse:
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated and not hasattr(request, "membership"):
        attach(request)
    return render(request, template, status=status)
