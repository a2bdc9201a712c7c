"""Comment on a request, and assign it to a person."""

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts.access import MemberRequest, role_required
from approvals.gates import comments
from approvals.views import drafts
from approvals.views.inbox import load_gate_of_request
from db.errors import ChangeRefused


@require_POST
@role_required("reviewer")
def comment_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Record a comment; the page then shows it."""
    gate_row = load_gate_of_request(request, gate)
    text = request.POST.get("comment", "").replace("\0", "")
    try:
        strangers = comments.write_comment(gate_row, request.membership, text)
    except ChangeRefused as refusal:
        messages.error(request, f"Your comment was not recorded. {refusal}")
    else:
        messages.success(request, "Comment recorded. The agent reads it with the request.")
        if strangers:
            names = ", ".join(f"@{name}" for name in strangers)
            messages.warning(request, f"No member of this project is called {names}.")
    return _redirect_back(request, gate_row.id)


@require_POST
@role_required("reviewer")
def assign_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Assign the request to the named member, or remove its assignee."""
    gate_row = load_gate_of_request(request, gate)
    name = request.POST.get("to", "").replace("\0", "")[:150]
    try:
        member = comments.assign_gate(gate_row, request.membership, name)
    except ChangeRefused as refusal:
        messages.error(request, f"The request was not assigned. {refusal}")
    else:
        text = f"assigned to {member.user.get_username()}" if member is not None else "unassigned"
        messages.success(request, f"{gate_row} is {text}.")
    return _redirect_back(request, gate_row.id)


def _redirect_back(request: MemberRequest, gate: UUID) -> HttpResponse:
    origin = request.POST.get("from", "")
    return redirect(drafts.build_form_url(gate, origin, drafts.read_list_filters(request)))
