"""Middleware of the pages: no caching, busy answers, the end of sign-ins."""

import time
from collections.abc import Callable
from functools import cache

import structlog
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import redirect
from django.urls import reverse

from accounts.views.errors import method_not_allowed, render_unavailable
from config.logging import MESSAGE_CHARACTERS

log = structlog.get_logger("gatebook.pages")

GetResponse = Callable[[HttpRequest], HttpResponse]

SIGNED_IN_S = "signed_in_s"
SEEN_S = "seen_s"
# The sign-in's clock is written at most this often, so that reading pages rarely needs the writer.
SEEN_PRECISION_S = 60
SETTINGS = "/settings/"  # with the secrets of channels and code hosts
COUNTS = "/navigation/counts/"  # polled by every open page, even without a person


class _Middleware:
    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response


class CompressedPagesMiddleware(GZipMiddleware):
    """Compress pages, which are the only large answers to people on a slow network.

    Never pages that show a secret, whose length could betray it (BREACH): answers to forms and the
    settings. Files and answers to agents are sent as they are.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        is_page = response.headers.get("Content-Type", "").startswith("text/html")
        may_show_secret = request.method != "GET" or request.path.startswith(SETTINGS)
        if not is_page or may_show_secret:
            return response
        return super().process_response(request, response)


class NoStoreMiddleware(_Middleware):
    """Forbid caching of pages, unless the view has set Cache-Control itself.

    Runs below whitenoise, so that static files keep their long lifetime.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response


class SignInClockMiddleware(_Middleware):
    """End a sign-in after 30 idle minutes, and after 12 hours in any case.

    The times are settings.SIGN_IN_*_S. The server deletes an ended sign-in, so that its cookie is
    worthless.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session = request.session
        if SESSION_KEY in session:
            now = int(time.time())
            signed_in = session.setdefault(SIGNED_IN_S, now)
            seen = session.setdefault(SEEN_S, now)
            if (
                now - seen > settings.SIGN_IN_IDLE_S
                or now - signed_in > settings.SIGN_IN_ABSOLUTE_S
            ):
                session.flush()
            elif now - seen >= SEEN_PRECISION_S and request.path != COUNTS:
                session[SEEN_S] = now
        return self.get_response(request)


@receiver(user_logged_in)
def _start_clock(sender: object, request: HttpRequest, **kwargs: object) -> None:
    now = int(time.time())
    request.session[SIGNED_IN_S] = request.session[SEEN_S] = now


class OwnPasswordMiddleware(_Middleware):
    """Redirect people to replace a password that another person set.

    Until they replace it, the user may be that other person.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info not in _open_to_all() and request.user.is_authenticated:
            person = getattr(request.user, "person", None)
            if person is None or not person.password_is_own:
                return redirect("password")
        return self.get_response(request)


@cache
def _open_to_all() -> tuple[str, ...]:
    """Return the paths that anybody may open; they show nothing of any project."""
    pages = (reverse(name) for name in ("password", "sign_in", "sign_out"))
    return "/healthz", "/readyz", "/metrics", *pages


class BusyMiddleware(_Middleware):
    """Answer 503 when the database was too busy for the page, or was lost.

    An empty 405 becomes a page, because people reload the address of a rejected form.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        reads = request.method == "GET" and response.status_code == 405
        return method_not_allowed(request, response) if reads and not response.content else response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        answer = render_unavailable(request, exception)
        if answer is not None:
            log.warning("busy", path=request.path, reason=str(exception)[:MESSAGE_CHARACTERS])
        return answer
