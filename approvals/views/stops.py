"""Stop pages: set a stop, lift it, list stops.

Waiting agents are woken (ledger/stops.py).
"""

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from accounts.access import MemberRequest, has_role, member_required, role_required
from approvals import stop_rows
from approvals.models import Gate
from db import retry
from db.errors import ChangeRefused
from ledger import stops as ledger_stops
from ledger.states import STOP_SCOPES


@require_safe
@member_required
def stops_page(request: MemberRequest) -> HttpResponse:
    """List the stops in force, the latest first."""
    standing = stop_rows.load_live_stops(request.membership.project)
    context = {
        "stops": stop_rows.describe_stops(standing),
        "may_rule": has_role(request.membership, "reviewer"),
        "project_is_stopped": any(stop.scope == "project" for stop in standing),
    }
    return render(request, "approvals/stops/stops.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def stop_page(request: MemberRequest) -> HttpResponse:
    """Ask for a reason, then stop what `scope` and `subject` name."""
    project = request.membership.project
    params = request.POST if request.method == "POST" else request.GET
    scope, subject = params.get("scope", ""), params.get("subject", "")
    name, url = (
        stop_rows.describe_stop_scope(project.id, scope, subject)
        if scope in STOP_SCOPES
        else ("", "")
    )
    if not name or "\0" in subject:
        raise Http404
    gate = _load_gate_or_none(request, params.get("gate", ""))
    if gate is not None:
        url = reverse("gate", args=[gate.id])  # return to the page the stop was requested from
    error = ""
    if request.method == "POST":
        try:
            retry.run_with_retry(
                lambda: ledger_stops.set_stop(
                    project, scope, subject, request.POST.get("reason", ""), request.user
                )
            )
        except ChangeRefused as refusal:
            error = str(refusal)
        else:
            messages.success(
                request, "Stopped. New dispatches are blocked until the stop is lifted."
            )
            return redirect(url or "stops")
    context = {
        "scope": scope,
        "subject": subject,
        "name": name,
        "url": url,
        "gate": gate,
        "error": error,
    }
    context["reason"] = request.POST.get("reason", "")
    return render(request, "approvals/stops/stop.html", context, status=422 if error else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def lift_stop_page(request: MemberRequest, stop: UUID) -> HttpResponse:
    """Ask for a reason, then lift a stop."""
    stop_row = get_object_or_404(request.membership.project.stops.select_related("set_by"), pk=stop)
    error = ""
    if request.method == "POST":
        try:
            lifted = retry.run_with_retry(
                lambda: ledger_stops.lift_stop(
                    stop_row, request.POST.get("reason", ""), request.user
                )
            )
        except ChangeRefused as refusal:
            error = str(refusal)
        else:
            text = "Lifted. Agents can dispatch again." if lifted else "Already lifted."
            messages.success(request, text)
            return redirect("stops")
    context = {
        "stop": stop_rows.describe_stops([stop_row])[0],
        "error": error,
        "reason": request.POST.get("reason", ""),
    }
    return render(request, "approvals/stops/lift.html", context, status=422 if error else 200)


def _load_gate_or_none(request: MemberRequest, text: str) -> Gate | None:
    """Load the gate whose page requested the stop; None if of another project."""
    try:
        return Gate.objects.filter(project=request.membership.project, id=UUID(text)).first()
    except ValueError:
        return None
