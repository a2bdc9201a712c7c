"""The doors of the frame itself: home, the project switcher, the clock, help."""

from uuid import UUID

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from sessions import people
from sessions.access import MemberRequest, attach, choose, may, member
from sessions.standing import standing_of

EXAMPLE = "<b>git push</b> \u202eniam nigiro\u202c\nhttps://example.org is text here, and so is this."
CLOCKS = ("utc", "local", "relative")


@require_safe
@member
def home(request: MemberRequest) -> HttpResponse:
    """The first page after signing in: what waits for a reviewer, else the sessions."""
    waits = may(request.membership, "reviewer") and standing_of(request).waiting
    return redirect("inbox" if waits else "sessions")


@require_POST
@member
def switch_project(request: MemberRequest) -> HttpResponse:
    """Make another of the person's projects the current one, and go to `next` in it; any other id is not found."""
    try:
        project = choose(request, UUID(request.POST.get("project", "")))
    except ValueError:
        project = None
    if project is None:
        raise Http404
    return redirect(local_path(request, request.POST.get("next", "")))


@require_POST
@member
def clock(request: MemberRequest) -> HttpResponse:
    """Store how a person wants times told, and go back to where they were."""
    wanted = request.POST.get("clock", "")
    if wanted in CLOCKS:
        with transaction.atomic(durable=True):
            people.change_settings(request.user, clock=wanted)
    return redirect(local_path(request, request.POST.get("next", "")))


@require_safe
def help_page(request: HttpRequest) -> HttpResponse:
    """Keys, states and ids, explained; for strangers too."""
    if request.user.is_authenticated:
        attach(request)
    return render(request, "sessions/help.html", {"example": EXAMPLE})


def local_path(request: HttpRequest, path: str) -> str:
    """`path` when it stays on this site, else home."""
    if path.startswith("/") and url_has_allowed_host_and_scheme(path, {request.get_host()}, request.is_secure()):
        return path
    return reverse("home")
