"""Decide several similar requests together, each with its own vote.

The selected ids, the ticks and the typed reason are kept in the user's session until they are
answered. Requests that must be decided alone are shown apart, without a tick.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, role_required
from approvals import labels, stop_rows
from approvals.checks.checked_request import build_checked_request
from approvals.gates.gates import current_gate_status
from approvals.gates.statuses import US
from approvals.inbox import batch_table, inbox_queries, inbox_rows, kept_selection
from approvals.inbox.batch_table import BatchRow, BatchTable
from approvals.models import Gate, Vote
from approvals.policies import policy_evaluation
from approvals.review import card, form_token
from approvals.views.gate import DAY_US, GATE_RELATIONS
from approvals.views.vote import run_vote
from approvals.voting import votes as voting_votes
from approvals.voting.eligibility import load_current_requirement
from db import long_numbers
from db.clock import now_us
from journal.models import Body
from ledger import stops as ledger_stops
from sessions.models import ENDED

_SPREAD_US: Final = 60 * US  # requests further apart name the time of the last, too
_MAX_LISTED: Final = 4  # requests apart that the vote panel names
_NOT_PLAIN_TEXT: Final = "hidden characters, long blanks or too much text for one glance"
_WARNINGS: Final = {  # warning of a list entry -> why to decide it alone
    "takes": "destructive by its own arguments",
    "before": "resubmitted with changes",
    "reused": "its key was sent with other content",
}
_ALONE: Final = (
    "Decide these alone: requests that are not reversible, above medium risk, or need a password."
)
_ANSWERS: Final = ("approve", "deny", "request_changes")


@require_POST
@role_required("reviewer")
def select_batch_page(request: MemberRequest) -> HttpResponse:
    """Keep the requests selected in the inbox, or one set of it, and show them.

    `drop` forgets what is kept.
    """
    if "drop" in request.POST:
        kept_selection.discard_selection(request)
        return redirect("inbox")
    chosen = request.POST.get("set", "").split(",") if "set" in request.POST else []
    ids = (chosen or request.POST.getlist("gate"))[: inbox_queries.MAX_BATCH + 1]
    before = kept_selection.load_selection(request)
    reason = before.reason if set(ids) <= set(before.ids) else ""
    kept_selection.store_selection(request, ids, ids, reason)
    return redirect("batch_confirm")


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
@vary_on_headers("HX-Request")
def confirm_batch_page(request: MemberRequest) -> HttpResponse:
    """List the selected requests; POST changes ticks, extends deadlines, or votes on each ticked.

    A poll (`pending`) gets the requests that ended since, or 204 if none did.
    """
    gates = _load_chosen(request)
    if request.headers.get("HX-Request") == "true" and "pending" in request.GET:
        return _render_ended(request, gates)
    if wrong := _why_not_together(gates):
        if request.method == "POST":
            _keep_form(request, kept_selection.load_selection(request).ticked)
        return _render_refusal(request, wrong, gates)
    table = _build_table(request, gates)
    if request.method != "POST":
        return _render_batch(request, table)
    if "extend" in request.POST:
        return _extend_deadlines(request, table)
    if "tick" in request.POST:
        return _change_ticks(request, table, request.POST["tick"])
    return _answer_ticked(request, table)


def _load_chosen(request: MemberRequest) -> list[Gate]:
    ids = []
    for text in kept_selection.load_selection(request).ids:
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
        gate.status = current_gate_status(gate, now)
    return gates


def _why_not_together(gates: Sequence[Gate]) -> str:
    """Return why these requests are no set; empty if they are."""
    if not gates:
        return "Nothing is selected. Select requests in the inbox."
    if len(gates) > inbox_queries.MAX_BATCH:
        return f"You can decide at most {inbox_queries.MAX_BATCH} requests together. Select fewer."
    if len({(gate.tool, gate.rule) for gate in gates}) > 1:
        return "Select only requests of the same tool under the same rule."
    return ""


def _build_table(request: MemberRequest, gates: Sequence[Gate]) -> BatchTable:
    """Compare the requests, and find those that must be decided alone."""
    listed = {row.gate.id: row for row in inbox_rows.load_inbox_rows([gate.id for gate in gates])}
    plans = _load_plans(gates)
    cards = {gate.id: card.build_card(gate, plans[gate.id]) for gate in gates}
    rows = [
        BatchRow(gate, cards[gate.id], _why_alone(gate, cards[gate.id], listed[gate.id]))
        for gate in gates
    ]
    requests = [build_checked_request(gate, gate.effect, plans[gate.id]) for gate in gates]
    results = {gate.id: listed[gate.id].checks for gate in gates}
    bound = _find_bound_arguments(plans, cards)
    table = batch_table.build_batch_table(rows, requests, results, bound)
    ticked = set(kept_selection.load_selection(request).ticked)
    for row in table.alike:
        row.ticked = str(row.gate.id) in ticked
    return table


def _load_plans(gates: Sequence[Gate]) -> dict[UUID, dict[str, Any]]:
    """Load the bodies of the plans; empty for erased ones. One query."""
    bodies = dict(
        Body.objects.filter(entry__in=[gate.plan_position for gate in gates]).values_list(
            "entry_id", "text"
        )
    )
    plans = {}
    for gate in gates:
        text = bodies.get(gate.plan_position)
        body = long_numbers.parse_json(text) if text else {}
        plans[gate.id] = body if isinstance(body, dict) else {}
    return plans


def _find_bound_arguments(
    plans: Mapping[UUID, Mapping[str, Any]], cards: Mapping[UUID, card.Card]
) -> frozenset[str] | None:
    """Return the arguments that the intents of all requests cover, computed again; or None."""
    if any(shown.verified != "equal" for shown in cards.values()):
        return None
    names: set[str] = set()
    free: set[str] = set()
    for plan in plans.values():
        arguments, free_text = plan.get("arguments"), plan.get("free_text")
        names |= set(arguments) if isinstance(arguments, dict) else set()
        free |= set(map(str, free_text)) if isinstance(free_text, list) else set()
    return frozenset(names - free)


def _why_alone(gate: Gate, shown: card.Card, row: inbox_rows.InboxRow) -> tuple[str, ...]:
    """Return why a request must be decided alone, apart from what checks report."""
    if gate.status != "pending":
        return (f"ended: {labels.STATUS_LABELS[gate.status][0]}",)
    reasons = []
    severity = policy_evaluation.compute_current_severity(gate)
    step_up = load_current_requirement(gate).step_up
    if not inbox_rows.is_batchable(severity, step_up):
        if severity.reversibility not in ("read", "reversible"):
            reasons.append(severity.reversibility)
        if severity.risk not in ("low", "medium"):
            reasons.append(f"{severity.risk} risk")
        if step_up != "none":
            reasons.append(f"needs {labels.STEP_UP_LABELS[step_up]}")
    if not shown.plain:
        reasons.append(_NOT_PLAIN_TEXT)
    reasons += [text for mark, text in _WARNINGS.items() if getattr(row, mark)]
    return tuple(reasons)


# --- answers -----------------------------------------------------------------------------------


def _keep_form(request: MemberRequest, ticked: Sequence[str]) -> None:
    """Keep the ticks and the typed reason with the selection."""
    selection = kept_selection.load_selection(request)
    kept_selection.store_selection(
        request, selection.ids, ticked, request.POST.get("reason", selection.reason)
    )


def _change_ticks(request: MemberRequest, table: BatchTable, wanted: str) -> HttpResponse:
    """Tick all, none, or what the form has (`keep`, and `back`, which leads to the inbox)."""
    alike = [str(row.gate.id) for row in table.alike]
    sent = set(request.POST.getlist("gate"))
    ticks = {"alike": alike, "none": []}.get(wanted, [each for each in alike if each in sent])
    _keep_form(request, ticks)
    return redirect("inbox" if wanted == "back" else "batch_confirm")


def _extend_deadlines(request: MemberRequest, table: BatchTable) -> HttpResponse:
    """Extend the deadline of each request that may be ticked; ticks and reason are kept."""
    alike = {str(row.gate.id) for row in table.alike}
    _keep_form(request, [each for each in request.POST.getlist("gate") if each in alike])
    extended = 0
    refused: dict[str, list[Gate]] = {}
    for row in table.alike:
        outcome = run_vote(partial(voting_votes.extend_deadline, row.gate, request.membership))
        if outcome.refusal is None:
            extended += 1
        else:
            refused.setdefault(outcome.refusal[1], []).append(row.gate)
    if extended:
        requests = "1 request" if extended == 1 else f"{extended} requests"
        messages.success(request, f"Extended {requests} by 15 minutes.")
    for why, gates in refused.items():
        named = f"{', '.join(map(str, gates))}: {why}"
        messages.error(request, f"Not extended. {named}", extra_tags="failed")
    return redirect("batch_confirm")


def _answer_ticked(request: MemberRequest, table: BatchTable) -> HttpResponse:
    """Vote on each ticked request with the same reason, or show why nothing was recorded."""
    sent = set(request.POST.getlist("gate"))
    ticked = [row for row in table.alike if str(row.gate.id) in sent]
    _keep_form(request, [str(row.gate.id) for row in ticked])
    for row in table.alike:
        row.ticked = row in ticked
    errors = [_refuse_apart(row) for row in table.apart if str(row.gate.id) in sent]
    if len(sent) > len(ticked) + len(errors):
        errors.append("Tick only requests of this page.")
    if not sent:
        errors.append("Tick at least one request.")
    answer = request.POST.get("answer", "")
    if answer not in _ANSWERS:
        errors.append("Choose an answer.")
    if errors:
        return _render_batch(request, table, errors)
    return _vote_on_all(request, [row.gate for row in ticked], answer)


def _refuse_apart(row: BatchRow) -> str:
    if row.gate.status != "pending":
        return f"{row.gate} has ended: {labels.STATUS_LABELS[row.gate.status][0]}."
    return f"{row.gate}: {_explain_apart(row)}. Open it to decide it alone."


def _explain_apart(row: BatchRow) -> str:
    return "; ".join(row.why)


def _vote_on_all(request: MemberRequest, ticked: Sequence[Gate], answer: str) -> HttpResponse:
    reason = request.POST.get("reason", "")
    refused: dict[str, list[Gate]] = {}
    for gate in ticked:
        if why := _vote_on_one(request, gate, answer, reason):
            refused.setdefault(why, []).append(gate)
    errors = [f"{', '.join(map(str, named))}: {why}" for why, named in refused.items()]
    remaining = [str(gate.id) for named in refused.values() for gate in named]
    if len(remaining) == len(ticked):
        gates = _load_chosen(request)
        return _render_batch(request, _build_table(request, gates), errors)
    recorded = len(ticked) - len(remaining)
    answers = "1 answer is" if recorded == 1 else f"{recorded} answers are"
    with_reason = ", each with your reason" if reason.strip() else ""
    messages.success(request, f"{answers} recorded{with_reason}.")
    for words in errors:
        messages.error(request, f"Not recorded. {words}", extra_tags="failed")
    if remaining:
        kept_selection.store_selection(request, remaining, remaining, reason)
        return redirect("batch_confirm")  # the remaining requests, with the typed reason
    kept_selection.discard_selection(request)
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


# --- pages -------------------------------------------------------------------------------------


def _render_refusal(request: MemberRequest, wrong: str, gates: Sequence[Gate]) -> HttpResponse:
    """Say why the requests are not decided together, with a link to each."""
    reason = kept_selection.load_selection(request).reason
    listed = gates[: inbox_queries.MAX_BATCH]
    context = {"refusal": wrong, "reason": reason, "gates": listed}
    return render(request, "approvals/batch/batch.html", context, status=409)


def _render_batch(
    request: MemberRequest, table: BatchTable, errors: Sequence[str] = ()
) -> HttpResponse:
    """Render the page; without any request that may be ticked, say why."""
    if not table.alike:
        gates = [row.gate for row in table.apart]
        return _render_refusal(request, _explain_all_apart(table), gates)
    standing = stop_rows.load_live_stops(request.membership.project)
    counts = _count_votes(table)
    for row in table.rows:
        gate = row.gate
        row.stop = ledger_stops.find_covering_stop(
            standing, gate.session_id, gate.agent_id, gate.tool, gate.effect_id
        )
        if not row.why:
            form_token.record_gate_view(gate, request.membership)
            row.token = form_token.sign_gate_snapshot(
                gate, request.membership, row.card, counts.get(gate.id, 0)
            )
    gates = [row.gate for row in table.rows]
    requirements = [load_current_requirement(row.gate) for row in table.alike]
    until = min(row.gate.decide_by_us for row in table.alike)
    context = {
        "table": table,
        "errors": errors,
        "reason": kept_selection.load_selection(request).reason,
        "draft_key": _hash_ids(gate.id for gate in gates),
        "first": table.alike[0].gate,
        "tool": gates[0].tool,
        "is_final": any(gate.reversibility == "irreversible" for gate in gates),
        "requested_from": (first_us := min(gate.requested_at_us for gate in gates)),
        "requested_to": (last_us := max(gate.requested_at_us for gate in gates)),
        "requested_lately": now_us() - first_us < DAY_US,
        "is_spread": last_us - first_us > _SPREAD_US,
        "agents": len({gate.agent_id for gate in gates}),
        "sessions": len({gate.session_id for gate in gates}),
        "pending": sum(gate.status == "pending" for gate in gates),
        "until": until,
        "left_s": max(0, (until - now_us()) // US),
        "more_apart": max(0, len(table.apart) - _MAX_LISTED),
        "apart_listed": table.apart[:_MAX_LISTED],
        "least_reason": max(needed.reason_of_yes for needed in requirements),
        "tickets": sorted({needed.ticket for needed in requirements if needed.ticket}),
        "minimum": max(row.gate.minimum for row in table.alike),
        "stopped": [row for row in table.rows if row.stop is not None],
        "ended": ENDED,
    }
    return render(request, "approvals/batch/batch.html", context, status=409 if errors else 200)


def _hash_ids(ids: Iterable[UUID]) -> str:
    """Return a short key of a set of requests, for a draft in the browser."""
    return hashlib.sha256(b"".join(each.bytes for each in ids)).hexdigest()[:16]


def _render_ended(request: MemberRequest, gates: Sequence[Gate]) -> HttpResponse:
    """Name the requests that ended while the page was open."""
    ended = [gate for gate in gates if gate.status != "pending"]
    if request.GET["pending"] == str(len(gates) - len(ended)):
        return HttpResponse(status=204)
    return render(request, "approvals/batch/_ended_while_confirming.html", {"ended": ended})


def _count_votes(table: BatchTable) -> dict[UUID, int]:
    """Count the votes of each request. One query."""
    counts: dict[UUID, int] = {}
    for gate in Vote.objects.filter(gate__in=[row.gate.id for row in table.alike]).values_list(
        "gate", flat=True
    ):
        counts[gate] = counts.get(gate, 0) + 1
    return counts


def _explain_all_apart(table: BatchTable) -> str:
    """Return why none of the requests can be decided with others."""
    pending = [row for row in table.apart if row.gate.status == "pending"]
    if not pending:
        return "All selected requests have ended. Go back and select again."
    if not any(
        inbox_rows.is_batchable(
            policy_evaluation.compute_current_severity(row.gate),
            load_current_requirement(row.gate).step_up,
        )
        for row in pending
    ):
        return _ALONE
    gates_by_reason: dict[str, list[str]] = {}
    for row in table.apart:
        gates_by_reason.setdefault(_explain_apart(row), []).append(str(row.gate))
    sentences = " ".join(
        f"{', '.join(named)}: {reason}." for reason, named in gates_by_reason.items()
    )
    return f"{sentences} Decide each of these alone."
