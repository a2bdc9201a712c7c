"""Pages on which a person resolves an effect of unknown outcome: form, then confirmation."""

from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts.access import MemberRequest, role_required
from approvals import confirmation
from approvals.confirmation import GivenProof
from approvals.gates import resolution as gates_resolution
from approvals.policies import policy_evaluation
from approvals.review import card
from db.clock import now_us
from display import effect_headline
from ledger import resolutions, violations
from ledger.models import Effect
from ledger.refusals import Refusal
from ledger.resolutions import ResolutionInput, ResolvePrompt
from ledger.tools import cache
from ledger.verdicts.table import Verdict, VerdictInput
from pages.effects import data
from pages.effects import resolve as effects_resolve
from pages.effects.resolve import ANSWERS, RESOLUTION_FORM, EffectSnapshot
from pages.effects.views import load_effect_or_404
from web.untrusted_text import format_markup

STALE_FORM: Final = Refusal(
    "stale_view",
    "The form to resolve this effect is more than 12 hours old or belongs to someone else."
    " Check this page, then answer.",
)
DRAFT_GONE: Final = Refusal("stale_view", confirmation.DRAFT_GONE)
_FIELD_OF: Final = {
    "rationale_required": "rationale",
    "reference": "reference",
    "evidence": "evidence",
}


class ResolveContext(NamedTuple):
    """An effect, its verdict, and the draft of an answer about it.

    `shown` is None if the token of the draft's page is not valid.
    """

    effect: Effect
    draft: dict[str, str]
    shown: EffectSnapshot | None
    case: VerdictInput
    verdict: Verdict
    prompt: ResolvePrompt
    step_up: str


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def resolve_effect_page(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Show what is known of the effect, and the form; POST opens the confirmation."""
    row = load_effect_or_404(request, effect)
    if row.imported:
        return _redirect_imported(request, row)
    if request.method != "POST":
        draft = RESOLUTION_FORM.load_draft(request, row.id) or {}
        return _render_form(request, _load_resolve_context(request, row, draft))
    context = _load_resolve_context(request, row, RESOLUTION_FORM.read_draft(request))
    refusal = decide_resolution_draft(context)
    if refusal is not None:
        return _render_form(request, context, refusal)
    RESOLUTION_FORM.store_draft(request, row.id, context.draft)
    return redirect("resolve_confirm", effect=row.id)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def confirm_resolution(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Confirm the answer; irreversible effects need intent code and password."""
    row = load_effect_or_404(request, effect)
    if row.imported:
        return _redirect_imported(request, row)
    draft = RESOLUTION_FORM.load_draft(request, row.id)
    if draft is None:
        if request.method != "POST":
            return redirect("resolve", effect=row.id)
        return _render_form(request, _load_resolve_context(request, row, {}), DRAFT_GONE)
    if request.method != "POST":
        return _render_confirmation(request, row, draft)
    if not RESOLUTION_FORM.is_shown_draft(request, draft):
        return _render_confirmation(request, row, draft, other=True)
    context = _load_resolve_context(request, row, draft)
    refusal = decide_resolution_draft(context)
    if refusal is not None:
        RESOLUTION_FORM.discard_draft(request, row.id)
        return _render_form(request, context, refusal)
    proof = confirmation.check_step_up(request, context.step_up, _code(row))
    if proof.errors:
        return _render_confirmation(request, row, draft, errors=proof.errors)
    return _record_resolution(request, context, proof)


def _redirect_imported(request: MemberRequest, row: Effect) -> HttpResponse:
    messages.error(request, resolutions.IMPORTED_EFFECT)
    return redirect("effect", effect=row.id)


def _record_resolution(
    request: MemberRequest, context: ResolveContext, proof: GivenProof
) -> HttpResponse:
    """Record an accepted and confirmed draft, and answer with the effect or the refusal."""
    row, draft = context.effect, context.draft
    RESOLUTION_FORM.discard_draft(request, row.id)
    if context.shown is None:
        return _render_form(request, context, STALE_FORM)
    resolution = replace(
        _resolution_from_draft(context, context.shown),
        password_at_us=proof.password_at_us,
        password_for=proof.password_for,
    )
    resolved = gates_resolution.resolve_effect(row.id, request.membership, resolution)
    if resolved.refusal is not None:
        current = load_effect_or_404(request, row.id)
        return _render_form(
            request, _load_resolve_context(request, current, draft), resolved.refusal
        )
    url = reverse("effect", args=[row.id])
    text = 'Your answer on <a href="{}">{}</a> was recorded in entry #{}: {}.'
    messages.success(
        request,
        format_markup(text, url, str(row), str(resolved.position), ANSWERS[resolution.answer][1]),
    )
    return redirect("effect", effect=row.id)


def _resolution_from_draft(context: ResolveContext, shown: EffectSnapshot) -> ResolutionInput:
    draft = context.draft
    return ResolutionInput(
        answer=draft["answer"],
        rationale=draft["rationale"].strip(),
        seen_version=shown.version,
        reference=draft["reference"].strip(),
        evidence=draft["evidence"].strip(),
        insists=bool(draft["insists"]),
        step_up=context.step_up,
    )


def _load_resolve_context(
    request: MemberRequest, row: Effect, draft: dict[str, str]
) -> ResolveContext:
    """Load what decides whether a draft is acceptable, as of now and without locks."""
    now = now_us()
    case, verdict = resolutions.evaluate_effect(row, now)
    return ResolveContext(
        effect=row,
        draft=draft,
        shown=effects_resolve.verify_snapshot(draft.get("seen", ""), row, request.membership),
        case=case,
        verdict=verdict,
        prompt=resolutions.evaluate_prompt(case, verdict, row.deadline_us, now),
        step_up=_load_step_up(row),
    )


def decide_resolution_draft(context: ResolveContext) -> Refusal | None:
    """Refuse a draft whose page is not valid, or that the command would refuse now. Pure."""
    if context.shown is None:
        return STALE_FORM
    return resolutions.decide_resolution(
        context.effect.version, context.prompt, _resolution_from_draft(context, context.shown)
    )


def _render_form(
    request: MemberRequest, context: ResolveContext, refused: Refusal | None = None
) -> HttpResponse:
    """Show the effect, the form and the draft; with a refusal also what changed."""
    row, prompt = context.effect, context.prompt
    status = (
        200 if refused is None else 422 if refused.code in (*_FIELD_OF, "answer", "insist") else 409
    )
    now = now_us()
    attempts, attempt_total = data.load_attempts_for_page(row)
    compensations, children = data.load_related_effects(row)
    values = {
        "effect": row,
        "headline": effect_headline.effect_headline(row, attempts, attempt_total, now),
        "verdict": context.verdict,
        "case": context.case,
        "prompt": prompt,
        "answers": [(name, *ANSWERS[name]) for name in prompt.only],
        "draft": context.draft,
        "refused": refused,
        "wrong": _FIELD_OF.get(refused.code, refused.code) if refused is not None else "",
        "differences": effects_resolve.snapshot_differences(context.shown, row, context.verdict)
        if refused is not None and context.shown is not None
        else (),
        "resolutions": resolutions.load_resolutions(row),
        "later_evidence": effects_resolve.load_later_evidence(row),
        "attempts": attempts,
        "attempts_in_all": attempt_total,
        "tool": data.load_tool_declaration(row),
        "final": context.step_up != "none",
        "exchange": data.load_exchange(row, attempts),
        "undoing": compensations,
        "children": children,
        "gates": data.load_gates_of_effect(row),
        "violations": violations.load_effect_violations(row),
        "token": effects_resolve.sign_snapshot(row, context.verdict, request.membership),
        "least": resolutions.MIN_RATIONALE,
        "most": resolutions.MAX_RATIONALE,
    }
    return render(request, "pages/effects/resolve.html", values, status=status)


def _render_confirmation(
    request: MemberRequest,
    row: Effect,
    draft: dict[str, str],
    *,
    errors: dict[str, str] | None = None,
    other: bool = False,
) -> HttpResponse:
    attempts, _ = data.load_attempts_for_page(row)
    step_up = _load_step_up(row)
    return confirmation.render_confirm_page(
        request,
        "pages/effects/resolve_confirm.html",
        RESOLUTION_FORM,
        draft,
        step_up,
        _code(row),
        {
            "effect": row,
            "exchange": data.load_exchange(row, attempts),
            "title": ANSWERS[draft["answer"]][0],
            "does": ANSWERS[draft["answer"]][2],
            "final": step_up != "none",
        },
        errors=errors,
        other=other,
    )


def _load_step_up(row: Effect) -> str:
    """Return the step-up of an answer.

    Only tools that the operator declared irreversible, also by these arguments, or did not declare,
    need any.
    """
    declaration = cache.load_tool(row.project_id, row.tool)
    if declaration.raises:
        plan = policy_evaluation.load_plan_body(row.plan_position)
        declaration = declaration.raise_by_arguments(policy_evaluation.get_plan_arguments(plan))
    if declaration.reversibility != "irreversible":
        return "none"
    return "typed_digest" if row.intent_digest else "reauth"


def _code(row: Effect) -> str:
    return card.confirmation_code(row.intent_digest)
