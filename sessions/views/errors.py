"""The pages for what went wrong: calm, in the frame where it can be had, saying what to do."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone

from sessions.access import attach


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
    """500, without the database, which may be the trouble. Names the moment, by which the log can be searched."""
    return HttpResponse(render_to_string("500.html", {"now": timezone.now()}), status=500)


def _page(request: HttpRequest, template: str, status: int) -> HttpResponse:
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated and not hasattr(request, "membership"):
        attach(request)
    return render(request, template, status=status)
