"""Pages of deliveries: the list, one delivery with its matches, and questioning a match."""

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from accounts.access import MemberRequest, has_role, member_required, role_required
from accounts.people import ensure_pseudonym
from db.errors import ChangeRefused
from display.handles import parse_position
from hooks.code_hosts import host_events, labels, shown_events
from hooks.models import EventMatch

_MAX_SOURCES_SHOWN = 100


@require_safe
@member_required
def code_hosts_page(request: MemberRequest) -> HttpResponse:
    """List what code hosts delivered, newest first, optionally of one status."""
    project, shown = request.membership.project, request.GET.get("show", "")
    shown = shown if shown in labels.FILTERS else ""
    before = parse_position(request.GET.get("before", ""))
    context = {
        "page": shown_events.list_deliveries(project, shown, before),
        "filters": labels.FILTERS,
        "shown": shown,
        "sources": project.code_host_sources.order_by("host", "name")[:_MAX_SOURCES_SHOWN],
        "may_change": has_role(request.membership, "administrator"),
    }
    return render(request, "hooks/code_hosts/code_hosts.html", context)


@require_safe
@member_required
def delivery_page(request: MemberRequest, delivery: UUID) -> HttpResponse:
    """Show one delivery: what it says, which effect is behind it, and by which rule."""
    return _render_delivery(request, delivery)


def _render_delivery(
    request: MemberRequest, delivery: UUID, error: str = "", status: int = 200
) -> HttpResponse:
    project = request.membership.project
    shown = shown_events.load_delivery(project, delivery)
    if shown is None:
        raise Http404
    context = {
        "shown": shown,
        "payload": shown_events.load_payload(project.pk, shown.delivery.position),
        "may_question": has_role(request.membership, "operator"),
        "most": host_events.MAX_REASON,
        "error": error,
        "sent_reason": request.POST.get("reason", "")[: host_events.MAX_REASON + 1],
        "sent_match": request.POST.get("match", ""),
    }
    return render(request, "hooks/code_hosts/delivery.html", context, status=status)


@require_POST
@role_required("operator")
def question_match(request: MemberRequest, delivery: UUID) -> HttpResponse:
    """Withdraw a match, or choose one of several effects, as the form says."""
    project = request.membership.project
    rows = EventMatch.objects.filter(project=project, event__delivery=delivery)
    try:
        match = rows.filter(id=UUID(request.POST.get("match", ""))).first()
    except ValueError:
        match = None
    if match is None:
        raise Http404
    actor = ensure_pseudonym(request.user)
    try:
        if request.POST.get("do") == "choose":
            host_events.choose_event_match(match.pk, project.pk, actor=actor)
            messages.success(request, "Recorded: this effect caused the event.")
        else:
            host_events.withdraw_event_match(
                match.pk, project.pk, actor=actor, reason=request.POST.get("reason", "")
            )
            messages.success(request, "Withdrawn. The event is compared with other effects.")
    except ChangeRefused as refusal:
        return _render_delivery(request, delivery, str(refusal), 422)
    return redirect("delivery", delivery)
