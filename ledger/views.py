"""The tools page and the verdict table page."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from journal.clock import now_us
from ledger import breakers, tools, verdict_words, verdicts
from sessions.access import MemberRequest, may, member


@require_safe
@member
def tools_page(request: MemberRequest) -> HttpResponse:
    """List the declared tools by name, then the undeclared ones that were used."""
    project = request.membership.project
    declared = list(project.tools.order_by("name"))
    paused = (
        breakers.shown(project.id, now_us())
        if any(tool.breaker_failures for tool in declared)
        else {}
    )
    for tool in declared:
        tool.breaker = paused.get(tool.name)  # type: ignore[attr-defined]  # for the page alone
    context = {
        "tools": declared,
        "undeclared": tools.used_undeclared(project),
        "may_rule": may(request.membership, "reviewer"),
    }
    return render(request, "ledger/tools.html", context)


@require_safe
@member
def verdicts_page(request: MemberRequest) -> HttpResponse:
    """Show the verdict table row by row."""
    return render(
        request, "ledger/verdicts.html", {"rows": verdict_words.ROWS, "version": verdicts.VERSION}
    )
