"""The tools page and the verdict table page."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, has_role, member_required
from db.clock import now_us
from ledger import circuit_breakers
from ledger.tools import registry
from ledger.tools.raises import compile_raises
from ledger.verdicts import labels, table


@require_safe
@member_required
def tools_page(request: MemberRequest) -> HttpResponse:
    """List the declared tools by name, then the undeclared ones that were used."""
    project = request.membership.project
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
        "tools": declared,
        "undeclared": registry.list_undeclared_tools(project),
        "may_rule": has_role(request.membership, "reviewer"),
    }
    return render(request, "ledger/tools.html", context)


@require_safe
@member_required
def verdicts_page(request: MemberRequest) -> HttpResponse:
    """Show the verdict table row by row."""
    return render(
        request,
        "ledger/verdicts.html",
        {"rows": labels.VERDICT_ROWS, "version": table.TABLE_VERSION},
    )
