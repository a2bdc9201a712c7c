"""Vote on a request, extend its deadline, revoke its approval.

Every vote is a POST with a signed token of what the page showed. It ends in a redirect, or in a
page that shows what changed. A vote that needs a step-up, or comes from a page without script,
goes through the confirm page. `approvals/confirmation.py` keeps its draft until then.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts.access import MemberRequest, role_required
from approvals import confirmation, labels
from approvals.checks.check_results import CheckResult
from approvals.confirmation import GivenProof
from approvals.gates import gates
from approvals.gates.statuses import UNDO_S, VOTE_ANSWERS
from approvals.inbox import inbox_queries
from approvals.inbox.inbox_queries import ListFilters, NextRequest
from approvals.models import Gate
from approvals.policies import policy_evaluation
from approvals.policies.engine import Requirement
from approvals.review import card, changed_requests, form_token
from approvals.review.form_token import TICK_NAMES, VOTE_FORM, PageSnapshot
from approvals.review.shown_checks import Finding, arrange_checks
from approvals.views import drafts
from approvals.views.gate import gate_context, load_gate_of_request
from approvals.voting import undo, votes
from approvals.voting.eligibility import load_current_requirement
from approvals.voting.votes import (
    CHANGED_GATE,
    HIDDEN_NOT_SEEN,
    LINES_NOT_READ,
    STALE_VOTE_FORM,
    VoteResult,
)
from approvals.voting.warned_proof import (
    MAX_TYPED_CHARACTERS,
    ApprovalProof,
    decide_approval_proof,
    find_unseen_warnings,
    find_wrong_names,
    load_request_checks,
)
from db import retry
from web.untrusted_text import format_markup

VOTE_DRAFT_GONE: Final = (
    "stale_view",
    f"{confirmation.DRAFT_GONE} The page below shows what is recorded.",
)


class DraftContext(NamedTuple):
    """A draft and what decides whether its form is acceptable now.

    `shown` is None if the token of the page is not valid. `ended` is why the gate takes no votes.
    `checks` are the results of the request's checks, as of now.
    """

    gate: Gate
    draft: dict[str, str]
    shown: PageSnapshot | None
    card: card.Card
    requirement: Requirement
    ended: tuple[str, str] | None
    checks: tuple[CheckResult, ...]

    @property
    def proof(self) -> ApprovalProof:
        """The proof that the answer needs; only approvals need any."""
        if self.draft["answer"] != "approve":
            return ApprovalProof("none")
        return decide_approval_proof(self.requirement, self.checks)

    @property
    def step_up(self) -> str:
        """The step-up that the answer needs."""
        return self.proof.step_up

    @property
    def is_warned(self) -> bool:
        """True for an approval despite a warning: the confirm page repeats the warnings."""
        return self.draft["answer"] == "approve" and any(
            result.is_warning for result in self.checks
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
    context = load_draft_context(request, gate_row, VOTE_FORM.read_draft(request))
    refusal = decide_vote_draft(context)
    if refusal is not None:
        return _render_draft_refusal(request, context, refusal)
    if not request.POST.get("settled") or context.step_up != "none" or context.is_warned:
        VOTE_FORM.store_draft(request, gate_row.id, context.draft)
        return redirect("gate_confirm", gate=gate_row.id)
    return _record_vote(request, context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def confirm_vote_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show what would run and ask to confirm, with code and password if required.

    A poll (`since`) gets 204 while the answer could be recorded, otherwise why not. A POST is
    refused for the same reasons before its password is read.
    """
    gate_row = load_gate_of_request(request, gate)
    draft = VOTE_FORM.load_draft(request, gate_row.id)
    is_poll = request.headers.get("HX-Request") == "true" and "since" in request.GET
    if draft is None or not draft["answer"]:  # no draft, or only a kept reason
        if is_poll:
            return _render_ended_form(request, gate_row, VOTE_DRAFT_GONE)
        if request.method != "POST":
            return redirect("gate", gate=gate_row.id)
        return render_refusal(request, gate_row.id, VOTE_DRAFT_GONE)
    context = load_draft_context(request, gate_row, draft)
    refusal = decide_vote_draft(context)
    if is_poll:
        if refusal is None:
            return HttpResponse(status=204)
        return _render_ended_form(request, gate_row, refusal)
    if request.method != "POST":
        # A changed request is refused after the POST: the confirm page shows what would run now.
        if refusal is not None and gate_row.status != "pending":
            return _render_draft_refusal(request, context, refusal)
        form_token.record_gate_view(gate_row, request.membership)
        return _render_confirm(request, context)
    if not VOTE_FORM.is_shown_draft(request, draft):
        return _render_confirm(request, context, other=True)
    if refusal is not None:
        return _render_draft_refusal(request, context, refusal)
    names = context.proof.names
    wrong_names = find_wrong_names(names, _read_names(request, len(names)))
    if wrong_names:
        return _render_confirm(request, context, wrong_names=wrong_names)
    proof = confirmation.check_step_up(request, context.step_up, _code(gate_row))
    if proof.errors:
        return _render_confirm(request, context, errors=proof.errors)
    return _record_vote(request, context, proof)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def extend_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Extend the deadline by 15 minutes. The draft of an answer is kept."""
    gate_row = load_gate_of_request(request, gate)
    if request.method != "POST":
        return redirect("gate", gate=gate_row.id)
    draft = VOTE_FORM.read_draft(request) | {"answer": ""}
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
        VOTE_FORM.store_draft(request, gate_row.id, draft)
    messages.success(request, "Extended by 15 minutes.")
    return redirect(drafts.build_form_url(gate_row.id, draft["from"], draft["list"]))


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
        return render(request, "approvals/vote/revoke.html", context)
    reason = request.POST.get("reason", "")
    outcome = run_vote(lambda: votes.revoke_approval(gate_row, request.membership, reason))
    if outcome.refusal is not None:
        return render_refusal(request, gate_row.id, outcome.refusal, reason=reason)
    VOTE_FORM.discard_draft(request, gate_row.id)
    messages.success(request, "Approval revoked. The agent is informed at its next request.")
    return redirect("gate", gate=gate_row.id)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def undo_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Take the person's own answer back, within seconds; go to the request made again.

    The button asks by a poll whether it still works: 204 while it does, else what replaces it.
    """
    gate_row = load_gate_of_request(request, gate)
    if request.method != "POST":
        if request.headers.get("HX-Request") != "true":
            return redirect("gate", gate=gate_row.id)
        state = undo.find_undo_state(gate_row, request.membership.user_id)
        if state == "undoable":
            return HttpResponse(status=204)
        answer = render(request, "approvals/vote/_undo.html", {"undo_state": state})
        if state == "used":
            answer.headers["HX-Trigger"] = "approval-used"  # the request on the page polls at once
        return answer
    outcome = run_vote(lambda: undo.undo_vote(gate_row, request.membership))
    if outcome.refusal is not None:
        messages.error(request, outcome.refusal[1])
        return redirect("gate", gate=gate_row.id)
    text = 'Your answer on <a href="{}">{}</a> is taken back. This is the request, made again.'
    url = reverse("gate", args=[gate_row.id])
    messages.success(request, format_markup(text, url, str(gate_row)))
    return redirect(drafts.build_form_url(outcome.gate.id, drafts.FROM_LIST, ""))


def run_vote(verb: Callable[[], VoteResult]) -> VoteResult:
    """Run `verb` in its own transaction.

    Runs it again after GateConflict (the gate, or who may vote, changed since it was read) and
    where the database requests it, as after a deadlock.
    """
    return retry.run_with_retry(verb, gates.GateConflict)


def render_refusal(
    request: MemberRequest,
    gate: UUID,
    refused: tuple[str, str],
    *,
    reason: str = "",
    differences: Sequence[tuple[str, str, str]] = (),
    ticked: Sequence[str] = (),
) -> HttpResponse:
    """Render the current gate page with refusal, differences and typed reason.

    The reason is kept as a draft: reloading this URL or the gate page shows it.
    """
    gate_row = load_gate_of_request(request, gate)
    if refused is not VOTE_DRAFT_GONE:  # sent without a reason
        drafts.keep_reason(request, gate_row, reason)
    more: dict[str, Any] = {
        "refused": refused,
        "differences": differences,
        "reason": reason,
        "ticked": ticked,
    }
    return render(
        request, "approvals/gate/gate.html", gate_context(request, gate_row, **more), status=409
    )


def load_draft_context(request: MemberRequest, gate: Gate, draft: dict[str, str]) -> DraftContext:
    """Load what decides whether a draft is acceptable, as of now and without locks."""
    plan = policy_evaluation.load_plan_body(gate.plan_position)
    return DraftContext(
        gate=gate,
        draft=draft,
        shown=form_token.verify_gate_snapshot(draft["seen"], gate, request.membership),
        card=card.build_card(gate, plan),
        requirement=load_current_requirement(gate),
        ended=votes.explain_ended_gate(gate) if gate.status != "pending" else None,
        checks=load_request_checks(gate, gate.effect, plan),
    )


def decide_vote_draft(context: DraftContext) -> tuple[str, str] | None:
    """Refuse a draft that fails a check of its form: token, warnings, ticks, reason. Pure.

    A draft about an ended gate is refused before the step-up: people who give code and password
    expect a recorded vote.
    """
    gate, draft, shown, current_card, requirement, ended, checks = context
    if shown is None or draft["answer"] not in VOTE_ANSWERS:
        return STALE_VOTE_FORM
    if ended is not None:
        return ended
    page = shown.shown
    if (page.version, page.digest, page.card_sha256) != (
        gate.version,
        gate.digest,
        current_card.sha256,
    ):
        return CHANGED_GATE
    if draft["answer"] == "approve" and find_unseen_warnings(checks, page.warnings):
        return votes.UNSEEN_WARNING
    if draft["answer"] == "approve" and current_card.hidden and not draft["hidden_seen"]:
        return HIDDEN_NOT_SEEN
    if draft["answer"] == "approve" and current_card.long and not draft["all_read"]:
        return LINES_NOT_READ
    if not draft["reason"].strip() and votes.is_reason_required(requirement, draft["answer"]):
        return "rationale_required", votes.describe_missing_reason(draft["answer"])
    return None


def _render_draft_refusal(
    request: MemberRequest, context: DraftContext, refusal: tuple[str, str]
) -> HttpResponse:
    """Render the refusal of a draft, with what changed; ticks count only for the same page."""
    differences = (
        form_token.diff_snapshot(context.shown, context.gate, context.card, context.checks)
        if refusal in (CHANGED_GATE, votes.UNSEEN_WARNING) and context.shown is not None
        else ()
    )
    return render_refusal(
        request,
        context.gate.id,
        refusal,
        reason=context.draft["reason"],
        differences=differences,
        ticked=() if refusal in (STALE_VOTE_FORM, CHANGED_GATE) else _ticked_names(context.draft),
    )


def _ticked_names(draft: dict[str, str]) -> list[str]:
    return [name for name in TICK_NAMES if draft[name]]


def _code(gate: Gate) -> str:
    return card.confirmation_code(gate.effect.intent_digest)


def _read_names(request: MemberRequest, count: int) -> list[str]:
    """Return the names that the person typed on the confirm page."""
    return [
        request.POST.get(f"name-{number}", "")[:MAX_TYPED_CHARACTERS] for number in range(count)
    ]


def _render_ended_form(
    request: MemberRequest, gate: Gate, refusal: tuple[str, str]
) -> HttpResponse:
    """Render what replaces an open confirm page: why, the successor, and no field."""
    context = {
        "gate": gate,
        "refusal": refusal,
        "successor": changed_requests.find_successor(gate) if gate.status != "pending" else None,
    }
    return render(request, "approvals/vote/_ended.html", context)


def _render_confirm(
    request: MemberRequest,
    context: DraftContext,
    *,
    errors: dict[str, str] | None = None,
    wrong_names: dict[int, str] | None = None,
    other: bool = False,
) -> HttpResponse:
    gate, draft, proof = context.gate, context.draft, context.proof
    typed = [""] * len(proof.names) if other else _read_names(request, len(proof.names))
    refusals = wrong_names or {}
    return confirmation.render_confirm_page(
        request,
        "approvals/vote/confirm.html",
        VOTE_FORM,
        draft,
        context.step_up,
        _code(gate),
        {
            "gate": gate,
            "effect": gate.effect,
            "card": context.card,
            "verb": labels.VOTE_ANSWER_LABELS[draft["answer"]][1],
            "warnings": [Finding(result, "") for result in context.checks if result.is_warning],
            "review": arrange_checks(context.card, context.checks),
            "warning_count": sum(result.is_warning for result in context.checks),
            "despite": context.is_warned,
            "names": [
                {"number": at, "name": name, "typed": typed[at], "error": refusals.get(at, "")}
                for at, name in enumerate(proof.names)
            ],
            "poll_url": f"{reverse('gate_confirm', args=[gate.id])}?since={gate.version}",
            "back": drafts.build_form_url(gate.id, draft["from"], draft["list"]),
        },
        errors=errors,
        other=other,
        refused=bool(wrong_names),
    )


def _record_vote(
    request: MemberRequest, context: DraftContext, proof: GivenProof | None = None
) -> HttpResponse:
    """Cast the vote of an accepted draft, and answer with the next request or the refusal."""
    gate, draft, shown, step_up = context.gate, context.draft, context.shown, context.step_up
    if shown is None:
        return render_refusal(request, gate.id, STALE_VOTE_FORM, reason=draft["reason"])
    filters = drafts.parse_filters(draft["list"])
    following = inbox_queries.find_next_gate(request.membership, gate, filters)
    outcome = run_vote(
        lambda: votes.cast_vote(
            gate,
            request.membership,
            draft["answer"],
            draft["reason"],
            shown.shown,
            step_up=step_up,
            password_at_us=proof.password_at_us if proof is not None else None,
            password_for=proof.password_for if proof is not None else "",
            typed_names=_read_names(request, len(context.proof.names)),
        )
    )
    VOTE_FORM.discard_draft(request, gate.id)
    if outcome.refusal is not None:
        now = load_gate_of_request(request, gate.id)
        differences = (
            form_token.diff_snapshot(
                shown, now, card.build_card(now), load_request_checks(now, now.effect)
            )
            if outcome.refusal[0] == "stale_view"
            else ()
        )
        return render_refusal(
            request, gate.id, outcome.refusal, reason=draft["reason"], differences=differences
        )
    return redirect_to_next_gate(request, context, outcome, filters, following)


def redirect_to_next_gate(
    request: MemberRequest,
    context: DraftContext,
    outcome: VoteResult,
    filters: ListFilters,
    following: NextRequest | None,
) -> HttpResponse:
    """Report the recorded vote, and go to the next request of the list or back to the gate."""
    gate, draft = context.gate, context.draft
    position = outcome.vote.position if outcome.vote is not None else 0
    message = format_markup(
        'Your answer on <a href="{}">{}</a> is recorded as entry {}: ',
        reverse("gate", args=[gate.id]),
        str(gate),
        str(position),
    )
    message += format_markup("{}. ", _status_label(outcome))
    # The first one; its `count` is of all that wait for this person.
    left = inbox_queries.load_first_requests(request.membership, 1, for_member=True)
    is_listed = draft["from"] in (drafts.FROM_PANE, drafts.FROM_LIST)
    shown_page = filters._replace(after=following.after if following is not None else "")
    query = drafts.format_filters(shown_page)
    list_url = f"{reverse('inbox')}?{query}&open=none" if query else f"{reverse('inbox')}?open=none"
    after = {
        "gate": gate,
        "undo_state": undo.find_undo_state(gate, request.membership.user_id),
        "undo_s": UNDO_S,
        "left": left.count,
        "opens_list": is_listed and following is None,
        "list_url": list_url,
    }
    message += render_to_string("approvals/vote/_after.html", after, request)
    messages.success(request, message)
    if following is not None:
        origin = draft["from"] if is_listed else drafts.FROM_LIST
        return redirect(drafts.build_form_url(following.gate, origin, query))
    return redirect(list_url) if is_listed else redirect("gate", gate=gate.id)


def _status_label(outcome: VoteResult) -> str:
    if outcome.gate.status == "pending":
        return "more approvals are needed"
    if outcome.gate.status == "approved":  # the agent may use it while this is read
        return "approved"
    return labels.STATUS_LABELS[outcome.gate.status][0]
