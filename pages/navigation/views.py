"""Views of the layout of every page: project switcher and counts of the navigation."""

from urllib.parse import urlsplit
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, choose_project, member_required, safe_local_path
from accounts.header_counts import build_counts_mark, load_project_status


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


@require_safe
@member_required
@vary_on_headers("HX-Request")
def navigation_counts(request: MemberRequest) -> HttpResponse:
    """Return the navigation with its counts for polling pages; 204 while unchanged."""
    if request.GET.get("since") == build_counts_mark(load_project_status(request)):
        return HttpResponse(status=204)
    return render(
        request,
        "pages/navigation/counts.html",
        {"path": urlsplit(request.headers.get("HX-Current-URL", "")).path},
    )
