"""Views of the layout: project switcher, clock, navigation counts, help, glossary."""

from urllib.parse import urlsplit
from uuid import UUID

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from accounts import glossary, people
from accounts.access import (
    MemberRequest,
    attach_membership,
    choose_project,
    member_required,
)
from accounts.header_counts import build_counts_mark, load_project_status

UNTRUSTED_EXAMPLE = (
    "<b>git push</b> \u202eniam nigiro\u202c\nhttps://example.org is text here, and so is this."
)
CLOCKS = ("utc", "local", "relative")


@require_POST
@member_required
def switch_project(request: MemberRequest) -> HttpResponse:
    """Switch to another of the person's projects and go to `next`; 404 for other ids."""
    try:
        project = choose_project(request, UUID(request.POST.get("project", "")))
    except ValueError:
        project = None
    if project is None:
        raise Http404
    return redirect(safe_local_path(request, request.POST.get("next", "")))


@require_POST
@member_required
def set_clock(request: MemberRequest) -> HttpResponse:
    """Store how a person wants times shown, and go back to their page."""
    choice = request.POST.get("clock", "")
    if choice in CLOCKS:
        with transaction.atomic(durable=True):
            people.save_person_settings(request.user, clock=choice)
    return redirect(safe_local_path(request, request.POST.get("next", "")))


@require_safe
@member_required
@vary_on_headers("HX-Request")
def navigation_counts(request: MemberRequest) -> HttpResponse:
    """Return the navigation with its counts for polling pages; 204 while unchanged."""
    if request.GET.get("since") == build_counts_mark(load_project_status(request)):
        return HttpResponse(status=204)
    return render(
        request,
        "accounts/counts.html",
        {"path": urlsplit(request.headers.get("HX-Current-URL", "")).path},
    )


@require_safe
def help_page(request: HttpRequest) -> HttpResponse:
    """Explain keys, states and ids, also to anonymous users."""
    if request.user.is_authenticated:
        attach_membership(request)
    return render(request, "accounts/help.html", {"example": UNTRUSTED_EXAMPLE})


@require_safe
def glossary_page(request: HttpRequest) -> HttpResponse:
    """Explain the terms, also to anonymous users."""
    if request.user.is_authenticated:
        attach_membership(request)
    return render(request, "accounts/glossary.html", {"terms": glossary.load_glossary()})


def safe_local_path(request: HttpRequest, path: str) -> str:
    """Return `path` if it stays on this site, else home."""
    if path.startswith("/") and url_has_allowed_host_and_scheme(
        path, {request.get_host()}, request.is_secure()
    ):
        return path
    return reverse("home")
