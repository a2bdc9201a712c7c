"""Deciding several requests of one shape together: each is listed whole, and each gets a vote of its own."""

from functools import partial
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from approvals import card, entries, flags, gates, inbox, rulings, seen
from approvals.models import Gate, Vote
from approvals.views.decide import ruled
from approvals.views.desk import JOINED
from journal.clock import now_us
from sessions.access import MemberRequest, requires

_KEY: Final = "batch"  # in the sign-in's session: the ids that were ticked


@require_POST
@requires("reviewer")
def choose(request: MemberRequest) -> HttpResponse:
    """Take the ticks of the inbox and go on to the page that lists each of them."""
    request.session[_KEY] = request.POST.getlist("gate")[: inbox.BATCH + 1]
    return redirect("batch_confirm")


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def confirm(request: MemberRequest) -> HttpResponse:
    """List what was ticked; POST decides each of it with the same words."""
    chosen = _chosen(request)
    wrong = _wrong(chosen) or _too_much(chosen)
    if request.method == "POST" and not wrong:
        return _decide(request, chosen)
    rows: list[dict[str, Any]] = []
    refused = flags.asked_again(chosen) if not wrong else {}
    for gate in chosen if not wrong else []:
        seen.note(gate, request.membership)
        shown = card.of(gate)
        votes = Vote.objects.filter(gate=gate).count()
        token = seen.sign(gate, request.membership, shown, votes)
        rows.append({"gate": gate, "card": shown, "token": token, "again": refused.get(gate.id)})
    context = {"rows": rows, "wrong": wrong, "reason": request.POST.get("reason", "")}
    return render(request, "approvals/batch.html", context, status=409 if wrong else 200)


def _chosen(request: MemberRequest) -> list[Gate]:
    ids = []
    for text in request.session.get(_KEY, []):
        try:
            ids.append(UUID(text))
        except (ValueError, AttributeError):
            continue
    found = list(
        Gate.objects.select_related(*JOINED)
        .filter(project=request.membership.project, id__in=ids)
        .order_by("opened_position")
    )
    now = now_us()
    for gate in found:
        gate.status = gates.current_status(gate, now)
    return found


def _wrong(chosen: list[Gate]) -> str:
    """Why these cannot be decided together; empty when they can."""
    if not chosen:
        return "Nothing was ticked."
    if len(chosen) > inbox.BATCH:
        return f"At most {inbox.BATCH} are decided together, so that each can be read."
    if len({(gate.tool, gate.rule) for gate in chosen}) > 1:
        return "Only requests of the same tool under the same rule are decided together."
    if not all(entries.batchable(gate) for gate in chosen):
        return "What cannot be put back, is of more than medium risk, or takes a password, is decided by itself."
    if any(gate.status != "pending" for gate in chosen):
        return "One of them has ended meanwhile. Go back and choose again."
    return ""


def _too_much(chosen: list[Gate]) -> str:
    """Which of them a glance does not show whole: among twenty-four harmless ones nobody would look twice."""
    named = ", ".join(str(gate) for gate in chosen if not card.of(gate).plain)
    reasons = "hidden characters, long blanks or more text than can be taken in at a glance"
    return f"{named}: {reasons}. Decide such a request by itself." if named else ""


def _decide(request: MemberRequest, chosen: list[Gate]) -> HttpResponse:
    answer, reason = request.POST.get("answer", ""), request.POST.get("reason", "")
    recorded, refused = 0, []
    for gate in chosen:
        shown = seen.read(request.POST.get(f"seen-{gate.id.hex}", ""), gate, request.membership)
        if shown is None:
            refused.append(f"{gate}: its form was not made for you.")
            continue
        now = card.of(gate)
        if shown.shown.card_sha256 != now.sha256:
            refused.append(f"{gate}: it changed since you looked.")
            continue
        outcome = ruled(partial(rulings.answer, gate, request.membership, answer, reason, shown.shown))
        if outcome.refusal is not None:
            refused.append(f"{gate}: {outcome.refusal[1]}")
        else:
            recorded += 1
    if recorded:
        told = "1 answer is" if recorded == 1 else f"{recorded} answers are"
        messages.success(request, f"{told} recorded, each with your words.")
    for words in refused:
        messages.error(request, f"Not recorded. {words}", extra_tags="failed")
    request.session.pop(_KEY, None)
    return redirect(f"{reverse('inbox')}?open=none")  # what comes next is no part of what was just decided
