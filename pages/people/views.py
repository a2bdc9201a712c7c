"""What people saw and did: about a request, in a session, and all answers of one reviewer."""

from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, has_role, member_required
from approvals.models import Gate
from db.clock import now_us
from db.whole_days import RANGES, build_period, parse_days
from display.handles import parse_position
from display.page_params import parse_number
from display.time_limit import limit_view
from investigation.query.edit import quote_if_needed
from pages.people import people_acts, reviewer_answers
from pages.people.reviewer_answers import PAGE, measure_speed, split_sittings
from sessions.models import Session


@require_safe
@member_required
@limit_view
def reviewer_page(request: MemberRequest, person: int) -> HttpResponse:
    """Show a member's answers with their speed; operators and the person may read it."""
    project = request.membership.project
    member = get_object_or_404(User, pk=person, memberships__project=project)
    if member.pk != request.user.pk and not has_role(request.membership, "operator"):
        raise Http404
    period = build_period(now_us(), parse_days(request.GET.get("days", "")))
    answers = reviewer_answers.load_answers(project.id, member, period)
    sittings = split_sittings(answers)
    chosen = parse_number(request.GET.get("sitting", ""), 5) or 1
    sitting = next((each for each in sittings if each.number == chosen), None)
    inside = {vote.pk for vote in sitting.answers} if sitting is not None else set()
    context = {
        "member": member,
        "period": period,
        "ranges": RANGES,
        "query": f"gate reviewer:{quote_if_needed(member.username)}",
        "answers": answers[:PAGE],
        "count": len(answers),
        "is_cut": len(answers) >= reviewer_answers.MAX_ANSWERS,
        "sittings": sittings[:20],
        "sitting": sitting,
        "speeds": [
            ("In this period of work", sitting.speed if sitting is not None else None),
            ("All others", measure_speed([vote for vote in answers if vote.pk not in inside])),
        ],
        "expiries": reviewer_answers.load_expiries(project.id, sittings, period),
    }
    return render(request, "pages/people/reviewer.html", context)


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
        "pages/people/_what_people_saw_and_did.html" if is_fragment else "pages/people/people.html",
        context,
    )
