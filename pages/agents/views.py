"""The page of an agent."""

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, has_role, member_required
from approvals import stop_rows
from db.clock import now_us
from db.whole_days import RANGES, build_period, parse_days
from display.time_limit import limit_view
from pages.agents import agent_page

MAX_TOKENS = 10


@require_safe
@member_required
@limit_view
def agent_overview(request: MemberRequest, agent: UUID) -> HttpResponse:
    """Show what an agent does: activity, permission, tools, live sessions, charter."""
    stored = get_object_or_404(request.membership.project.agents.select_related("owner"), pk=agent)
    now = now_us()
    period = build_period(now, parse_days(request.GET.get("days", "")))
    is_administrator = has_role(request.membership, "administrator")
    tokens = stored.tokens.filter(revoked_at__isnull=True).order_by("-created_at")
    stops = [
        stop
        for stop in stop_rows.load_live_stops(request.membership.project)
        if (stop.scope, stop.subject) in (("agent", stored.id.hex), ("project", ""))
    ]
    context = {
        **agent_page.load_agent_page(stored, period),
        "agent": stored,
        "now": now,
        "ranges": RANGES,
        "stop": stops[0] if stops else None,
        "may_rule": has_role(request.membership, "reviewer"),
        "may_change": is_administrator,
        "tokens": list(tokens[:MAX_TOKENS]) if is_administrator else [],
        "token_count": tokens.count() if is_administrator else 0,
    }
    return render(request, "pages/agents/agent.html", context)
