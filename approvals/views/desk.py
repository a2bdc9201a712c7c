"""The inbox and the page of a gate. Looking is recorded (access.viewed); nothing else is written by a GET."""

from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from approvals import around, card, deadlines, flags, inbox, news, pushes, reading, rulings, seen, similar, stops, words
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

DAY_US: Final = 86_400 * US  # what lies nearer is told by its clock alone
JOINED: Final = (
    *("effect", "effect__repository", "session", "agent", "policy_set"),
    *("requester", "session_owner", "agent_owner"),
)


@require_safe
@member
@vary_on_headers("HX-Request")
def inbox_page(request: MemberRequest) -> HttpResponse:
    """What waits, beside it the request that is open. A poll (`since`) is answered with news, or with 204."""
    project = request.membership.project
    asked = {name: request.GET.get(name, "").replace("\0", "")[:200] for name in ("state", "risk", "repo")}
    state = asked["state"] if asked["state"] in inbox.STATES else "pending"
    if request.headers.get("HX-Request") == "true" and "since" in request.GET:
        arrived = inbox.news(project, request.GET["since"])
        if arrived is None:
            return HttpResponse(status=204)
        context = {"arrived": arrived[0], "standing": arrived[1], "since": request.GET["since"], "kept": _kept(asked)}
        return render(request, "approvals/_news.html", context)
    risk = asked["risk"] if asked["risk"] in RISKS else ""
    # Before the rows: what comes between the two is then announced, never missed.
    standing = inbox.as_waiting(standing_of(request).waits)
    listed = inbox.page(
        request.membership, state, risk=risk, repository=asked["repo"], after=request.GET.get("after", "")
    )
    rows = inbox.grouped(listed.rows) if state in ("pending", "mine") else listed.rows
    opened = _opened(request)
    observes = standing_of(request).mode != "enforce"
    week = inbox.week(project)
    context = {
        "state": state,
        "still": "open" in request.GET,  # then the script opens nothing by itself
        "risk": risk,
        "risks": RISKS,
        "repo": asked["repo"],
        "repositories": project.repositories.order_by("name").values_list("name", flat=True)[:50],
        "rows": rows,
        "ticks": any(one.groups for row in rows for one in (row, *row.like)),
        "further": listed.further,
        "after": request.GET.get("after", ""),
        "standing": standing,
        "since": str(standing),
        "polls": state in ("pending", "mine") and request.GET.get("live") != "off",
        "kept": _kept(asked | {"state": state}),
        "unanswered": week.unanswered,
        "violations": inbox.violations(project) if state == "pending" and week.has_violations else [],
        "unheld": inbox.would_have_been_held(project) if state == "pending" and observes else 0,
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
    """One request with everything known of it; afterwards the same address tells who decided, and what came of it.

    A page that has it open asks `since` its mark: 204 while nothing changed, else the request as it is now.
    """
    found = gate_of(request, gate)
    if "asof" in request.GET:  # told by the reading pages, which stand above this room
        return redirect(f"{reverse('gate_asof', args=[found.id])}?{urlencode({'asof': request.GET['asof']})}")
    part = request.headers.get("HX-Request") == "true"
    if part and request.GET.get("since") == news.mark(found):
        return HttpResponse(status=204)
    in_pane = part and request.GET.get("in") != "page"
    context = facts_of(request, found, in_pane=in_pane)
    if part and "since" in request.GET:
        context["news"] = news.since(found, request.GET["since"], context["missing"])
    return render(request, "approvals/_gate.html" if part else "approvals/gate.html", context)


def gate_of(request: MemberRequest, gate: UUID) -> Gate:
    """The gate of the current project, its clocks read as of now. Raises Http404."""
    firsts = {"first_of_agent": flags.FIRST_OF_AGENT, "first_in_project": flags.FIRST_IN_PROJECT}
    named = same_calls.is_named(effect="effect_id", other="effect_id")
    joined = Gate.objects.select_related(*JOINED).annotate(named=named, **firsts)
    found = joined.filter(project=request.membership.project, id=gate).first()
    if found is None:
        raise Http404
    found.status = deadlines.current_status(found, now_us())
    return found


def facts_of(request: MemberRequest, gate: Gate, *, in_pane: bool = False, **more: Any) -> dict[str, Any]:
    """What the page of a gate shows, with the token for its form; the look is recorded."""
    seen.note(gate, request.membership)
    plan = reading.plan_body(gate.plan_position)
    shown = card.of(gate, plan)
    votes = around.votes(gate, shown.sha256)
    able = rulings.eligible(gate, request.membership)
    mine = next((one for one in votes if one.vote.user_id == request.user.pk), None)
    needed = rulings.asks(gate)
    kept = drafts.kept(request, gate, shown)
    now = now_us()
    yes = sum(one.vote.answer == "approve" and not one.uncounted for one in votes)
    may_rule = may(request.membership, "reviewer")
    may_say_no = able.refusal is None or able.refusal[0] == "self_approval"
    return {
        "gate": gate,
        "effect": gate.effect,
        "card": shown,
        "kept_reason": kept.reason,
        "ticked": kept.ticked,
        "list": drafts.list_of(request) if in_pane else "",
        "next": None if in_pane or (gate.status == "pending" and mine is None) else _next(request, gate),
        "longest": _longest(shown),
        "below": _says_more(shown.changes),
        "status": words.STATUSES[gate.status],
        "why_ended": words.REASONS.get(gate.reason, ""),
        "earlier": around.earlier(gate, plan),
        "takes": pushes.takes(gate.tool, plan.get("arguments"), plan.get("preconditions")),
        "similar": similar.similar(gate, plan),
        "outside": flags.outside({gate.id: (gate.policy_set_id, gate.requested_at_us)}).get(gate.id),
        "chain": (chain := around.chain(gate)),
        "ran": next((one for one in chain if one.effect.id == gate.effect_id), None),
        "afterwards": words.afterwards(gate.status, gate.effect.state, gate.effect.leave),
        "votes": votes,
        "yes": yes,
        "missing": max(0, gate.minimum - yes),
        "whose": words.who(needed),
        "mine": mine,
        "able": able,
        "may_rule": may_rule,
        "may_say_no": may_say_no,
        "takes_answer": gate.status == "pending" and mine is None and may_say_no and may_rule,
        "step_up": needed.step_up,
        "reason_needed": bool(needed.reason_of_yes),
        "least_reason": max(LEAST_REASON, needed.rationale_characters),
        "ticket": needed.ticket,
        "code": card.code(shown.intent),
        "token": seen.sign(gate, request.membership, shown, len(votes)),
        "asked_lately": now - gate.requested_at_us < DAY_US,
        "left_s": max(0, (gate.decide_by_us - now) // US),
        "leave_left_s": max(0, ((gate.leave_until_us or now) - now) // US),
        "stop": stops.covering(gate),
        "breaches": breaches.of(gate.effect),
        "denied": _denied(gate),
        "same_calls": _same_calls(gate),
        "revoked_by": around.words_of(gate, "gate.ruled") if gate.status == "revoked" else ("", ""),
        "mark": news.mark(gate) if gate.status in OPEN else "",  # what has ended asks no more
        "ended": ENDED,
        "in_pane": in_pane,
        "h": 2 if in_pane else 1,
        "s": 3 if in_pane else 2,
        **more,
    }


def _denied(gate: Gate) -> Said | None:
    """The word of a person that the last attempt did not happen, where it is asked for another on that word."""
    if gate.effect.resolution != "not_happened":
        return None
    before = (one for one in resolutions.told(gate.effect) if one.position < gate.opened_position)
    return next((one for one in before if one.answer == "not_happened"), None)


def _same_calls(gate: Gate) -> list[same_calls.Link]:
    """Effects of other sessions that may have done the same already. One query where there are any."""
    named = same_calls.of_effects([gate.effect_id]).get(gate.effect_id, []) if gate.named else []  # type: ignore[attr-defined]
    return [one for one in named if one.earlier]


def _next(request: MemberRequest, gate: Gate) -> Gate | None:
    """Where to go on from a request that is answered: to what comes after it for this person, or to the first."""
    found = inbox.following(request.membership, gate) or inbox.first(request.membership)
    return Gate.objects.filter(id=found).first() if found is not None else None


def _longest(shown: card.Card) -> dict[str, Any]:
    """The longest argument of what must be read, and its number among all."""
    if not shown.long or not shown.pieces:
        return {}
    number = max(range(len(shown.pieces)), key=lambda one: len(shown.pieces[one].text))
    return {"number": number, "name": shown.pieces[number].name}


def _says_more(changed: Changes) -> bool:
    """True when fact 2 is only the head of it: a diff, or commits that do not stand there at their full length."""
    short = all(len(one.name) <= 12 and len(one.title) <= 60 and len(one.author) <= 20 for one in changed.commits)
    return bool(changed.files) or len(changed.commits) > 6 or not short


def _opened(request: MemberRequest) -> Gate | None:
    """The request that the pane shows: the one that was asked for. The script opens the first where there is a pane."""
    try:
        return gate_of(request, UUID(request.GET.get("open", "")))
    except (ValueError, Http404):
        return None


def _kept(asked: dict[str, str]) -> str:
    return urlencode([(name, value) for name, value in asked.items() if value])
