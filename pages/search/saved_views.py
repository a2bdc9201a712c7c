"""List and edit saved queries. A private query is visible only to its owner."""

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from accounts.access import MemberRequest, member_required
from db import retry
from db.errors import ChangeRefused
from display.page_params import parse_number
from investigation.models import SavedQuery
from investigation.saved_queries import saved_queries as search_saved_queries
from pages.search import alerts_views


@require_http_methods(["GET", "HEAD", "POST"])
@member_required
def saved_queries(request: MemberRequest) -> HttpResponse:
    """List own and shared queries; POST saves a new one."""
    form, error = request.POST if request.method == "POST" else request.GET, ""
    if request.method == "POST":
        name, text, shared = form.get("name", ""), form.get("q", ""), form.get("shared") == "1"
        try:
            query = retry.run_with_retry(
                lambda: search_saved_queries.save_query(
                    request.membership.project, request.user, name, text, shared=shared
                )
            )
        except ChangeRefused as refusal:
            error = str(refusal)
        else:
            messages.success(request, f"Saved as “{query.name}”.")
            return redirect("saved_queries")
    context = {
        "rows": list(search_saved_queries.visible_saved_queries(request.membership)),
        "name": form.get("name", ""),
        "text": form.get("q", ""),
        "shared": form.get("shared") == "1",
        "error": error,
    }
    return render(request, "pages/search/saved_queries.html", context, status=422 if error else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@member_required
def saved_query(request: MemberRequest, saved_query: UUID) -> HttpResponse:
    """Show a saved query; its owner can rename, change, share, delete; others run it."""
    query = search_saved_queries.get_saved_query(request.membership, saved_query)
    if query is None or (request.method == "POST" and query.owner_id != request.user.pk):
        raise Http404
    error = ""
    if request.method == "POST":
        try:
            message = _apply_form(request, query)
        except ChangeRefused as refusal:
            error = str(refusal)
        else:
            messages.success(request, message)
            return redirect("saved_queries")
    form = (
        request.POST
        if error
        else {"name": query.name, "q": query.text, "shared": "1" if query.shared else ""}
    )
    context = {
        "saved": query,
        "is_own": query.owner_id == request.user.pk,
        "name": form.get("name", ""),
        "text": form.get("q", ""),
        "shared": form.get("shared") == "1",
        "error": error,
        **(alerts_views.alert_context(query) if query.owner_id == request.user.pk else {}),
    }
    return render(request, "pages/search/saved_query.html", context, status=422 if error else 200)


def _apply_form(request: MemberRequest, query: SavedQuery) -> str:
    """Apply the submitted form and return the message to show. Raises ChangeRefused."""
    form = request.POST
    if form.get("do") == "delete":
        retry.run_with_retry(lambda: search_saved_queries.delete_saved_query(query, request.user))
        return f"Deleted “{query.name}”."
    is_changed = retry.run_with_retry(
        lambda: search_saved_queries.change_saved_query(
            query,
            request.user,
            form.get("name", ""),
            form.get("q", ""),
            shared=form.get("shared") == "1",
            version=parse_number(form.get("version", ""), 9) or 0,
        )
    )
    return "Saved." if is_changed else "Nothing changed."
