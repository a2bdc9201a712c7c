"""What people saw and did about a request or a session: a page, and its section as a fragment."""

from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, member_required
from approvals.models import Gate
from display.handles import parse_position
from display.time_limit import limit_view
from pages.people import people_acts
from sessions.models import Session


@require_safe
@member_required
@vary_on_headers("HX-Request")
@limit_view
def gate_people_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show who was asked about a request, who saw it, and who did what."""
    rows = Gate.objects.filter(project=request.membership.project, id=gate)
    row = rows.select_related("effect").first()
    if row is None:
        raise Http404
    acts = people_acts.load_gate_acts(row)
    return _render_acts(request, {"subject": row, "subject_page": "gate", "people_acts": acts})


@require_safe
@member_required
@vary_on_headers("HX-Request")
@limit_view
def session_people_page(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show who saw a session or what is in it, who did what, and what was found."""
    row = Session.objects.filter(project=request.membership.project, id=session).first()
    if row is None:
        raise Http404
    before = parse_position(request.GET.get("before", ""))
    acts = people_acts.load_session_acts(row, before)
    context = {"subject": row, "subject_page": "session", "people_acts": acts, "before": before}
    return _render_acts(request, context)


def _render_acts(request: MemberRequest, context: dict[str, Any]) -> HttpResponse:
    is_fragment = request.headers.get("HX-Request") == "true"
    return render(
        request,
        "pages/people/_what_people_saw_and_did.html" if is_fragment else "pages/people/acts.html",
        context,
    )
