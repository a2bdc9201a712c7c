"""Poll of pages with a form about several requests: which of them have ended."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, role_required
from accounts.models import Project
from approvals.gates.gates import current_gate_status
from approvals.inbox import updates
from approvals.inbox.inbox_queries import MAX_BATCH
from approvals.models import Gate
from approvals.review import changed_requests
from approvals.review.changed_requests import Successor
from db.clock import now_us


class EndedRequest(NamedTuple):
    """A request that takes no votes: why as a sentence, and the request that replaces it."""

    gate: Gate
    sentence: str
    successor: Successor | None


@require_safe
@role_required("reviewer")
def ended_requests_page(request: MemberRequest) -> HttpResponse:
    """Answer a poll that names requests by `gate`: 204 while all are pending."""
    ids = []
    for text in request.GET.getlist("gate")[:MAX_BATCH]:
        try:
            ids.append(UUID(text))
        except ValueError:
            continue
    ended = list_ended_requests(request.membership.project, ids)
    if not ended:
        return HttpResponse(status=204)
    return render(request, "approvals/batch/_ended_requests.html", {"ended": ended})


def list_ended_requests(project: Project, ids: Sequence[UUID]) -> list[EndedRequest]:
    """Return those of the requests that are not pending, in their order.

    One query, and at most four for each that ended.
    """
    gates = list(
        Gate.objects.select_related("effect")
        .filter(project=project, id__in=ids)
        .order_by("opened_position")[:MAX_BATCH]
    )
    now = now_us()
    for gate in gates:
        gate.status = current_gate_status(gate, now)
    return [
        EndedRequest(gate, updates.describe_end(gate), changed_requests.find_successor(gate))
        for gate in gates
        if gate.status != "pending"
    ]
