"""Deciding: every answer is a POST with the proof of what its page showed, and ends in a redirect or says what was new.

An answer that needs more than a click, or comes from a page without script, goes through the confirm page; what was
typed waits in the sign-in's session meanwhile.
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

LONGEST: Final = rulings.MOST_REASON + 1  # of a field: one more than is accepted, so that the verb says so
STALE: Final = (
    "stale_view",
    "This form was not made for you, or more than twelve hours ago. Look at what is here, then answer.",
)
CHANGED: Final = ("stale_view", "The gate changed since your page was made. Look at what is new, then answer.")
GONE: Final = (
    "stale_view",
    "The answer that your page asked about waits no more: it was given, or dropped, from another page. "
    "What is recorded stands below.",
)
OTHER: Final = (
    "Nothing was recorded. Your page asked about another answer than the one begun last, perhaps in a second window. "
    "The one begun last is shown here."
)
HIDDEN: Final = ("not_seen", "Tick that you have seen the hidden characters; without that it cannot be approved.")
UNREAD: Final = ("not_seen", "Tick that you have read all of it; without that it cannot be approved.")


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def answer(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Take an answer from the page of a gate: decide at once, or go on to the confirm page.

    A refused answer is shown under this address; whoever loads it again finds the page of the gate, with their words.
    """
    found = gate_of(request, gate)
    if request.method != "POST":
        return redirect("gate", gate=found.id)
    draft = _draft(request)
    refused = _unfit(request, found, draft)
    if refused is not None:
        return refused
    if not request.POST.get("settled") or _step_up(found, draft) != "none":
        request.session[drafts.key(found)] = draft
        return redirect("gate_confirm", gate=found.id)
    return _decide(request, found, draft, "none")


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def confirm(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Ask once more, naming exactly what would run; a yes to what is dangerous takes the code and a password."""
    found = gate_of(request, gate)
    draft = request.session.get(drafts.key(found))
    if draft is None or not draft["answer"]:  # none, or one that was only kept
        return redirect("gate", gate=found.id) if request.method != "POST" else refusal(request, found.id, GONE)
    if request.method != "POST":
        return (_unfit(request, found, draft) if found.status != "pending" else None) or _confirm(
            request, found, draft, {}
        )
    if request.POST.get("seen_draft", "") != drafts.digest(draft):
        return _confirm(request, found, draft, {}, other=OTHER)
    refused = _unfit(request, found, draft)
    if refused is not None:
        return refused
    step_up = _step_up(found, draft)
    errors = _unproved(request, found, step_up)
    if errors:
        return _confirm(request, found, draft, errors)
    return _decide(request, found, draft, step_up)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def extend(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Give everybody a quarter of an hour more. What was typed and ticked for an answer meanwhile is kept."""
    found = gate_of(request, gate)
    if request.method != "POST":
        return redirect("gate", gate=found.id)
    draft = _draft(request) | {"answer": ""}
    outcome = ruled(lambda: rulings.extend(found, request.membership))
    if outcome.refusal is not None:
        return refusal(request, found.id, outcome.refusal, reason=draft["reason"], ticked=_ticked(draft))
    if draft["reason"] or _ticked(draft):
        request.session[drafts.key(found)] = draft
    messages.success(request, "Open for 15 minutes more. It is recorded.")
    if request.POST.get("from") == "inbox":
        return redirect(f"{_list(request.POST.get('list', ''))}open={found.id}")
    return redirect("gate", gate=found.id)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def revoke(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Ask for a reason, then take back leave that was not used yet."""
    found = gate_of(request, gate)
    if request.method != "POST":
        context = {"gate": found, "effect": found.effect, "reason": drafts.reason(request, found)}
        return render(request, "approvals/revoke.html", context)
    reason = request.POST.get("reason", "")
    outcome = ruled(lambda: rulings.revoke(found, request.membership, reason))
    if outcome.refusal is not None:
        return refusal(request, found.id, outcome.refusal, reason=reason)
    request.session.pop(drafts.key(found), None)
    messages.success(request, "The leave is revoked; the agent is told at its next request.")
    return redirect("gate", gate=found.id)


def ruled(verb: Callable[[], Outcome]) -> Outcome:
    """Run a verb in a transaction of its own, and again when somebody else moved the gate meanwhile."""
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
    """The page of the gate as it is now, with what was refused, what is new, and the reason as it was typed.

    The reason is kept: whoever loads the page again, from this address or its own, finds it there.
    """
    found = gate_of(request, gate)
    if refused is not GONE:  # which was sent without words
        drafts.keep(request, found, reason)
    more = {"refused": refused, "differences": differences, "reason": reason, "ticked": ticked}
    return render(request, "approvals/gate.html", facts_of(request, found, **more), status=409)


def _unfit(request: MemberRequest, gate: Gate, draft: dict[str, str]) -> HttpResponse | None:
    """What speaks against an answer before the verb is asked: the form, its ticks, a missing reason."""
    shown = seen.read(draft["seen"], gate, request.membership)
    refused, differences = None, []
    now = card.of(gate)
    if shown is None or draft["answer"] not in ANSWERS:
        refused = STALE
    elif gate.status != "pending":
        # Before anything more is asked: whoever is asked for code and password expects that they decide something.
        refused = rulings.ended(gate)
    elif gate.status == "pending" and _is_stale(shown, gate, now):
        refused, differences = CHANGED, seen.differences(shown, gate, now)
    elif draft["answer"] == "approve" and now.hidden and not draft["hidden_seen"]:
        refused = HIDDEN
    elif draft["answer"] == "approve" and now.long and not draft["all_read"]:
        refused = UNREAD
    elif gate.status == "pending" and not draft["reason"].strip() and rulings.needs_reason(gate, draft["answer"]):
        refused = ("rationale_required", f"Say why: {words.ANSWERS[draft['answer']][1].lower()} needs a reason here.")
    if refused is None:
        return None
    ticked = () if refused in (STALE, CHANGED) else _ticked(draft)
    return refusal(request, gate.id, refused, reason=draft["reason"], differences=differences, ticked=ticked)


def _draft(request: MemberRequest) -> dict[str, str]:
    """What the form of a gate sent."""
    return {name: request.POST.get(name, "")[:LONGEST] for name in drafts.FIELDS}


def _ticked(draft: dict[str, str]) -> list[str]:
    return [name for name in drafts.TICKS if draft[name]]


def _is_stale(shown: Seen, gate: Gate, now: card.Card) -> bool:
    one = shown.shown
    return (one.version, one.digest, one.card_sha256) != (gate.version, gate.digest, now.sha256)


def _step_up(gate: Gate, draft: dict[str, str]) -> str:
    """The proof that this answer takes: only a yes takes any."""
    return rulings.asks(gate).step_up if draft["answer"] == "approve" else "none"


def _unproved(request: MemberRequest, gate: Gate, step_up: str) -> dict[str, str]:
    """What is wrong with the code or the password, by field; the password is not asked while the code is wrong."""
    if step_up == "none":
        return {}
    code = request.POST.get("code", "").strip().lower()
    if step_up == "typed_digest" and not hmac.compare_digest(
        code.encode(), card.code(gate.effect.intent_digest).encode()
    ):
        return {"code": "This is not the code of the intent that is shown above."}
    if proof.fresh(request) or proof.prove(request, request.POST.get("password", "")):
        return {}
    return {
        "password": "This is not your password. After five wrong ones your name is closed for a quarter of an hour."
    }


def _confirm(
    request: MemberRequest, gate: Gate, draft: dict[str, str], errors: dict[str, str], *, other: str = ""
) -> HttpResponse:
    """The page that asks once more. It says of what draft it asks, since a second window may begin another."""
    step_up = _step_up(gate, draft)
    here = reverse("gate", args=[gate.id])
    context = {
        "gate": gate,
        "effect": gate.effect,
        "card": card.of(gate),
        "draft": draft,
        "verb": words.ANSWERS[draft["answer"]][1],
        "typing": step_up == "typed_digest",
        "password": step_up != "none" and not proof.fresh(request),
        "code": card.code(gate.effect.intent_digest),
        "back": f"{_list(draft['list'])}open={gate.id}" if draft["from"] == "inbox" else here,
        "errors": errors,
        "typed": request.POST.get("code", "")[:8] if not other else "",
        "digest": drafts.digest(draft),
        "other": other,
    }
    return render(request, "approvals/confirm.html", context, status=409 if other else 422 if errors else 200)


def _decide(request: MemberRequest, gate: Gate, draft: dict[str, str], step_up: str) -> HttpResponse:
    shown = seen.read(draft["seen"], gate, request.membership)
    if shown is None:
        return refusal(request, gate.id, STALE, reason=draft["reason"])
    onward = inbox.following(request.membership, gate)
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
        differences = seen.differences(shown, now, card.of(now)) if outcome.refusal[0] == "stale_view" else ()
        return refusal(request, gate.id, outcome.refusal, reason=draft["reason"], differences=differences)
    position = outcome.vote.position if outcome.vote is not None else 0
    here = reverse("gate", args=[gate.id])
    said = markup('Your answer on <a href="{}">{}</a> is recorded at position {}: ', here, str(gate), str(position))
    said += markup("{}.", _became(outcome))
    if draft["from"] == "inbox":
        messages.success(request, said)
        return redirect(f"{_list(draft['list'])}open={onward or 'none'}")
    onward = onward or inbox.first(request.membership)
    if onward is not None:
        said += markup(' <a href="{}">Next request</a>', reverse("gate", args=[onward]))
    messages.success(request, said)
    return redirect("gate", gate=gate.id)


def _became(outcome: Outcome) -> str:
    if outcome.gate.status == "pending":
        return "it waits for others"
    return words.STATUSES[outcome.gate.status][0]


def _list(filters: str) -> str:
    """The list that an answer came from, ready for one thing more in its query."""
    query = drafts.filters(filters)
    return f"{reverse('inbox')}?{query}&" if query else f"{reverse('inbox')}?"
