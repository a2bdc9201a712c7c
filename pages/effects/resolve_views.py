"""Pages on which a person resolves an effect of unknown outcome.

Form, then confirmation.

The draft waits in the login session while the confirmation page is open. A refused draft is shown
again.
"""

import hashlib
import hmac
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts.access import MemberRequest, role_required
from approvals.gates import resolution as gates_resolution
from approvals.review import card
from approvals.voting import reauthentication
from db.clock import now_us
from display import effect_headline
from ledger import resolutions, violations
from ledger.models import Effect
from ledger.permissions import Refusal
from ledger.resolutions import ResolutionInput
from ledger.tools import cache
from pages.effects import data
from pages.effects import resolve as effects_resolve
from pages.effects.resolve import ANSWERS
from pages.effects.views import load_effect_or_404
from web.untrusted_text import format_markup

FIELDS: Final = ("answer", "rationale", "reference", "evidence", "insists", "seen")
# Longest field: one character more than accepted, so that the command reports it.
MAX_FIELD_CHARS: Final = resolutions.MAX_RATIONALE + 1
STALE_FORM: Final = Refusal(
    "stale_view",
    "This form is more than 12 hours old or belongs to someone else. Check this page, then answer.",
)
EFFECT_CHANGED: Final = Refusal(
    "stale_view", "The effect changed after this page was loaded. Check the changes, then answer."
)
DRAFT_GONE: Final = Refusal(
    "stale_view",
    "This draft was already submitted or discarded in another tab.",
)
NO_ANSWER_CHOSEN: Final = Refusal("answer", "Choose one of the answers.")
NEWER_DRAFT: Final = (
    "Nothing was recorded. You started a newer draft, perhaps in another tab. "
    "Check the newer draft shown on this page."
)
_FIELD_OF: Final = {
    "rationale_required": "rationale",
    "reference": "reference",
    "evidence": "evidence",
}


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def resolve_effect_page(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Show what is known of the effect and the form, if people are asked.

    POST opens the confirmation.
    """
    row = load_effect_or_404(request, effect)
    if row.imported:
        return _redirect_imported(request, row)
    if request.method != "POST":
        return _render_form(request, row, request.session.get(_draft_key(row), {}))
    draft = {name: request.POST.get(name, "")[:MAX_FIELD_CHARS] for name in FIELDS}
    refused = _validate_draft(request, row, draft)
    if refused is not None:
        return _render_refusal(request, row, draft, refused)
    request.session[_draft_key(row)] = draft
    return redirect("resolve_confirm", effect=row.id)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def confirm_resolution(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Confirm the answer.

    Irreversible effects also need the intent code and a password.
    """
    row = load_effect_or_404(request, effect)
    if row.imported:
        return _redirect_imported(request, row)
    draft = request.session.get(_draft_key(row))
    if draft is None:
        return (
            redirect("resolve", effect=row.id)
            if request.method != "POST"
            else _render_refusal(request, row, {}, DRAFT_GONE)
        )
    if request.method != "POST":
        return _render_confirmation(request, row, draft, {})
    if not hmac.compare_digest(
        request.POST.get("seen_draft", "").encode(), _draft_digest(draft).encode()
    ):
        return _render_confirmation(request, row, draft, {}, other=NEWER_DRAFT)
    refused = _validate_draft(request, row, draft)
    errors = {} if refused is not None else _check_step_up(request, row)
    if errors:
        return _render_confirmation(request, row, draft, errors)
    del request.session[_draft_key(row)]
    if refused is not None:
        return _render_refusal(request, row, draft, refused)
    return _record_resolution(request, row, draft)


def _redirect_imported(request: MemberRequest, row: Effect) -> HttpResponse:
    messages.error(request, resolutions.IMPORTED_EFFECT)
    return redirect("effect", effect=row.id)


def _record_resolution(request: MemberRequest, row: Effect, draft: dict[str, str]) -> HttpResponse:
    snapshot = effects_resolve.verify_snapshot(draft["seen"], row, request.membership)
    if snapshot is None:
        return _render_refusal(request, row, draft, STALE_FORM)
    step_up = (
        "typed_digest"
        if _is_irreversible(row) and row.intent_digest
        else "reauth"
        if _is_irreversible(row)
        else "none"
    )
    resolution = _resolution_from_draft(draft, snapshot.version, step_up)
    resolved = gates_resolution.resolve_effect(row.id, request.membership, resolution)
    if resolved.refusal is not None:
        return _render_refusal(
            request, load_effect_or_404(request, row.id), draft, resolved.refusal
        )
    url = reverse("effect", args=[row.id])
    text = 'Your answer on <a href="{}">{}</a> was recorded in entry #{}: {}.'
    messages.success(
        request,
        format_markup(text, url, str(row), str(resolved.position), ANSWERS[resolution.answer][1]),
    )
    return redirect("effect", effect=row.id)


def _resolution_from_draft(draft: dict[str, str], version: int, step_up: str) -> ResolutionInput:
    return ResolutionInput(
        answer=draft["answer"],
        rationale=draft["rationale"].strip(),
        seen_version=version,
        reference=draft["reference"].strip(),
        evidence=draft["evidence"].strip(),
        insists=bool(draft["insists"]),
        step_up=step_up,
    )


def _validate_draft(request: MemberRequest, row: Effect, draft: dict[str, str]) -> Refusal | None:
    """Return the reason to refuse a draft before the command runs, or None."""
    snapshot = effects_resolve.verify_snapshot(draft["seen"], row, request.membership)
    if snapshot is None:
        return STALE_FORM
    now = now_us()
    case, verdict = resolutions.evaluate_effect(row, now)
    prompt = resolutions.evaluate_prompt(case, verdict, row.deadline_us, now)
    if snapshot.version != row.version:
        return EFFECT_CHANGED
    if prompt.refused:
        return Refusal("not_asked", prompt.refused)
    if draft["answer"] not in prompt.only:
        return NO_ANSWER_CHOSEN
    if prompt.against and not draft["insists"]:
        return Refusal("insist", f"{prompt.against} Tick “Record my answer anyway”, or wait.")
    return resolutions.check_resolution_texts(
        _resolution_from_draft(draft, snapshot.version, "none")
    )


def _render_refusal(
    request: MemberRequest, row: Effect, draft: dict[str, str], refused: Refusal
) -> HttpResponse:
    """Show the current page with the refusal, what changed, and the draft."""
    now = now_us()
    snapshot = effects_resolve.verify_snapshot(draft.get("seen", ""), row, request.membership)
    _, verdict = resolutions.evaluate_effect(row, now)
    changes = (
        effects_resolve.snapshot_differences(snapshot, row, verdict) if snapshot is not None else []
    )
    status = 422 if refused.code in (*_FIELD_OF, "answer", "insist") else 409
    return _render_form(request, row, draft, refused=refused, differences=changes, status=status)


def _render_form(
    request: MemberRequest,
    row: Effect,
    draft: dict[str, str],
    *,
    refused: Refusal | None = None,
    differences: Any = (),
    status: int = 200,
) -> HttpResponse:
    now = now_us()
    case, verdict = resolutions.evaluate_effect(row, now)
    prompt = resolutions.evaluate_prompt(case, verdict, row.deadline_us, now)
    attempts, attempt_total = data.load_attempts_for_page(row)
    compensations, children = data.load_related_effects(row)
    context = {
        "effect": row,
        "known": effect_headline.effect_headline(row, attempts, attempt_total, now),
        "verdict": verdict,
        "case": case,
        "asked": prompt,
        "answers": [(name, *ANSWERS[name]) for name in prompt.only],
        "draft": draft,
        "refused": refused,
        "wrong": _FIELD_OF.get(refused.code, refused.code) if refused is not None else "",
        "differences": differences,
        "resolutions": resolutions.load_resolutions(row),
        "heard": effects_resolve.load_later_evidence(row),
        "attempts": attempts,
        "attempts_in_all": attempt_total,
        "tool": data.load_tool_declaration(row),
        "final": _is_irreversible(row),
        "exchange": data.load_exchange(row, attempts),
        "undoing": compensations,
        "children": children,
        "gates": data.load_gates_of_effect(row),
        "violations": violations.load_effect_violations(row),
        "token": effects_resolve.sign_snapshot(row, verdict, request.membership),
        "least": resolutions.MIN_RATIONALE,
        "most": resolutions.MAX_RATIONALE,
    }
    return render(request, "pages/effects/resolve.html", context, status=status)


def _render_confirmation(
    request: MemberRequest,
    row: Effect,
    draft: dict[str, str],
    errors: dict[str, str],
    *,
    other: str = "",
) -> HttpResponse:
    """Show the confirmation page with the digest of its draft.

    Another tab may start another draft.
    """
    attempts, _ = data.load_attempts_for_page(row)
    context = {
        "effect": row,
        "exchange": data.load_exchange(row, attempts),
        "draft": draft,
        "title": ANSWERS[draft["answer"]][0],
        "does": ANSWERS[draft["answer"]][2],
        "final": _is_irreversible(row),
        "typing": _is_irreversible(row) and bool(row.intent_digest),
        "password": _is_irreversible(row) and not reauthentication.is_recently_proved(request),
        "code": card.confirmation_code(row.intent_digest),
        "typed": request.POST.get("code", "")[:8] if not other else "",
        "errors": errors,
        "digest": _draft_digest(draft),
        "other": other,
    }
    return render(
        request,
        "pages/effects/resolve_confirm.html",
        context,
        status=409 if other else 422 if errors else 200,
    )


def _check_step_up(request: MemberRequest, row: Effect) -> dict[str, str]:
    """Return errors of the code or password by field.

    The password is checked after the code.
    """
    if not _is_irreversible(row):
        return {}
    code = request.POST.get("code", "").strip().lower()
    if row.intent_digest and not hmac.compare_digest(
        code.encode(), card.confirmation_code(row.intent_digest).encode()
    ):
        return {"code": "That code doesn’t match. Type the four characters shown above."}
    if reauthentication.is_recently_proved(request) or reauthentication.check_password(
        request, request.POST.get("password", "")
    ):
        return {}
    return {
        "password": "Wrong password. After five wrong passwords, sign-in is locked for 15 minutes."
    }


def _is_irreversible(row: Effect) -> bool:
    """Return True if the operator declared the tool irreversible, or declared nothing."""
    return cache.load_tool(row.project_id, row.tool).reversibility == "irreversible"


def _draft_key(row: Effect) -> str:
    return f"resolve:{row.id.hex}"


def _draft_digest(draft: dict[str, str]) -> str:
    """Return a digest of the draft, 64 hex characters."""
    return hashlib.sha256(orjson.dumps([draft.get(name, "") for name in FIELDS])).hexdigest()
