"""Acknowledge effects that ran without permission, for reviewers."""

from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib import messages
from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from accounts.access import MemberRequest, role_required
from accounts.models import Person
from db import retry
from db.errors import ChangeRefused
from journal.models import Entry
from ledger import violations
from ledger.models import Effect
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from ledger.violations import ACKNOWLEDGED_KIND

MAX_ACKNOWLEDGED: Final = 50  # effects of one form
SHOWN_ACKNOWLEDGEMENTS: Final = 20


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
                    "Nothing is ticked, or it was acknowledged already. Tick again."
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
        "acknowledged": load_newest_acknowledgements(project.id),
    }
    return render(
        request, "pages/violations/acknowledge.html", context, status=422 if error else 200
    )


@transaction.atomic(savepoint=False)
def _acknowledge(effects: list[Effect], reason: str, request: MemberRequest) -> int:
    return violations.acknowledge_violations(effects, reason, request.user)


def load_newest_acknowledgements(project: UUID) -> list[dict[str, Any]]:
    """Return the newest acknowledgements with effect, person and reason. One query."""
    person = Person.objects.filter(pseudonym=OuterRef("actor")).values("user__username")[:1]
    effect = Effect.objects.filter(id=OuterRef("effect")).values("opened_position")[:1]
    rows = Entry.objects.filter(IS_OF_A_RARE_KIND, project=project, kind=ACKNOWLEDGED_KIND)
    rows = rows.annotate(by=Subquery(person), number=Subquery(effect)).order_by("-position")
    listed = rows.values_list("effect", "number", "by", "actor", "received_us", "body__text")
    return [
        {
            "effect": effect_id,
            "handle": f"e_{number}",
            "by": by or actor,
            "at_us": at_us,
            "reason": str(orjson.loads(text).get("reason", "")) if text else "",
        }
        for effect_id, number, by, actor, at_us, text in listed[:SHOWN_ACKNOWLEDGEMENTS]
    ]
