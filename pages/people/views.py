"""The page of a reviewer: for investigators and administrators, and for the person."""

from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, has_role, member_required
from db.clock import now_us
from db.whole_days import RANGES, build_period, parse_days
from display.page_params import parse_number
from display.time_limit import limit_view
from investigation.query.edit import quote_if_needed
from pages.people import reviewer_answers
from pages.people.reviewer_answers import PAGE, measure_speed, split_sittings


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
            ("In this sitting", sitting.speed if sitting is not None else None),
            ("All others", measure_speed([vote for vote in answers if vote.pk not in inside])),
        ],
        "expiries": reviewer_answers.load_expiries(project.id, sittings, period),
    }
    return render(request, "pages/people/reviewer.html", context)
