"""Decide several similar requests together, each with its own vote.

The selected ids and the typed reason are kept in the user's session until all are answered.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access import MemberRequest, role_required
from approvals import stop_rows
from approvals.gates import deadlines
from approvals.inbox import inbox_queries, inbox_rows
from approvals.models import Gate, Vote
from approvals.policies import policy_inputs
from approvals.review import card, form_token
from approvals.review.form_token import VOTE_FORM
from approvals.views.inbox import GATE_RELATIONS
from approvals.views.vote import run_vote
from approvals.voting import votes as voting_votes
from approvals.voting.eligibility import load_current_requirement
from db.clock import now_us
from ledger import stops as ledger_stops

_SESSION_KEY: Final = "batch"  # session key of {"ids": selected gates, "reason": typed reason}
_NOT_PLAIN_TEXT: Final = "hidden characters, long blanks or too much text for one glance"
_WARNINGS: Final = {  # warning of a list entry -> why to decide it alone
    "takes": "destructive by its own arguments",
    "before": "resubmitted with changes",
    "reused": "its key was sent with other content",
}


@require_POST
@role_required("reviewer")
def select_batch_page(request: MemberRequest) -> HttpResponse:
    """Keep the requests selected in the inbox and go to the page that lists them."""
    ids = request.POST.getlist("gate")[: inbox_queries.MAX_BATCH + 1]
    before = _load_kept(request)
    _store_kept(request, ids, before["reason"] if set(ids) <= set(before["ids"]) else "")
    return redirect("batch_confirm")


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def confirm_batch_page(request: MemberRequest) -> HttpResponse:
    """List the selected requests; POST votes on each with the same reason."""
    chosen = _load_chosen(request)
    wrong = _why_not_together(chosen) or _why_alone(chosen)
    if request.method != "POST":
        return _render_batch(request, chosen, wrong)
    if wrong:
        _store_kept(request, _load_kept(request)["ids"], request.POST.get("reason", ""))
        return _render_batch(request, chosen, wrong)
    return _vote_on_all(request, chosen)


def _render_batch(
    request: MemberRequest, chosen: list[Gate], wrong: str, errors: Sequence[str] = ()
) -> HttpResponse:
    standing = stop_rows.load_live_stops(request.membership.project)
    rows: list[dict[str, Any]] = []
    for gate in chosen if not wrong else []:
        form_token.record_gate_view(gate, request.membership)
        shown = card.build_card(gate)
        votes = Vote.objects.filter(gate=gate).count()
        token = form_token.sign_gate_snapshot(gate, request.membership, shown, votes)
        stop = ledger_stops.find_covering_stop(
            standing, gate.session_id, gate.agent_id, gate.tool, gate.effect_id
        )
        rows.append({"gate": gate, "card": shown, "token": token, "stop": stop})
    context = {
        "rows": rows,
        "refusal": wrong,
        "errors": errors,
        "reason": _load_kept(request)["reason"],
    }
    return render(request, "approvals/batch.html", context, status=409 if wrong or errors else 200)


def _load_kept(request: MemberRequest) -> dict[str, Any]:
    kept: dict[str, Any] = request.session.get(_SESSION_KEY) or {"ids": [], "reason": ""}
    return kept


def _store_kept(request: MemberRequest, ids: list[str], reason: str) -> None:
    request.session[_SESSION_KEY] = {"ids": ids, "reason": reason[: VOTE_FORM.max_characters]}


def _load_chosen(request: MemberRequest) -> list[Gate]:
    ids = []
    for text in _load_kept(request)["ids"]:
        try:
            ids.append(UUID(text))
        except (ValueError, AttributeError):
            continue
    gates = list(
        Gate.objects.select_related(*GATE_RELATIONS)
        .filter(project=request.membership.project, id__in=ids)
        .order_by("opened_position")
    )
    now = now_us()
    for gate in gates:
        gate.status = deadlines.current_gate_status(gate, now)
    return gates


def _why_not_together(chosen: list[Gate]) -> str:
    """Return why these requests cannot be decided together; empty if they can."""
    if not chosen:
        return "Nothing is selected. Select requests in the inbox."
    if len(chosen) > inbox_queries.MAX_BATCH:
        return f"You can decide at most {inbox_queries.MAX_BATCH} requests together. Select fewer."
    if len({(gate.tool, gate.rule) for gate in chosen}) > 1:
        return "Select only requests of the same tool under the same rule."
    if not all(
        inbox_rows.is_batchable(
            policy_inputs.compute_current_severity(gate),
            load_current_requirement(gate).step_up,
        )
        for gate in chosen
    ):
        return (
            "Decide these alone: requests that are not reversible, "
            "above medium risk, or need a password."
        )
    if any(gate.status != "pending" for gate in chosen):
        return "A selected request has ended. Go back and select again."
    return ""


def _why_alone(chosen: list[Gate]) -> str:
    """Name requests that must be decided alone: not plain, or with a warning."""
    rows = {row.gate.id: row for row in inbox_rows.load_inbox_rows([gate.id for gate in chosen])}
    gates_by_reason: dict[str, list[str]] = {}
    for gate in chosen:
        if not card.build_card(gate).plain:
            gates_by_reason.setdefault(_NOT_PLAIN_TEXT, []).append(str(gate))
        for mark, explanation in _WARNINGS.items():
            if getattr(rows[gate.id], mark):
                gates_by_reason.setdefault(explanation, []).append(str(gate))
        for result in rows[gate.id].checks:
            if result.is_warning:
                gates_by_reason.setdefault(result.short, []).append(str(gate))
    sentences = " ".join(
        f"{', '.join(named)}: {explanation}." for explanation, named in gates_by_reason.items()
    )
    return f"{sentences} Decide each of these alone." if sentences else ""


def _vote_on_all(request: MemberRequest, chosen: list[Gate]) -> HttpResponse:
    reason = request.POST.get("reason", "")
    refused: dict[str, list[Gate]] = {}
    for gate in chosen:
        if why := _vote_on_one(request, gate, request.POST.get("answer", ""), reason):
            refused.setdefault(why, []).append(gate)
    errors = [f"{', '.join(map(str, named))}: {why}" for why, named in refused.items()]
    remaining = [str(gate.id) for named in refused.values() for gate in named]
    _store_kept(request, remaining, reason)
    if len(remaining) == len(chosen):
        now = _load_chosen(request)
        return _render_batch(request, now, _why_not_together(now) or _why_alone(now), errors)
    recorded = len(chosen) - len(remaining)
    answers = "1 answer is" if recorded == 1 else f"{recorded} answers are"
    messages.success(request, f"{answers} recorded, each with your reason.")
    for words in errors:
        messages.error(request, f"Not recorded. {words}", extra_tags="failed")
    if remaining:
        return redirect("batch_confirm")  # the remaining requests, with the typed reason
    request.session.pop(_SESSION_KEY, None)
    return redirect(f"{reverse('inbox')}?open=none")  # opens no request


def _vote_on_one(request: MemberRequest, gate: Gate, answer: str, reason: str) -> str:
    """Vote on one request. Return why the vote was refused, or an empty string."""
    shown = form_token.verify_gate_snapshot(
        request.POST.get(f"seen-{gate.id.hex}", ""), gate, request.membership
    )
    if shown is None:
        return "the form is not yours or is older than 12 hours."
    if shown.shown.card_sha256 != card.build_card(gate).sha256:
        return "it changed after you opened it."
    outcome = run_vote(
        lambda: voting_votes.cast_vote(gate, request.membership, answer, reason, shown.shown)
    )
    return outcome.refusal[1] if outcome.refusal is not None else ""
