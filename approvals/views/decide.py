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

from approvals import card, gates, inbox, proof, rulings, seen, words
from approvals.models import Gate
from approvals.rulings import Outcome
from approvals.seen import Seen
from approvals.states import ANSWERS
from approvals.views import drafts
from approvals.views.desk import facts_of, gate_of
from journal import again
from journal.untrusted import markup
from sessions.access import MemberRequest, requires

LONGEST: Final = (
    rulings.MOST_REASON + 1
)  # one character more than rulings accepts, so that it refuses
STALE: Final = (
    "stale_view",
    "This form is not yours or is older than 12 hours. Review the request below, then answer.",
)
CHANGED: Final = (
    "stale_view",
    "The request changed after you opened it. Review what changed, then answer.",
)
GONE: Final = (
    "stale_view",
    "This draft was already submitted or discarded in another tab. "
    "The page below shows what is recorded.",
)
OTHER: Final = (
    "Nothing was recorded. You began another answer after this page, perhaps in a second window. "
    "Your latest answer is shown here."
)
HIDDEN: Final = (
    "not_seen",
    "To approve, tick that you have seen the hidden characters.",
)
UNREAD: Final = (
    "not_seen",
    "To approve, tick that you have read all lines.",
)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def answer(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Take an answer from a gate page: record the vote, or go to the confirm page.

    A refused answer is shown under this URL. Reloading it returns to the gate page, with the draft.
    """
    gate_row = gate_of(request, gate)
    if request.method != "POST":
        return redirect("gate", gate=gate_row.id)
    draft = _read_draft(request)
    refused = _validate_draft(request, gate_row, draft)
    if refused is not None:
        return refused
    if not request.POST.get("settled") or _required_step_up(gate_row, draft) != "none":
        request.session[drafts.key(gate_row)] = draft
        return redirect("gate_confirm", gate=gate_row.id)
    return _record_vote(request, gate_row, draft, "none")


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def confirm(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show what would run and ask to confirm, with code and password if required."""
    gate_row = gate_of(request, gate)
    draft = request.session.get(drafts.key(gate_row))
    if draft is None or not draft["answer"]:  # no draft, or only a kept reason
        return (
            redirect("gate", gate=gate_row.id)
            if request.method != "POST"
            else refusal(request, gate_row.id, GONE)
        )
    if request.method != "POST":
        return (
            _validate_draft(request, gate_row, draft) if gate_row.status != "pending" else None
        ) or _render_confirm(request, gate_row, draft, {})
    if request.POST.get("seen_draft", "") != drafts.digest(draft):
        return _render_confirm(request, gate_row, draft, {}, other=OTHER)
    refused = _validate_draft(request, gate_row, draft)
    if refused is not None:
        return refused
    step_up = _required_step_up(gate_row, draft)
    errors = _check_step_up(request, gate_row, step_up)
    if errors:
        return _render_confirm(request, gate_row, draft, errors)
    return _record_vote(request, gate_row, draft, step_up)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def extend(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Extend the deadline by 15 minutes. The draft of an answer is kept."""
    gate_row = gate_of(request, gate)
    if request.method != "POST":
        return redirect("gate", gate=gate_row.id)
    draft = _read_draft(request) | {"answer": ""}
    outcome = ruled(lambda: rulings.extend(gate_row, request.membership))
    if outcome.refusal is not None:
        return refusal(
            request,
            gate_row.id,
            outcome.refusal,
            reason=draft["reason"],
            ticked=_ticked_names(draft),
        )
    if draft["reason"] or _ticked_names(draft):
        request.session[drafts.key(gate_row)] = draft
    messages.success(request, "Extended by 15 minutes.")
    if request.POST.get("from") == "inbox":
        return redirect(f"{_list_url(request.POST.get('list', ''))}open={gate_row.id}")
    return redirect("gate", gate=gate_row.id)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def revoke(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Ask for a reason, then revoke an approval that has not been used."""
    gate_row = gate_of(request, gate)
    if request.method != "POST":
        context = {
            "gate": gate_row,
            "effect": gate_row.effect,
            "reason": drafts.reason(request, gate_row),
        }
        return render(request, "approvals/revoke.html", context)
    reason = request.POST.get("reason", "")
    outcome = ruled(lambda: rulings.revoke(gate_row, request.membership, reason))
    if outcome.refusal is not None:
        return refusal(request, gate_row.id, outcome.refusal, reason=reason)
    request.session.pop(drafts.key(gate_row), None)
    messages.success(request, "Approval revoked. The agent is informed at its next request.")
    return redirect("gate", gate=gate_row.id)


def ruled(verb: Callable[[], Outcome]) -> Outcome:
    """Run `verb` in its own transaction; retry if the gate changed concurrently."""
    return again.durably(verb, gates.Gone)


def refusal(
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
    gate_row = gate_of(request, gate)
    if refused is not GONE:  # sent without a reason
        drafts.keep(request, gate_row, reason)
    more = {"refused": refused, "differences": differences, "reason": reason, "ticked": ticked}
    return render(request, "approvals/gate.html", facts_of(request, gate_row, **more), status=409)


def _validate_draft(
    request: MemberRequest, gate: Gate, draft: dict[str, str]
) -> HttpResponse | None:
    """Refuse an answer that fails a check of its form: token, ticks, missing reason."""
    shown = seen.read(draft["seen"], gate, request.membership)
    refused, differences = None, []
    now = card.of(gate)
    if shown is None or draft["answer"] not in ANSWERS:
        refused = STALE
    elif gate.status != "pending":
        # Refuse before asking for code and password: people who give them expect a recorded vote.
        refused = rulings.ended(gate)
    elif gate.status == "pending" and _is_stale(shown, gate, now):
        refused, differences = CHANGED, seen.differences(shown, gate, now)
    elif draft["answer"] == "approve" and now.hidden and not draft["hidden_seen"]:
        refused = HIDDEN
    elif draft["answer"] == "approve" and now.long and not draft["all_read"]:
        refused = UNREAD
    elif (
        gate.status == "pending"
        and not draft["reason"].strip()
        and rulings.needs_reason(gate, draft["answer"])
    ):
        refused = (
            "rationale_required",
            f"Add a reason to {words.ANSWERS[draft['answer']][1].lower()}.",
        )
    if refused is None:
        return None
    ticked = () if refused in (STALE, CHANGED) else _ticked_names(draft)
    return refusal(
        request, gate.id, refused, reason=draft["reason"], differences=differences, ticked=ticked
    )


def _read_draft(request: MemberRequest) -> dict[str, str]:
    """Return the submitted fields of the form."""
    return {name: request.POST.get(name, "")[:LONGEST] for name in drafts.FIELDS}


def _ticked_names(draft: dict[str, str]) -> list[str]:
    return [name for name in drafts.TICKS if draft[name]]


def _is_stale(shown: Seen, gate: Gate, now: card.Card) -> bool:
    page = shown.shown
    return (page.version, page.digest, page.card_sha256) != (gate.version, gate.digest, now.sha256)


def _required_step_up(gate: Gate, draft: dict[str, str]) -> str:
    """Return the step-up this answer needs; only approvals need any."""
    return rulings.asks(gate).step_up if draft["answer"] == "approve" else "none"


def _check_step_up(request: MemberRequest, gate: Gate, step_up: str) -> dict[str, str]:
    """Return what is wrong with code or password, by field; the code is checked first."""
    if step_up == "none":
        return {}
    code = request.POST.get("code", "").strip().lower()
    if step_up == "typed_digest" and not hmac.compare_digest(
        code.encode(), card.code(gate.effect.intent_digest).encode()
    ):
        return {"code": proof.WRONG_CODE}
    if proof.fresh(request) or proof.prove(request, request.POST.get("password", "")):
        return {}
    return {"password": proof.WRONG_PASSWORD}


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
        "card": card.of(gate),
        "draft": draft,
        "verb": words.ANSWERS[draft["answer"]][1],
        "typing": step_up == "typed_digest",
        "password": step_up != "none" and not proof.fresh(request),
        "code": card.code(gate.effect.intent_digest),
        "back": f"{_list_url(draft['list'])}open={gate.id}"
        if draft["from"] == "inbox"
        else gate_url,
        "errors": errors,
        "typed": request.POST.get("code", "")[:8] if not other else "",
        "digest": drafts.digest(draft),
        "other": other,
    }
    return render(
        request, "approvals/confirm.html", context, status=409 if other else 422 if errors else 200
    )


def _record_vote(
    request: MemberRequest, gate: Gate, draft: dict[str, str], step_up: str
) -> HttpResponse:
    shown = seen.read(draft["seen"], gate, request.membership)
    if shown is None:
        return refusal(request, gate.id, STALE, reason=draft["reason"])
    next_gate = inbox.following(request.membership, gate)
    outcome = ruled(
        lambda: rulings.answer(
            gate,
            request.membership,
            draft["answer"],
            draft["reason"],
            shown.shown,
            step_up=step_up,
            password_at_us=proof.given_at_us(request) if step_up != "none" else None,
        )
    )
    request.session.pop(drafts.key(gate), None)
    if outcome.refusal is not None:
        now = gate_of(request, gate.id)
        differences = (
            seen.differences(shown, now, card.of(now)) if outcome.refusal[0] == "stale_view" else ()
        )
        return refusal(
            request, gate.id, outcome.refusal, reason=draft["reason"], differences=differences
        )
    position = outcome.vote.position if outcome.vote is not None else 0
    gate_url = reverse("gate", args=[gate.id])
    message = markup(
        'Your answer on <a href="{}">{}</a> is recorded as entry {}: ',
        gate_url,
        str(gate),
        str(position),
    )
    message += markup("{}.", _status_label(outcome))
    if draft["from"] == "inbox":
        messages.success(request, message)
        return redirect(f"{_list_url(draft['list'])}open={next_gate or 'none'}")
    next_gate = next_gate or inbox.first(request.membership)
    if next_gate is not None:
        message += markup(' <a href="{}">Next request</a>', reverse("gate", args=[next_gate]))
    messages.success(request, message)
    return redirect("gate", gate=gate.id)


def _status_label(outcome: Outcome) -> str:
    if outcome.gate.status == "pending":
        return "more approvals are needed"
    return words.STATUSES[outcome.gate.status][0]


def _list_url(filters: str) -> str:
    """Return the URL of an answer's list, ready for one more parameter."""
    query = drafts.filters(filters)
    return f"{reverse('inbox')}?{query}&" if query else f"{reverse('inbox')}?"
