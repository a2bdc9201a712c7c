"""The inbox. A GET records access.viewed and writes nothing else."""

from typing import Any, Final
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, has_role, member_required
from accounts.header_counts import load_project_status
from accounts.models import Project, Repository
from approvals import exemptions, stop_rows
from approvals.gates.statuses import RISKS
from approvals.inbox import inbox_queries, kept_selection
from approvals.models import Gate
from approvals.views import drafts
from approvals.views.gate import gate_context, load_gate_of_request
from approvals.waiting_times import WaitDistribution, load_waiting_times
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from db.whole_days import build_period


@require_safe
@member_required
@vary_on_headers("HX-Request")
def inbox_page(request: MemberRequest) -> HttpResponse:
    """Show a list of requests and the opened one; for a poll the news or 204."""
    project = request.membership.project
    filters = drafts.read_filters(request.GET)
    state = filters.state if filters.state in inbox_queries.LISTS else "pending"
    first_page = filters._replace(after="")
    if request.headers.get("HX-Request") == "true" and "since" in request.GET:
        arrived = inbox_queries.find_new_requests(project, request.GET["since"])
        if arrived is None:
            return HttpResponse(status=204)
        context = {
            "arrived": arrived[0],
            "waiting": arrived[1],
            "since": request.GET["since"],
            "list_query": drafts.format_filters(first_page),
        }
        return render(request, "approvals/inbox/_new_requests.html", context)
    # Read before the rows: a request that arrives in between is announced, never missed.
    waiting = inbox_queries.parse_pending_mark(load_project_status(request).waits)
    listed = inbox_queries.load_inbox_page(request.membership, filters._replace(state=state))
    rows = listed.rows
    if state in ("pending", "mine"):
        rows = inbox_queries.arrange_rows(rows)
    opened = _opened_gate(request)
    observes = load_project_status(request).mode != "enforce"
    context = {
        "state": state,
        "is_open_chosen": "open" in request.GET,  # the script then opens no request by itself
        "risk": filters.risk,
        "risks": RISKS,
        "repo": filters.repo,
        "tool": filters.tool,
        "rule": filters.rule,
        "waits": load_decision_waits(project, filters.tool, filters.rule)
        if state == "decided"
        else None,
        "repositories": _REPOSITORIES.rows(project=project.id),
        "rows": rows,
        "can_batch": any(entry.groups for row in rows for entry in (row, *row.like)),
        "kept_ticks": kept_selection.mark_ticked_rows(request, rows),
        "further": listed.further,
        "after": filters.after,
        "waiting": waiting,
        "since": str(waiting),
        "polls": state in ("pending", "mine") and request.GET.get("live") != "off",
        "list_query": drafts.format_filters(first_page._replace(state=state)),
        "undecided": inbox_queries.count_undecided_of_week(project, state)
        if state in inbox_queries.UNDECIDED_LISTS
        else None,
        "exempting": exemptions.count_live_exemptions(project.id, now_us()),
        "violations": inbox_queries.load_recent_violations(project)
        if state == "pending" and inbox_queries.has_recent_violations(project)
        else [],
        "not_enforced": inbox_queries.count_not_enforced(project)
        if state == "pending" and observes
        else 0,
        "stopped": stop_rows.load_live_stops(project)
        if load_project_status(request).has_stops
        else [],
        "last_decision": inbox_queries.load_last_decision_us(project) if not rows else None,
        "may_rule": has_role(request.membership, "reviewer"),
        "batch_most": inbox_queries.MAX_BATCH,
        "now": now_us(),
        **(gate_context(request, opened, in_pane=True) if opened is not None else {}),
    }
    return render(request, "approvals/inbox/inbox.html", context)


def load_decision_waits(project: Project, tool: str = "", rule: str = "") -> WaitDistribution:
    """Load how long the requests of the usual period waited, of one tool or rule if given."""
    period = build_period(now_us())
    condition = "gate"
    condition += f" tool:{_quote_value(tool)}" if tool else ""
    condition += f" rule:{_quote_value(rule)}" if rule else ""
    return load_waiting_times(
        project.id, period.since_us, f"{condition} {period.text}", tool=tool, rule=rule
    )


def _quote_value(value: str) -> str:
    """Return a value in the quotes of a search."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _select_repositories(project: UUID) -> Any:
    listed = Repository.objects.filter(project=project)
    return listed.order_by("name").values_list("name", flat=True)[:50]


_REPOSITORIES: Final = CompiledQuerySet(_select_repositories, project=UUID)


def _opened_gate(request: MemberRequest) -> Gate | None:
    """Return the request named by `open`. Without one, the script opens the first."""
    try:
        return load_gate_of_request(request, UUID(request.GET.get("open", "")))
    except (ValueError, Http404):
        return None
