"""The tools page: what the operator declared, and what agents use beyond it."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ledger import tools
from sessions.access import MemberRequest, may, member


@require_safe
@member
def tools_page(request: MemberRequest) -> HttpResponse:
    """List the declared tools by name, then the undeclared ones that were used."""
    project = request.membership.project
    context = {
        "tools": list(project.tools.order_by("name")),
        "undeclared": tools.used_undeclared(project),
        "may_rule": may(request.membership, "reviewer"),
    }
    return render(request, "ledger/tools.html", context)
