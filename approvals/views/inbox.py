"""Inbox and gate page. A GET records access.viewed and writes nothing else."""

from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Exists, OuterRef, Subquery
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, has_role, member_required
from accounts.header_counts import load_project_status
from accounts.models import Project, Repository
from approvals import labels, stop_rows
from approvals.checks import run_checks
from approvals.checks.checked_request import build_checked_request
from approvals.checks.claims.environment_claims import find_production_value
from approvals.diff import destructive_pushes
from approvals.diff.commit_paths import compare_commit_paths
from approvals.diff.unified import FileDiff
from approvals.gates import deadlines
from approvals.gates.statuses import MIN_REASON_CHARS, OPEN_STATUSES, RISKS, US
from approvals.inbox import inbox_queries, kept_selection, updates
from approvals.models import Gate, Vote
from approvals.policies import policy_inputs
from approvals.review import (
    card,
    changed_requests,
    form_token,
    gate_people,
    shown_checks,
    similar,
    warnings,
)
from approvals.review import context as review_context
from approvals.review.call_titles import build_call_title
from approvals.views import drafts
from approvals.voting import warned_proof
from approvals.voting.eligibility import check_eligibility, load_current_requirement
from approvals.waiting_times import WaitDistribution, load_waiting_times
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from db.whole_days import build_period
from journal import sent_meta
from journal.models import Body
from ledger import resolutions, same_calls, violations
from ledger.resolutions import Resolution
from ledger.tools import cache
from ledger.tools.argument_values import list_field_values
from sessions.models import ENDED

DAY_US: Final = 86_400 * US  # newer requests need no date
GATE_RELATIONS: Final = (
    "effect",
    "effect__repository",
    "session",
    "agent",
    "policy_set",
    "requester",
    "session_owner",
    "agent_owner",
)


@require_safe
@member_required
@vary_on_headers("HX-Request")
def inbox_page(request: MemberRequest) -> HttpResponse:
    """Show a list of requests and the opened one; for a poll the news or 204."""
    project = request.membership.project
    params = {
        name: request.GET.get(name, "").replace("\0", "")[:200]
        for name in ("state", "risk", "repo", "tool", "rule")
    }
    if request.GET.get("queue") == "me":
        params["state"] = "mine"
    state = params["state"] if params["state"] in inbox_queries.LISTS else "pending"
    if request.headers.get("HX-Request") == "true" and "since" in request.GET:
        arrived = inbox_queries.find_new_requests(project, request.GET["since"])
        if arrived is None:
            return HttpResponse(status=204)
        context = {
            "arrived": arrived[0],
            "waiting": arrived[1],
            "since": request.GET["since"],
            "list_query": _list_query(params),
        }
        return render(request, "approvals/inbox/_new_requests.html", context)
    risk = params["risk"] if params["risk"] in RISKS else ""
    # Read before the rows: a request that arrives in between is announced, never missed.
    waiting = inbox_queries.parse_pending_mark(load_project_status(request).waits)
    listed = inbox_queries.load_inbox_page(
        request.membership,
        state,
        risk=risk,
        repository=params["repo"],
        tool=params["tool"],
        rule=params["rule"],
        after=request.GET.get("after", ""),
    )
    rows = listed.rows
    if state in ("pending", "mine"):
        rows = inbox_queries.put_dangers_first(inbox_queries.group_rows(rows))
    opened = _opened_gate(request)
    observes = load_project_status(request).mode != "enforce"
    week = inbox_queries.load_week_figures(project)
    context = {
        "state": state,
        "is_open_chosen": "open" in request.GET,  # the script then opens no request by itself
        "risk": risk,
        "risks": RISKS,
        "repo": params["repo"],
        "tool": params["tool"],
        "rule": params["rule"],
        "waits": load_decision_waits(project, params["tool"], params["rule"])
        if state == "decided"
        else None,
        "repositories": _REPOSITORIES.rows(project=project.id),
        "rows": rows,
        "can_batch": any(entry.groups for row in rows for entry in (row, *row.like)),
        "kept_ticks": kept_selection.mark_ticked_rows(request, rows),
        "further": listed.further,
        "after": request.GET.get("after", ""),
        "waiting": waiting,
        "since": str(waiting),
        "polls": state in ("pending", "mine") and request.GET.get("live") != "off",
        "list_query": _list_query(params | {"state": state}),
        "unanswered": week.unanswered,
        "violations": inbox_queries.load_recent_violations(project)
        if state == "pending" and week.has_violations
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
    """Load how long the requests of DEFAULT_DAYS days waited, of one tool or rule if given."""
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


@require_safe
@member_required
@vary_on_headers("HX-Request")
def gate_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show one request, and after the decision who decided and what happened.

    A page that shows the request polls `since` its mark: 204 while nothing changed, otherwise the
    current request.
    """
    gate_row = load_gate_of_request(request, gate)
    if "asof" in request.GET:  # a page of a higher layer
        return redirect(
            f"{reverse('gate_asof', args=[gate_row.id])}?{urlencode({'asof': request.GET['asof']})}"
        )
    part = request.headers.get("HX-Request") == "true"
    if part and request.GET.get("since") == updates.poll_mark(gate_row):
        return HttpResponse(status=204)
    in_pane = part and request.GET.get("in") != "page"
    context = gate_context(request, gate_row, in_pane=in_pane)
    if part and "since" in request.GET:
        context["news"] = updates.describe_change(
            gate_row, request.GET["since"], context["missing_approvals"]
        )
    return render(
        request, "approvals/gate/_card.html" if part else "approvals/gate/gate.html", context
    )


def load_gate_of_request(request: MemberRequest, gate: UUID) -> Gate:
    """Load a gate of the current project with its status as of now. Raises Http404."""
    gate_row: Gate
    for gate_row in _GATE.rows(project=request.membership.project_id, gate=gate):
        gate_row.status = deadlines.current_gate_status(gate_row, now_us())
        return gate_row
    raise Http404


def _select_gate(project: UUID, gate: UUID) -> Any:
    firsts = {
        "first_of_agent": warnings.FIRST_OF_AGENT,
        "first_in_project": warnings.FIRST_IN_PROJECT,
    }
    named = same_calls.has_same_call(effect="effect_id", other="effect_id")
    has_votes = Exists(Vote.objects.filter(gate=OuterRef("pk")))
    plan = Body.objects.filter(entry=OuterRef("plan_position")).values("text")
    joined = Gate.objects.select_related(*GATE_RELATIONS).annotate(
        named=named, has_votes=has_votes, plan_text=Subquery(plan), **firsts
    )
    return joined.filter(project=project, id=gate)


_GATE: Final = CompiledQuerySet(_select_gate, project=UUID, gate=UUID)


def gate_context(
    request: MemberRequest, gate: Gate, *, in_pane: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a gate page's context with its form token; records access.viewed.

    `gate` is from `load_gate_of_request`.
    """
    form_token.record_gate_view(gate, request.membership)
    plan = policy_inputs.parse_plan_body(gate.plan_text)  # type: ignore[attr-defined]
    shown = card.build_card(gate, plan)
    votes = review_context.load_votes(gate, shown.sha256)
    requirement = load_current_requirement(gate, plan=plan)
    eligibility = check_eligibility(gate, request.membership, requirement)
    own_vote = next((cast for cast in votes if cast.vote.user_id == request.user.pk), None)
    draft = drafts.load_initial_values(request, gate, shown)
    origin = drafts.find_origin(request, in_pane=in_pane)
    now = now_us()
    approvals = sum(cast.vote.answer == "approve" and not cast.uncounted for cast in votes)
    may_rule = has_role(request.membership, "reviewer")
    undecided = gate.status == "pending" and own_vote is None
    outside = warnings.find_outside_hours({gate.id: (gate.policy_set_id, gate.requested_at_us)})
    checked = build_checked_request(gate, gate.effect, plan)
    checks = run_checks.check_requests(gate.project_id, [checked]).get(gate.id, ())
    proof = warned_proof.decide_approval_proof(requirement, checks)
    destructive = destructive_pushes.describe_destructive_push(
        gate.tool, plan.get("arguments"), plan.get("preconditions"), gate.effect.ref
    )
    may_deny = eligibility.refusal is None or eligibility.refusal[0] == "self_approval"
    return {
        "gate": gate,
        "effect": gate.effect,
        "card": shown,
        "meta": sent_meta.format_meta(sent_meta.load_effect_meta(gate.effect_id)),
        "declared_values": list_field_values(
            cache.load_tool(gate.project_id, gate.tool).fields, plan.get("arguments")
        ),
        "title": build_call_title(
            gate.tool,
            plan.get("arguments"),
            ref=gate.effect.ref,
            repository=gate.repository_name,
            resource=gate.effect.resource,
            forced="forced push" in destructive,
        ),
        "checks": checks,
        "production_value": find_production_value(plan.get("arguments")),
        "review": shown_checks.arrange_checks(shown, checks),
        "warning_count": sum(result.is_warning for result in checks),
        "draft_reason": draft.reason,
        "draft_at": draft.stored_at,
        "ticked": draft.ticked,
        "origin": origin,
        "list_filters": drafts.read_list_filters(request) if origin else "",
        "next_gate": None if in_pane or undecided else _next_gate(request, gate),
        "longest": _longest_argument(shown),
        "has_full_changes": bool(shown.changes.files or shown.changes.commits or shown.attached),
        "path_difference": compare_commit_paths(
            plan.get("arguments"), plan.get("preconditions"), _list_shown_files(shown)
        ),
        "status": labels.STATUS_LABELS[gate.status],
        "why_ended": labels.END_REASON_LABELS.get(gate.reason, ""),
        "earlier": review_context.load_earlier_version(gate, plan),
        "destructive": destructive,
        "similar": similar.load_similar_decisions(gate, plan),
        "outside": outside.get(gate.id),
        "chain": (chain := review_context.load_neighbouring_steps(gate)),
        "own_step": next((step for step in chain if step.effect.id == gate.effect_id), None),
        "afterwards": labels.describe_aftermath(
            gate.status, gate.effect.state, gate.effect.permission
        ),
        "votes": votes,
        "people": gate_people.load_gate_people(gate, request.membership, may_rule=may_rule),
        "approvals": approvals,
        "missing_approvals": max(0, gate.minimum - approvals),
        "eligible_voters": labels.describe_approvers(requirement),
        "own_vote": own_vote,
        "eligibility": eligibility,
        "may_rule": may_rule,
        "may_deny": may_deny,
        "can_vote": undecided and may_deny and may_rule,
        "step_up": proof.step_up,
        "names_to_type": proof.names,
        "successor": changed_requests.find_successor(gate)
        if gate.status not in OPEN_STATUSES
        else None,
        "reason_needed": bool(requirement.reason_of_yes),
        "least_reason": max(MIN_REASON_CHARS, requirement.rationale_characters),
        "ticket": requirement.ticket,
        "code": card.confirmation_code(shown.intent),
        "token": form_token.sign_gate_snapshot(
            gate, request.membership, shown, len(votes), warned_proof.list_warnings(checks)
        ),
        "requested_lately": now - gate.requested_at_us < DAY_US,
        "left_s": max(0, (gate.decide_by_us - now) // US),
        "permission_left_s": max(0, ((gate.permission_until_us or now) - now) // US),
        "stop": stop_rows.find_blocking_stop(gate)
        if load_project_status(request).has_stops
        else None,
        "effect_violations": violations.load_effect_violations(gate.effect),
        "resolution": _resolution(gate),
        "same_calls": _same_calls(gate),
        "revoked_by": review_context.load_actor_and_reason(gate, "gate.ruled")
        if gate.status == "revoked"
        else ("", ""),
        "poll_url": _poll_url(gate, in_pane),
        "ended": ENDED,
        "in_pane": in_pane,
        "heading": 2 if in_pane else 1,
        "subheading": 3 if in_pane else 2,
        **more,
    }


def _poll_url(gate: Gate, in_pane: bool) -> str:
    """Return the URL that an open gate's page polls; empty for an ended gate."""
    if gate.status not in OPEN_STATUSES:
        return ""
    query = urlencode({"since": updates.poll_mark(gate), "in": "pane" if in_pane else "page"})
    return f"{reverse('gate', args=[gate.id])}?{query}"


def _resolution(gate: Gate) -> Resolution | None:
    """Return the "not happened" resolution that led to this retry, if any."""
    if gate.effect.resolution != "not_happened":
        return None
    return next(
        (
            resolution
            for resolution in resolutions.load_resolutions(gate.effect)
            if resolution.position < gate.opened_position and resolution.answer == "not_happened"
        ),
        None,
    )


def _same_calls(gate: Gate) -> list[same_calls.SameCallLink]:
    """Return other sessions' effects that may be the same. At most one query."""
    if not gate.named:  # type: ignore[attr-defined]
        return []
    links = same_calls.load_links_of_effects([gate.effect_id]).get(gate.effect_id, [])
    return [link for link in links if link.earlier]


def _next_gate(request: MemberRequest, gate: Gate) -> Gate | None:
    """Return the next request for this person after an answered one, or the first."""
    gate_id = inbox_queries.find_next_gate(
        request.membership, gate
    ) or inbox_queries.find_first_gate(request.membership)
    return Gate.objects.filter(id=gate_id).first() if gate_id is not None else None


def _longest_argument(shown: card.Card) -> dict[str, Any]:
    """Return the longest argument of a long card and its number."""
    if not shown.long or not shown.pieces:
        return {}
    number = max(range(len(shown.pieces)), key=lambda index: len(shown.pieces[index].text))
    return {"number": number, "name": shown.pieces[number].name}


def _list_shown_files(shown: card.Card) -> list[FileDiff]:
    """Return the files of the arguments, else those of the recorded diffs."""
    return list(shown.changes.files) or [
        file for attached in shown.attached for file in attached.changes.files
    ]


def _opened_gate(request: MemberRequest) -> Gate | None:
    """Return the request named by `open`. Without one, the script opens the first."""
    try:
        return load_gate_of_request(request, UUID(request.GET.get("open", "")))
    except (ValueError, Http404):
        return None


def _list_query(params: dict[str, str]) -> str:
    return urlencode([(name, value) for name, value in params.items() if value])
