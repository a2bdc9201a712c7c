"""Inbox and gate page. A GET records access.viewed and writes nothing else."""

from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from approvals import (
    around,
    card,
    deadlines,
    flags,
    inbox,
    news,
    pushes,
    reading,
    rulings,
    seen,
    similar,
    stops,
    words,
)
from approvals.changes import Changes
from approvals.models import Gate
from approvals.states import LEAST_REASON, OPEN, RISKS, US
from approvals.views import drafts
from journal.clock import now_us
from ledger import breaches, resolutions, same_calls
from ledger.resolutions import Said
from sessions.access import MemberRequest, may, member
from sessions.models import ENDED
from sessions.standing import standing_of

DAY_US: Final = 86_400 * US  # newer requests need no date
JOINED: Final = (
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
@member
@vary_on_headers("HX-Request")
def inbox_page(request: MemberRequest) -> HttpResponse:
    """Show a list of requests and the opened one.

    A poll (`since`) gets the news, or 204 if nothing changed.
    """
    project = request.membership.project
    params = {
        name: request.GET.get(name, "").replace("\0", "")[:200]
        for name in ("state", "risk", "repo")
    }
    state = params["state"] if params["state"] in inbox.STATES else "pending"
    if request.headers.get("HX-Request") == "true" and "since" in request.GET:
        arrived = inbox.news(project, request.GET["since"])
        if arrived is None:
            return HttpResponse(status=204)
        context = {
            "arrived": arrived[0],
            "waiting": arrived[1],
            "since": request.GET["since"],
            "list_query": _list_query(params),
        }
        return render(request, "approvals/_news.html", context)
    risk = params["risk"] if params["risk"] in RISKS else ""
    # Read before the rows: a request that arrives in between is announced, never missed.
    waiting = inbox.as_waiting(standing_of(request).waits)
    listed = inbox.page(
        request.membership,
        state,
        risk=risk,
        repository=params["repo"],
        after=request.GET.get("after", ""),
    )
    rows = inbox.grouped(listed.rows) if state in ("pending", "mine") else listed.rows
    opened = _opened_gate(request)
    observes = standing_of(request).mode != "enforce"
    week = inbox.week(project)
    context = {
        "state": state,
        "still": "open" in request.GET,  # the script then opens no request by itself
        "risk": risk,
        "risks": RISKS,
        "repo": params["repo"],
        "repositories": project.repositories.order_by("name").values_list("name", flat=True)[:50],
        "rows": rows,
        "can_batch": any(entry.groups for row in rows for entry in (row, *row.like)),
        "further": listed.further,
        "after": request.GET.get("after", ""),
        "waiting": waiting,
        "since": str(waiting),
        "polls": state in ("pending", "mine") and request.GET.get("live") != "off",
        "list_query": _list_query(params | {"state": state}),
        "unanswered": week.unanswered,
        "violations": inbox.violations(project)
        if state == "pending" and week.has_violations
        else [],
        "not_enforced": inbox.would_have_been_held(project)
        if state == "pending" and observes
        else 0,
        "stopped": stops.in_force(project) if standing_of(request).has_stops else [],
        "last_decision": inbox.last_decision(project) if not rows else None,
        "may_rule": may(request.membership, "reviewer"),
        "batch_most": inbox.BATCH,
        "now": now_us(),
        **(facts_of(request, opened, in_pane=True) if opened is not None else {}),
    }
    return render(request, "approvals/inbox.html", context)


@require_safe
@member
@vary_on_headers("HX-Request")
def gate_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show one request, and after the decision who decided and what happened.

    A page that shows the request polls `since` its mark: 204 while nothing changed, otherwise the
    current request.
    """
    gate_row = gate_of(request, gate)
    if "asof" in request.GET:  # a page of a higher layer
        return redirect(
            f"{reverse('gate_asof', args=[gate_row.id])}?{urlencode({'asof': request.GET['asof']})}"
        )
    part = request.headers.get("HX-Request") == "true"
    if part and request.GET.get("since") == news.mark(gate_row):
        return HttpResponse(status=204)
    in_pane = part and request.GET.get("in") != "page"
    context = facts_of(request, gate_row, in_pane=in_pane)
    if part and "since" in request.GET:
        context["news"] = news.since(gate_row, request.GET["since"], context["missing_approvals"])
    return render(request, "approvals/_gate.html" if part else "approvals/gate.html", context)


def gate_of(request: MemberRequest, gate: UUID) -> Gate:
    """Load a gate of the current project with its status as of now. Raises Http404."""
    firsts = {"first_of_agent": flags.FIRST_OF_AGENT, "first_in_project": flags.FIRST_IN_PROJECT}
    named = same_calls.is_named(effect="effect_id", other="effect_id")
    joined = Gate.objects.select_related(*JOINED).annotate(named=named, **firsts)
    gate_row = joined.filter(project=request.membership.project, id=gate).first()
    if gate_row is None:
        raise Http404
    gate_row.status = deadlines.current_status(gate_row, now_us())
    return gate_row


def facts_of(
    request: MemberRequest, gate: Gate, *, in_pane: bool = False, **more: Any
) -> dict[str, Any]:
    """Return the context of a gate page, with the token of its form.

    Record access.viewed.
    """
    seen.note(gate, request.membership)
    plan = reading.plan_body(gate.plan_position)
    shown = card.of(gate, plan)
    votes = around.votes(gate, shown.sha256)
    eligibility = rulings.eligible(gate, request.membership)
    own_vote = next((cast for cast in votes if cast.vote.user_id == request.user.pk), None)
    requirement = rulings.asks(gate)
    draft = drafts.kept(request, gate, shown)
    now = now_us()
    approvals = sum(cast.vote.answer == "approve" and not cast.uncounted for cast in votes)
    may_rule = may(request.membership, "reviewer")
    undecided = gate.status == "pending" and own_vote is None
    outside = flags.outside({gate.id: (gate.policy_set_id, gate.requested_at_us)})
    may_deny = eligibility.refusal is None or eligibility.refusal[0] == "self_approval"
    return {
        "gate": gate,
        "effect": gate.effect,
        "card": shown,
        "draft_reason": draft.reason,
        "ticked": draft.ticked,
        "list_filters": drafts.list_of(request) if in_pane else "",
        "next_gate": None if in_pane or undecided else _next_gate(request, gate),
        "longest": _longest_argument(shown),
        "has_full_changes": _is_abridged(shown.changes),
        "status": words.STATUSES[gate.status],
        "why_ended": words.REASONS.get(gate.reason, ""),
        "earlier": around.earlier(gate, plan),
        "destructive": pushes.takes(gate.tool, plan.get("arguments"), plan.get("preconditions")),
        "similar": similar.similar(gate, plan),
        "outside": outside.get(gate.id),
        "chain": (chain := around.chain(gate)),
        "own_step": next((step for step in chain if step.effect.id == gate.effect_id), None),
        "afterwards": words.afterwards(gate.status, gate.effect.state, gate.effect.leave),
        "votes": votes,
        "approvals": approvals,
        "missing_approvals": max(0, gate.minimum - approvals),
        "eligible_voters": words.who(requirement),
        "own_vote": own_vote,
        "eligibility": eligibility,
        "may_rule": may_rule,
        "may_deny": may_deny,
        "can_vote": undecided and may_deny and may_rule,
        "step_up": requirement.step_up,
        "reason_needed": bool(requirement.reason_of_yes),
        "least_reason": max(LEAST_REASON, requirement.rationale_characters),
        "ticket": requirement.ticket,
        "code": card.code(shown.intent),
        "token": seen.sign(gate, request.membership, shown, len(votes)),
        "requested_lately": now - gate.requested_at_us < DAY_US,
        "left_s": max(0, (gate.decide_by_us - now) // US),
        "permission_left_s": max(0, ((gate.leave_until_us or now) - now) // US),
        "stop": stops.covering(gate),
        "effect_violations": breaches.of(gate.effect),
        "resolution": _resolution(gate),
        "same_calls": _same_calls(gate),
        "revoked_by": around.words_of(gate, "gate.ruled") if gate.status == "revoked" else ("", ""),
        "poll_url": _poll_url(gate, in_pane),
        "ended": ENDED,
        "in_pane": in_pane,
        "heading": 2 if in_pane else 1,
        "subheading": 3 if in_pane else 2,
        **more,
    }


def _poll_url(gate: Gate, in_pane: bool) -> str:
    """Return the URL that an open gate's page polls; empty for an ended gate."""
    if gate.status not in OPEN:
        return ""
    query = urlencode({"since": news.mark(gate), "in": "pane" if in_pane else "page"})
    return f"{reverse('gate', args=[gate.id])}?{query}"


def _resolution(gate: Gate) -> Said | None:
    """Return the "not happened" resolution that led to this retry, if any."""
    if gate.effect.resolution != "not_happened":
        return None
    return next(
        (
            resolution
            for resolution in resolutions.told(gate.effect)
            if resolution.position < gate.opened_position and resolution.answer == "not_happened"
        ),
        None,
    )


def _same_calls(gate: Gate) -> list[same_calls.Link]:
    """Return effects of other sessions that may already have done the same.

    At most one query.
    """
    if not gate.named:  # type: ignore[attr-defined]
        return []
    links = same_calls.of_effects([gate.effect_id]).get(gate.effect_id, [])
    return [link for link in links if link.earlier]


def _next_gate(request: MemberRequest, gate: Gate) -> Gate | None:
    """Return the next request for this person after an answered one, or the first."""
    gate_id = inbox.following(request.membership, gate) or inbox.first(request.membership)
    return Gate.objects.filter(id=gate_id).first() if gate_id is not None else None


def _longest_argument(shown: card.Card) -> dict[str, Any]:
    """Return the longest argument of a long card and its number."""
    if not shown.long or not shown.pieces:
        return {}
    number = max(range(len(shown.pieces)), key=lambda index: len(shown.pieces[index].text))
    return {"number": number, "name": shown.pieces[number].name}


def _is_abridged(changed: Changes) -> bool:
    """Return True if fact 2 shows only a part: a diff, or commits that are cut."""
    short = all(
        len(commit.name) <= 12 and len(commit.title) <= 60 and len(commit.author) <= 20
        for commit in changed.commits
    )
    return bool(changed.files) or len(changed.commits) > 6 or not short


def _opened_gate(request: MemberRequest) -> Gate | None:
    """Return the request named by `open`. Without one, the script opens the first."""
    try:
        return gate_of(request, UUID(request.GET.get("open", "")))
    except (ValueError, Http404):
        return None


def _list_query(params: dict[str, str]) -> str:
    return urlencode([(name, value) for name, value in params.items() if value])
