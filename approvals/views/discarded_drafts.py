"""Discard the kept draft of an answer to a request."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts.access import MemberRequest, role_required
from approvals.review.form_token import VOTE_FORM
from approvals.views import drafts
from approvals.views.inbox import load_gate_of_request


@require_POST
@role_required("reviewer")
def discard_draft_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Forget the reason and the ticks kept in the sign-in, and return to the form."""
    gate_row = load_gate_of_request(request, gate)
    VOTE_FORM.discard_draft(request, gate_row.id)
    origin, filters = request.POST.get("from", ""), request.POST.get("list", "")
    return redirect(drafts.build_form_url(gate_row.id, origin, filters))
