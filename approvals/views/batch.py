"""Deciding several requests of one shape together: each is listed whole, and each gets a vote of its own.

The ids that were ticked and the words typed for them wait in the sign-in's session until all of them are answered.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from approvals import card, deadlines, entries, inbox, reading, rulings, seen, stops
from approvals.models import Gate, Vote
from approvals.views.decide import LONGEST, ruled
from approvals.views.desk import JOINED
from journal.clock import now_us
from ledger import holds
from sessions.access import MemberRequest, requires

_KEY: Final = "batch"  # in the session: {"ids": of what was ticked, "reason": what was typed}
_NOT_PLAIN: Final = "hidden characters, long blanks or more text than can be taken in at a glance"
_MARKS: Final = {  # of an entry of the list -> why it is decided by itself
    "takes": "by its own arguments it takes something away",
    "again": "the same was refused before",
    "before": "it is asked anew, with something changed",
    "reused": "its key was sent with other content",
}


@require_POST
@requires("reviewer")
def choose(request: MemberRequest) -> HttpResponse:
    """Take the ticks of the inbox and go on to the page that lists each of them."""
    ids = request.POST.getlist("gate")[: inbox.BATCH + 1]
    before = _kept(request)
    _keep(request, ids, before["reason"] if set(ids) <= set(before["ids"]) else "")
    return redirect("batch_confirm")


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def confirm(request: MemberRequest) -> HttpResponse:
    """List what was ticked; POST decides each of it with the same words, which are kept until all of it is."""
    chosen = _chosen(request)
    wrong = _wrong(chosen) or _too_much(chosen)
    if request.method != "POST":
        return _page(request, chosen, wrong)
    if wrong:
        _keep(request, _kept(request)["ids"], request.POST.get("reason", ""))
        return _page(request, chosen, wrong)
    return _decide(request, chosen)


def _page(request: MemberRequest, chosen: list[Gate], wrong: str, errors: Sequence[str] = ()) -> HttpResponse:
    standing = stops.in_force(request.membership.project)
    rows: list[dict[str, Any]] = []
    for gate in chosen if not wrong else []:
        seen.note(gate, request.membership)
        shown = card.of(gate)
        votes = Vote.objects.filter(gate=gate).count()
        token = seen.sign(gate, request.membership, shown, votes)
        stop = holds.covering(standing, gate.session_id, gate.agent_id, gate.tool, gate.effect_id)
        rows.append({"gate": gate, "card": shown, "token": token, "stop": stop})
    context = {"rows": rows, "wrong": wrong, "errors": errors, "reason": _kept(request)["reason"]}
    return render(request, "approvals/batch.html", context, status=409 if wrong or errors else 200)


def _kept(request: MemberRequest) -> dict[str, Any]:
    kept: dict[str, Any] = request.session.get(_KEY) or {"ids": [], "reason": ""}
    return kept


def _keep(request: MemberRequest, ids: list[str], reason: str) -> None:
    request.session[_KEY] = {"ids": ids, "reason": reason[:LONGEST]}


def _chosen(request: MemberRequest) -> list[Gate]:
    ids = []
    for text in _kept(request)["ids"]:
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
        gate.status = deadlines.current_status(gate, now)
    return found


def _wrong(chosen: list[Gate]) -> str:
    """Why these cannot be decided together; empty when they can."""
    if not chosen:
        return "Nothing was ticked."
    if len(chosen) > inbox.BATCH:
        return f"At most {inbox.BATCH} are decided together, so that each can be read."
    if len({(gate.tool, gate.rule) for gate in chosen}) > 1:
        return "Only requests of the same tool under the same rule are decided together."
    if not all(entries.batchable(reading.about_now(gate), rulings.asks(gate).step_up) for gate in chosen):
        return "What cannot be put back, is of more than medium risk, or takes a password, is decided by itself."
    if any(gate.status != "pending" for gate in chosen):
        return "One of them has ended meanwhile. Go back and choose again."
    return ""


def _too_much(chosen: list[Gate]) -> str:
    """Which of them a glance does not show whole, or the list warns of: among harmless ones nobody looks twice."""
    rows = {row.gate.id: row for row in entries.entries_of([gate.id for gate in chosen])}
    found: dict[str, list[str]] = {}
    for gate in chosen:
        if not card.of(gate).plain:
            found.setdefault(_NOT_PLAIN, []).append(str(gate))
        for mark, said in _MARKS.items():
            if getattr(rows[gate.id], mark):
                found.setdefault(said, []).append(str(gate))
    told = " ".join(f"{', '.join(named)}: {said}." for said, named in found.items())
    return f"{told} Decide such a request by itself." if told else ""


def _decide(request: MemberRequest, chosen: list[Gate]) -> HttpResponse:
    reason = request.POST.get("reason", "")
    refused: dict[str, list[Gate]] = {}
    for gate in chosen:
        if why := _answered(request, gate, request.POST.get("answer", ""), reason):
            refused.setdefault(why, []).append(gate)
    errors = [f"{', '.join(map(str, named))}: {why}" for why, named in refused.items()]
    left = [str(gate.id) for named in refused.values() for gate in named]
    _keep(request, left, reason)
    if len(left) == len(chosen):
        now = _chosen(request)
        return _page(request, now, _wrong(now) or _too_much(now), errors)
    recorded = len(chosen) - len(left)
    told = "1 answer is" if recorded == 1 else f"{recorded} answers are"
    messages.success(request, f"{told} recorded, each with your words.")
    for words in errors:
        messages.error(request, f"Not recorded. {words}", extra_tags="failed")
    if left:
        return redirect("batch_confirm")  # the rest of them, with the words as they were typed
    request.session.pop(_KEY, None)
    return redirect(f"{reverse('inbox')}?open=none")  # what comes next is no part of what was just decided


def _answered(request: MemberRequest, gate: Gate, answer: str, reason: str) -> str:
    """Give the answer to one of them; say why when it was refused, else nothing."""
    shown = seen.read(request.POST.get(f"seen-{gate.id.hex}", ""), gate, request.membership)
    if shown is None:
        return "the form was not made for you, or more than twelve hours ago."
    if shown.shown.card_sha256 != card.of(gate).sha256:
        return "it changed since you looked."
    outcome = ruled(lambda: rulings.answer(gate, request.membership, answer, reason, shown.shown))
    return outcome.refusal[1] if outcome.refusal is not None else ""
