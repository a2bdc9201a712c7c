"""Vote on a request, extend its deadline, revoke its approval.

Every vote is a POST with a signed token of what the page showed. It ends in a redirect, or in a
page that shows what changed. A vote that needs a step-up, or comes from a page without script,
goes through the confirm page. The draft is kept in the user's session until then.
"""

import hmac
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts.access import MemberRequest, role_required
from approvals import labels
from approvals.gates import gates
from approvals.gates.states import VOTE_ANSWERS
from approvals.inbox import queries
from approvals.models import Gate
from approvals.review import card, form_token
from approvals.review.form_token import PageSnapshot
from approvals.views import drafts
from approvals.views.inbox import gate_context, load_gate_of_request
from approvals.voting import reauthentication, votes
from approvals.voting.votes import VoteResult
from db import retry
from web.untrusted_text import format_markup

MAX_FIELD: Final = (
    votes.MAX_VOTE_REASON + 1
)  # one character more than rulings accepts, so that it refuses
STALE_VOTE_FORM: Final = (
    "stale_view",
    "This form is not yours or is older than 12 hours. Review the request below, then answer.",
)
CHANGED_GATE: Final = (
    "stale_view",
    "The request changed after you opened it. Review what changed, then answer.",
)
VOTE_DRAFT_GONE: Final = (
    "stale_view",
    "This draft was already submitted or discarded in another tab. "
    "The page below shows what is recorded.",
)
OTHER_DRAFT: Final = (
    "Nothing was recorded. You began another answer after this page, perhaps in a second window. "
    "Your latest answer is shown here."
)
HIDDEN_NOT_SEEN: Final = (
    "not_seen",
    "To approve, tick that you have seen the hidden characters.",
)
LINES_NOT_READ: Final = (
    "not_seen",
    "To approve, tick that you have read all lines.",
)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def vote_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Take an answer from a gate page: record the vote, or go to the confirm page.

    A refused answer is shown under this URL. Reloading it returns to the gate page, with the draft.
    """
    gate_row = load_gate_of_request(request, gate)
    if request.method != "POST":
        return redirect("gate", gate=gate_row.id)
    draft = _read_draft(request)
    refused = _validate_draft(request, gate_row, draft)
    if refused is not None:
        return refused
    if not request.POST.get("settled") or _required_step_up(gate_row, draft) != "none":
        request.session[drafts.draft_key(gate_row)] = draft
        return redirect("gate_confirm", gate=gate_row.id)
    return _record_vote(request, gate_row, draft, "none")


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def confirm_vote_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show what would run and ask to confirm, with code and password if required."""
    gate_row = load_gate_of_request(request, gate)
    draft = request.session.get(drafts.draft_key(gate_row))
    if draft is None or not draft["answer"]:  # no draft, or only a kept reason
        return (
            redirect("gate", gate=gate_row.id)
            if request.method != "POST"
            else render_refusal(request, gate_row.id, VOTE_DRAFT_GONE)
        )
    if request.method != "POST":
        return (
            _validate_draft(request, gate_row, draft) if gate_row.status != "pending" else None
        ) or _render_confirm(request, gate_row, draft, {})
    if request.POST.get("seen_draft", "") != drafts.draft_digest(draft):
        return _render_confirm(request, gate_row, draft, {}, other=OTHER_DRAFT)
    refused = _validate_draft(request, gate_row, draft)
    if refused is not None:
        return refused
    step_up = _required_step_up(gate_row, draft)
    errors = _check_step_up(request, gate_row, step_up)
    if errors:
        return _render_confirm(request, gate_row, draft, errors)
    return _record_vote(request, gate_row, draft, step_up)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def extend_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Extend the deadline by 15 minutes. The draft of an answer is kept."""
    gate_row = load_gate_of_request(request, gate)
    if request.method != "POST":
        return redirect("gate", gate=gate_row.id)
    draft = _read_draft(request) | {"answer": ""}
    outcome = run_vote(lambda: votes.extend_deadline(gate_row, request.membership))
    if outcome.refusal is not None:
        return render_refusal(
            request,
            gate_row.id,
            outcome.refusal,
            reason=draft["reason"],
            ticked=_ticked_names(draft),
        )
    if draft["reason"] or _ticked_names(draft):
        request.session[drafts.draft_key(gate_row)] = draft
    messages.success(request, "Extended by 15 minutes.")
    if request.POST.get("from") == "inbox":
        return redirect(f"{_list_url(request.POST.get('list', ''))}open={gate_row.id}")
    return redirect("gate", gate=gate_row.id)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def revoke_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Ask for a reason, then revoke an approval that has not been used."""
    gate_row = load_gate_of_request(request, gate)
    if request.method != "POST":
        context = {
            "gate": gate_row,
            "effect": gate_row.effect,
            "reason": drafts.kept_reason(request, gate_row),
        }
        return render(request, "approvals/revoke.html", context)
    reason = request.POST.get("reason", "")
    outcome = run_vote(lambda: votes.revoke_approval(gate_row, request.membership, reason))
    if outcome.refusal is not None:
        return render_refusal(request, gate_row.id, outcome.refusal, reason=reason)
    request.session.pop(drafts.draft_key(gate_row), None)
    messages.success(request, "Approval revoked. The agent is informed at its next request.")
    return redirect("gate", gate=gate_row.id)


def run_vote(verb: Callable[[], VoteResult]) -> VoteResult:
    """Run `verb` in its own transaction; retry if the gate changed concurrently."""
    return retry.run_with_retry(verb, gates.GateConflict)


def render_refusal(
    request: MemberRequest,
    gate: UUID,
    refused: tuple[str, str],
    *,
    reason: str = "",
    differences: Any = (),
    ticked: Any = (),
) -> HttpResponse:
    """Render the current gate page with refusal, differences and typed reason.

    The reason is kept as a draft: reloading this URL or the gate page shows it.
    """
    gate_row = load_gate_of_request(request, gate)
    if refused is not VOTE_DRAFT_GONE:  # sent without a reason
        drafts.keep_reason(request, gate_row, reason)
    more = {"refused": refused, "differences": differences, "reason": reason, "ticked": ticked}
    return render(
        request, "approvals/gate.html", gate_context(request, gate_row, **more), status=409
    )


def _validate_draft(
    request: MemberRequest, gate: Gate, draft: dict[str, str]
) -> HttpResponse | None:
    """Refuse an answer that fails a check of its form: token, ticks, missing reason."""
    shown = form_token.verify_gate_snapshot(draft["seen"], gate, request.membership)
    refused, differences = None, []
    now = card.build_card(gate)
    if shown is None or draft["answer"] not in VOTE_ANSWERS:
        refused = STALE_VOTE_FORM
    elif gate.status != "pending":
        # Refuse before asking for code and password: people who give them expect a recorded vote.
        refused = votes.explain_ended_gate(gate)
    elif gate.status == "pending" and _is_stale(shown, gate, now):
        refused, differences = CHANGED_GATE, form_token.diff_snapshot(shown, gate, now)
    elif draft["answer"] == "approve" and now.hidden and not draft["hidden_seen"]:
        refused = HIDDEN_NOT_SEEN
    elif draft["answer"] == "approve" and now.long and not draft["all_read"]:
        refused = LINES_NOT_READ
    elif (
        gate.status == "pending"
        and not draft["reason"].strip()
        and votes.needs_reason(gate, draft["answer"])
    ):
        refused = (
            "rationale_required",
            f"Add a reason to {labels.VOTE_ANSWER_LABELS[draft['answer']][1].lower()}.",
        )
    if refused is None:
        return None
    ticked = () if refused in (STALE_VOTE_FORM, CHANGED_GATE) else _ticked_names(draft)
    return render_refusal(
        request, gate.id, refused, reason=draft["reason"], differences=differences, ticked=ticked
    )


def _read_draft(request: MemberRequest) -> dict[str, str]:
    """Return the submitted fields of the form."""
    return {name: request.POST.get(name, "")[:MAX_FIELD] for name in drafts.FIELD_NAMES}


def _ticked_names(draft: dict[str, str]) -> list[str]:
    return [name for name in drafts.TICK_NAMES if draft[name]]


def _is_stale(shown: PageSnapshot, gate: Gate, now: card.Card) -> bool:
    page = shown.shown
    return (page.version, page.digest, page.card_sha256) != (gate.version, gate.digest, now.sha256)


def _required_step_up(gate: Gate, draft: dict[str, str]) -> str:
    """Return the step-up this answer needs; only approvals need any."""
    return votes.load_current_requirement(gate).step_up if draft["answer"] == "approve" else "none"


def _check_step_up(request: MemberRequest, gate: Gate, step_up: str) -> dict[str, str]:
    """Return what is wrong with code or password, by field; the code is checked first."""
    if step_up == "none":
        return {}
    code = request.POST.get("code", "").strip().lower()
    if step_up == "typed_digest" and not hmac.compare_digest(
        code.encode(), card.confirmation_code(gate.effect.intent_digest).encode()
    ):
        return {"code": reauthentication.WRONG_CODE}
    if reauthentication.is_recently_proved(request) or reauthentication.check_password(
        request, request.POST.get("password", "")
    ):
        return {}
    return {"password": reauthentication.WRONG_PASSWORD}


def _render_confirm(
    request: MemberRequest,
    gate: Gate,
    draft: dict[str, str],
    errors: dict[str, str],
    *,
    other: str = "",
) -> HttpResponse:
    """Render the confirm page.

    It names its draft, since a second window may begin another.
    """
    step_up = _required_step_up(gate, draft)
    gate_url = reverse("gate", args=[gate.id])
    context = {
        "gate": gate,
        "effect": gate.effect,
        "card": card.build_card(gate),
        "draft": draft,
        "verb": labels.VOTE_ANSWER_LABELS[draft["answer"]][1],
        "typing": step_up == "typed_digest",
        "password": step_up != "none" and not reauthentication.is_recently_proved(request),
        "code": card.confirmation_code(gate.effect.intent_digest),
        "back": f"{_list_url(draft['list'])}open={gate.id}"
        if draft["from"] == "inbox"
        else gate_url,
        "errors": errors,
        "typed": request.POST.get("code", "")[:8] if not other else "",
        "digest": drafts.draft_digest(draft),
        "other": other,
    }
    return render(
        request, "approvals/confirm.html", context, status=409 if other else 422 if errors else 200
    )


def _record_vote(
    request: MemberRequest, gate: Gate, draft: dict[str, str], step_up: str
) -> HttpResponse:
    shown = form_token.verify_gate_snapshot(draft["seen"], gate, request.membership)
    if shown is None:
        return render_refusal(request, gate.id, STALE_VOTE_FORM, reason=draft["reason"])
    next_gate = queries.find_next_gate(request.membership, gate)
    outcome = run_vote(
        lambda: votes.cast_vote(
            gate,
            request.membership,
            draft["answer"],
            draft["reason"],
            shown.shown,
            step_up=step_up,
            password_at_us=reauthentication.password_given_at_us(request)
            if step_up != "none"
            else None,
        )
    )
    request.session.pop(drafts.draft_key(gate), None)
    if outcome.refusal is not None:
        now = load_gate_of_request(request, gate.id)
        differences = (
            form_token.diff_snapshot(shown, now, card.build_card(now))
            if outcome.refusal[0] == "stale_view"
            else ()
        )
        return render_refusal(
            request, gate.id, outcome.refusal, reason=draft["reason"], differences=differences
        )
    position = outcome.vote.position if outcome.vote is not None else 0
    gate_url = reverse("gate", args=[gate.id])
    message = format_markup(
        'Your answer on <a href="{}">{}</a> is recorded as entry {}: ',
        gate_url,
        str(gate),
        str(position),
    )
    message += format_markup("{}.", _status_label(outcome))
    if draft["from"] == "inbox":
        messages.success(request, message)
        return redirect(f"{_list_url(draft['list'])}open={next_gate or 'none'}")
    next_gate = next_gate or queries.find_first_gate(request.membership)
    if next_gate is not None:
        message += format_markup(
            ' <a href="{}">Next request</a>', reverse("gate", args=[next_gate])
        )
    messages.success(request, message)
    return redirect("gate", gate=gate.id)


def _status_label(outcome: VoteResult) -> str:
    if outcome.gate.status == "pending":
        return "more approvals are needed"
    return labels.STATUS_LABELS[outcome.gate.status][0]


def _list_url(filters: str) -> str:
    """Return the URL of an answer's list, ready for one more parameter."""
    query = drafts.parse_filters(filters)
    return f"{reverse('inbox')}?{query}&" if query else f"{reverse('inbox')}?"
