"""Page of one request, its comments and its assignee. A GET records access.viewed only."""

from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.db.models import Exists, OuterRef, Subquery
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, has_role, member_required, role_required
from accounts.header_counts import load_project_status
from approvals import confirmation, labels, stop_rows
from approvals.checks import run_checks
from approvals.checks.checked_request import build_checked_request
from approvals.checks.claims.environment_claims import find_production_value
from approvals.diff import destructive_pushes
from approvals.diff.commit_paths import compare_commit_paths
from approvals.diff.unified import FileDiff
from approvals.gates import comments, gates
from approvals.gates.statuses import MIN_REASON_CHARS, OPEN_STATUSES, US, VOTE_ANSWERS
from approvals.inbox import inbox_queries, updates
from approvals.models import Gate, Vote
from approvals.policies import policy_evaluation
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
from approvals.review.form_token import VOTE_FORM
from approvals.views import drafts
from approvals.voting import warned_proof
from approvals.voting.eligibility import check_eligibility, load_current_requirement
from approvals.voting.votes import describe_missing_reason, is_reason_required
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from db.errors import ChangeRefused
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
def gate_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show one request, and after the decision who decided and what happened.

    A page that shows the request polls `since` its mark: 204 while nothing changed, otherwise the
    current request.
    """
    gate_row = load_gate_of_request(request, gate)
    if "asof" in request.GET:  # a page of a higher layer
        asof = urlencode({"asof": request.GET["asof"]})
        return redirect(f"{reverse('gate_history', args=[gate_row.id])}?{asof}")
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
        gate_row.status = gates.current_gate_status(gate_row, now_us())
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
    plan = policy_evaluation.parse_plan_body(gate.plan_text)  # type: ignore[attr-defined]
    shown = card.build_card(gate, plan)
    votes = review_context.load_votes(gate, shown.sha256)
    requirement = load_current_requirement(gate, plan=plan)
    eligibility = check_eligibility(gate, request.membership, requirement)
    own_vote = next((cast for cast in votes if cast.vote.user_id == request.user.pk), None)
    draft = drafts.load_initial_values(request, gate, shown)
    origin = drafts.find_origin(request, in_pane=in_pane)
    list_filters = drafts.read_list_filters(request) if origin else ""
    now = now_us()
    approvals = sum(cast.vote.answer == "approve" and not cast.uncounted for cast in votes)
    may_rule = has_role(request.membership, "reviewer")
    undecided = gate.status == "pending" and own_vote is None
    next_gate, next_url = (
        (None, "") if in_pane or undecided else _find_next_gate(request, gate, origin, list_filters)
    )
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
        "list_filters": list_filters,
        "next_gate": next_gate,
        "next_url": next_url,
        "longest": _longest_argument(shown),
        "has_full_changes": bool(shown.changes.files or shown.changes.commits or shown.attached),
        "path_difference": compare_commit_paths(
            plan.get("arguments"), plan.get("preconditions"), _list_shown_files(shown)
        ),
        "status": labels.STATUS_LABELS[gate.status],
        "answer_time": _describe_answer_time(gate),
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
        "refusal_word": labels.REFUSAL_LABELS.get(gate.status, ""),
        "refusals": sum(cast.vote.answer != "approve" for cast in votes),
        "missing_approvals": max(0, gate.minimum - approvals),
        "eligible_voters": labels.describe_approvers(requirement),
        "own_vote": own_vote,
        "eligibility": eligibility,
        "may_rule": may_rule,
        "may_deny": may_deny,
        "can_vote": undecided and may_deny and may_rule,
        "step_up": proof.step_up,
        "names_to_type": proof.names,
        "password_at_us": confirmation.find_counting_password_us(request),
        "successor": changed_requests.find_successor(gate)
        if gate.status not in OPEN_STATUSES
        else None,
        "reason_prompts": {
            answer: describe_missing_reason(answer)
            for answer in VOTE_ANSWERS
            if is_reason_required(requirement, answer)
        },
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


def _describe_answer_time(gate: Gate) -> str:
    """Return how long a request that is over waited; empty for an open one."""
    until_us = gate.decided_at_us or gate.ended_at_us
    if gate.status == "pending" or until_us is None:
        return ""
    took_us, is_decided = until_us - gate.requested_at_us, gate.decided_at_us is not None
    return labels.describe_answer_time(gate.status, took_us, is_decided=is_decided)


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


def _find_next_gate(
    request: MemberRequest, gate: Gate, origin: str, filters: str
) -> tuple[Gate | None, str]:
    """Return the next request of the list for this person, and the URL of its page."""
    following = inbox_queries.find_next_gate(
        request.membership, gate, drafts.parse_filters(filters)
    )
    if following is None:
        return None, ""
    shown_page = drafts.parse_filters(filters)._replace(after=following.after)
    url = drafts.build_form_url(following.gate, origin, drafts.format_filters(shown_page))
    return Gate.objects.filter(id=following.gate).first(), url


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


@require_POST
@role_required("reviewer")
def comment_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Record a comment; the page then shows it, scrolled to it."""
    gate_row = load_gate_of_request(request, gate)
    text = request.POST.get("comment", "").replace("\0", "")
    try:
        written = comments.write_comment(gate_row, request.membership, text)
    except ChangeRefused as refusal:
        messages.error(request, f"Your comment was not recorded. {refusal}")
        return _redirect_back(request, gate_row.id)
    messages.success(request, "Comment recorded. The agent reads it with the request.")
    if written.strangers:
        names = ", ".join(f"@{name}" for name in written.strangers)
        messages.warning(request, f"No member of this project is called {names}.")
    return _redirect_back(request, gate_row.id, f"#comment-{written.position}")


@require_POST
@role_required("reviewer")
def assign_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Assign the request to the named member, or remove its assignee."""
    gate_row = load_gate_of_request(request, gate)
    name = request.POST.get("to", "").replace("\0", "")[:150]
    try:
        member = comments.assign_gate(gate_row, request.membership, name)
    except ChangeRefused as refusal:
        messages.error(request, f"The request was not assigned. {refusal}")
    else:
        text = f"assigned to {member.user.get_username()}" if member is not None else "unassigned"
        messages.success(request, f"{gate_row} is {text}.")
    return _redirect_back(request, gate_row.id)


def _redirect_back(request: MemberRequest, gate: UUID, fragment: str = "") -> HttpResponse:
    origin, filters = request.POST.get("from", ""), drafts.read_list_filters(request)
    return redirect(drafts.build_form_url(gate, origin, filters) + fragment)


@require_POST
@role_required("reviewer")
def discard_draft_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Forget the reason and the ticks kept in the sign-in, and return to the form."""
    gate_row = load_gate_of_request(request, gate)
    VOTE_FORM.discard_draft(request, gate_row.id)
    origin, filters = request.POST.get("from", ""), request.POST.get("list", "")
    return redirect(drafts.build_form_url(gate_row.id, origin, filters))
