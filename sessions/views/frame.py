"""The doors of the frame itself: home, the project switcher, the clock, help."""

from urllib.parse import urlsplit
from uuid import UUID

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from sessions import invitations, people
from sessions.access import MemberRequest, attach, choose, may, member
from sessions.standing import counts_mark, standing_of

EXAMPLE = "<b>git push</b> \u202eniam nigiro\u202c\nhttps://example.org is text here, and so is this."
CLOCKS = ("utc", "local", "relative")


@require_safe
def home(request: HttpRequest) -> HttpResponseBase:
    """The first page after signing in: an invitation, what waits for a reviewer, else the sessions."""
    if request.user.is_authenticated and invitations.of_person(request.user).exists():
        return redirect("invitations")
    return _home(request)


@member
def _home(request: MemberRequest) -> HttpResponse:
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
@member
@vary_on_headers("HX-Request")
def counts(request: MemberRequest) -> HttpResponse:
    """The rail with its counts, for whatever page polls; 204 while they are those of `since`."""
    if request.GET.get("since") == counts_mark(standing_of(request)):
        return HttpResponse(status=204)
    return render(request, "sessions/counts.html", {"path": urlsplit(request.headers.get("HX-Current-URL", "")).path})


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
