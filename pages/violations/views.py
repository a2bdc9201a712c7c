"""Acknowledge effects that ran without permission, for reviewers."""

from typing import Final

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from accounts.access import MemberRequest, role_required
from db import retry
from db.errors import ChangeRefused
from ledger import violations
from ledger.models import Effect
from pages.violations import data

MAX_ACKNOWLEDGED: Final = 50  # effects of one form


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def acknowledge_violations_page(request: MemberRequest) -> HttpResponse:
    """List the newest effects that ran without permission; POST acknowledges the ticked ones."""
    project = request.membership.project
    rows = violations.query_unacknowledged(project.id).select_related("agent", "session")
    listed = list(rows.order_by("-opened_position")[: MAX_ACKNOWLEDGED + 1])
    shown = listed[:MAX_ACKNOWLEDGED]
    error, chosen = "", {str(effect.id) for effect in shown}
    if request.method == "POST":
        chosen = set(request.POST.getlist("effect"))
        ticked = [effect for effect in shown if str(effect.id) in chosen]
        reason = request.POST.get("reason", "")
        try:
            if not ticked:
                raise ChangeRefused(
                    "No effect is ticked, or the ticked effects were already acknowledged."
                    " Tick the effects again."
                )
            count = retry.run_with_retry(lambda: _acknowledge(ticked, reason, request))
        except ChangeRefused as refusal:
            error = str(refusal)
        else:
            messages.success(request, f"Acknowledged: {count}. Searches still find them.")
            return redirect("home")
    labels = violations.load_violations(project.id, [effect.id for effect in shown])
    context = {
        "rows": [(effect, labels.get(effect.id, []), str(effect.id) in chosen) for effect in shown],
        "is_more": len(listed) > MAX_ACKNOWLEDGED,
        "error": error,
        "reason": request.POST.get("reason", ""),
        "least": violations.MIN_REASON,
        "most": violations.MAX_REASON,
        "acknowledged": data.load_newest_acknowledgements(project.id),
    }
    return render(
        request, "pages/violations/acknowledge.html", context, status=422 if error else 200
    )


@transaction.atomic(savepoint=False)
def _acknowledge(effects: list[Effect], reason: str, request: MemberRequest) -> int:
    return violations.acknowledge_violations(effects, reason, request.user)
