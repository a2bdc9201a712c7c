"""What every page of people passes through besides Django's own: no caching, busy answers, the end of a sign-in."""

import time
from collections.abc import Callable

import structlog
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from config.logs import MESSAGE_CHARACTERS
from sessions.views.errors import form_only, unavailable

log = structlog.get_logger("gatebook.pages")

GetResponse = Callable[[HttpRequest], HttpResponse]

SIGNED_IN_S = "signed_in_s"
SEEN_S = "seen_s"
# The clock of a sign-in is written at most this often, so that reading pages does not queue for the one writer.
SEEN_PRECISION_S = 60
COUNTS = "/counts/"  # which every open page polls, whether or not anybody is there


class NoStoreMiddleware:
    """Forbids every cache to keep a page; a view that has said something stricter or looser itself is left alone.

    Stands below whitenoise, so static files keep their long life.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response


class SignInClockMiddleware:
    """Ends a sign-in after 30 idle minutes and, used or not, after 12 hours (settings.SIGN_IN_*_S).

    An ended sign-in is forgotten on the server too: its cookie is worth nothing afterwards.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session = request.session
        if SESSION_KEY in session:
            now = int(time.time())
            signed_in = session.setdefault(SIGNED_IN_S, now)
            seen = session.setdefault(SEEN_S, now)
            if now - seen > settings.SIGN_IN_IDLE_S or now - signed_in > settings.SIGN_IN_ABSOLUTE_S:
                session.flush()
            elif now - seen >= SEEN_PRECISION_S and request.path != COUNTS:
                session[SEEN_S] = now
        return self.get_response(request)


@receiver(user_logged_in)
def _start_clock(sender: object, request: HttpRequest, **kwargs: object) -> None:
    now = int(time.time())
    request.session[SIGNED_IN_S] = request.session[SEEN_S] = now


class OwnPasswordMiddleware:
    """Leads whoever signed in with a password that somebody else set to the page that replaces it, and nowhere else.

    Until then nobody knows who is signed in: the person, or the one who set the password.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info not in _open_to_all() and request.user.is_authenticated:
            person = getattr(request.user, "person", None)
            if person is None or not person.password_is_own:
                return redirect("password")
        return self.get_response(request)


def _open_to_all() -> tuple[str, ...]:
    """What is served whoever asks: it shows nothing of any project."""
    return "/healthz", "/readyz", *(reverse(name) for name in ("password", "sign_in", "sign_out"))


class BusyMiddleware:
    """Answers 503 when the database had no turn or no connection for the page in time, or was lost meanwhile.

    An empty 405 becomes a page: people load the address of a form that was refused again.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        reads = request.method == "GET" and response.status_code == 405
        return form_only(request, response) if reads and not response.content else response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        answer = unavailable(request, exception)
        if answer is not None:
            log.warning("busy", path=request.path, reason=str(exception)[:MESSAGE_CHARACTERS])
        return answer
