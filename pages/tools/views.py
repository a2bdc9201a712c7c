"""The tools page."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, has_role, member_required
from db.clock import now_us
from db.whole_days import build_period
from display.time_limit import limit_view
from ledger import circuit_breakers
from ledger.tools import registry
from ledger.tools.raises import compile_raises
from pages.tools import tool_figures


@require_safe
@member_required
@limit_view
def tools_page(request: MemberRequest) -> HttpResponse:
    """Show how each tool fared; then declared tools by name, and undeclared ones in use."""
    project = request.membership.project
    period = build_period(now_us())
    figures = tool_figures.load_tool_figures(project, period)
    most = max((row.calls for row in figures), default=0)
    declared = list(project.tools.order_by("name"))
    paused = (
        circuit_breakers.load_breaker_states(project.id, now_us())
        if any(tool.breaker_failures for tool in declared)
        else {}
    )
    for tool in declared:
        tool.breaker = paused.get(tool.name)  # type: ignore[attr-defined]  # for the page alone
        tool.raised_conditions = compile_raises(tool.raises)  # type: ignore[attr-defined]  # as above
        tool.field_paths = list(tool.fields.items())  # type: ignore[attr-defined]  # as above
    context = {
        "figures": figures[: tool_figures.MAX_TOOLS],
        "period": period,
        "most": most,
        "reversibility": {tool.name: tool.reversibility for tool in declared},
        "tools": declared,
        "undeclared": registry.list_undeclared_tools(project),
        "may_rule": has_role(request.membership, "reviewer"),
    }
    return render(request, "pages/tools/tools.html", context)
