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

from approvals import card, proof, resolving
from inquiry import effect_page, resolve_page, sentences
from inquiry.resolve_page import ANSWERS
from inquiry.views.effects import effect_of
from journal.clock import now_us
from journal.untrusted import markup
from ledger import breaches, declared, resolutions
from ledger.leaves import Refusal
from ledger.models import Effect
from ledger.resolutions import Word
from sessions.access import MemberRequest, requires

FIELDS: Final = ("answer", "rationale", "reference", "evidence", "insists", "seen")
# Longest field: one character more than accepted, so that the command reports it.
LONGEST: Final = resolutions.MOST_RATIONALE + 1
STALE: Final = Refusal(
    "stale_view",
    "This form is more than 12 hours old or belongs to someone else. Check this page, then answer.",
)
CHANGED: Final = Refusal(
    "stale_view", "The effect changed after this page was loaded. Check the changes, then answer."
)
GONE: Final = Refusal(
    "stale_view",
    "This draft was already submitted or discarded in another tab.",
)
NONE_CHOSEN: Final = Refusal("answer", "Choose one of the answers.")
OTHER: Final = (
    "Nothing was recorded. You started a newer draft, perhaps in another tab. "
    "Check the newer draft shown on this page."
)
_FIELD_OF: Final = {
    "rationale_required": "rationale",
    "reference": "reference",
    "evidence": "evidence",
}


@require_http_methods(["GET", "HEAD", "POST"])
@requires("operator")
def resolve(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Show what is known of the effect and the form, if people are asked.

    POST opens the confirmation.
    """
    row = effect_of(request, effect)
    if row.imported:
        return _history(request, row)
    if request.method != "POST":
        return _page(request, row, request.session.get(_key(row), {}))
    draft = {name: request.POST.get(name, "")[:LONGEST] for name in FIELDS}
    refused = _unfit(request, row, draft)
    if refused is not None:
        return _refusal(request, row, draft, refused)
    request.session[_key(row)] = draft
    return redirect("resolve_confirm", effect=row.id)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("operator")
def confirm(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Confirm the answer.

    Irreversible effects also need the intent code and a password.
    """
    row = effect_of(request, effect)
    if row.imported:
        return _history(request, row)
    draft = request.session.get(_key(row))
    if draft is None:
        return (
            redirect("resolve", effect=row.id)
            if request.method != "POST"
            else _refusal(request, row, {}, GONE)
        )
    if request.method != "POST":
        return _confirm(request, row, draft, {})
    if not hmac.compare_digest(
        request.POST.get("seen_draft", "").encode(), _digest(draft).encode()
    ):
        return _confirm(request, row, draft, {}, other=OTHER)
    refused = _unfit(request, row, draft)
    errors = {} if refused is not None else _unproved(request, row)
    if errors:
        return _confirm(request, row, draft, errors)
    del request.session[_key(row)]
    if refused is not None:
        return _refusal(request, row, draft, refused)
    return _decide(request, row, draft)


def _history(request: MemberRequest, row: Effect) -> HttpResponse:
    messages.error(request, resolutions.HISTORY)
    return redirect("effect", effect=row.id)


def _decide(request: MemberRequest, row: Effect, draft: dict[str, str]) -> HttpResponse:
    snapshot = resolve_page.read(draft["seen"], row, request.membership)
    if snapshot is None:
        return _refusal(request, row, draft, STALE)
    step_up = (
        "typed_digest"
        if _is_final(row) and row.intent_digest
        else "reauth"
        if _is_final(row)
        else "none"
    )
    resolution = _word(draft, snapshot.version, step_up)
    resolved = resolving.resolve(row.id, request.membership, resolution)
    if resolved.refusal is not None:
        return _refusal(request, effect_of(request, row.id), draft, resolved.refusal)
    url = reverse("effect", args=[row.id])
    text = 'Your answer on <a href="{}">{}</a> was recorded in entry #{}: {}.'
    messages.success(
        request, markup(text, url, str(row), str(resolved.position), ANSWERS[resolution.answer][1])
    )
    return redirect("effect", effect=row.id)


def _word(draft: dict[str, str], version: int, step_up: str) -> Word:
    return Word(
        answer=draft["answer"],
        rationale=draft["rationale"].strip(),
        seen_version=version,
        reference=draft["reference"].strip(),
        evidence=draft["evidence"].strip(),
        insists=bool(draft["insists"]),
        step_up=step_up,
    )


def _unfit(request: MemberRequest, row: Effect, draft: dict[str, str]) -> Refusal | None:
    """Return the reason to refuse a draft before the command runs, or None."""
    snapshot = resolve_page.read(draft["seen"], row, request.membership)
    if snapshot is None:
        return STALE
    now = now_us()
    case, verdict = resolutions.judged(row, now)
    prompt = resolutions.standing(case, verdict, row.deadline_us, now)
    if snapshot.version != row.version:
        return CHANGED
    if prompt.refused:
        return Refusal("not_asked", prompt.refused)
    if draft["answer"] not in prompt.only:
        return NONE_CHOSEN
    if prompt.against and not draft["insists"]:
        return Refusal("insist", f"{prompt.against} Tick “Record my answer anyway”, or wait.")
    return resolutions.wanting(_word(draft, snapshot.version, "none"))


def _refusal(
    request: MemberRequest, row: Effect, draft: dict[str, str], refused: Refusal
) -> HttpResponse:
    """Show the current page with the refusal, what changed, and the draft."""
    now = now_us()
    snapshot = resolve_page.read(draft.get("seen", ""), row, request.membership)
    _, verdict = resolutions.judged(row, now)
    changes = resolve_page.differences(snapshot, row, verdict) if snapshot is not None else []
    status = 422 if refused.code in (*_FIELD_OF, "answer", "insist") else 409
    return _page(request, row, draft, refused=refused, differences=changes, status=status)


def _page(
    request: MemberRequest,
    row: Effect,
    draft: dict[str, str],
    *,
    refused: Refusal | None = None,
    differences: Any = (),
    status: int = 200,
) -> HttpResponse:
    now = now_us()
    case, verdict = resolutions.judged(row, now)
    prompt = resolutions.standing(case, verdict, row.deadline_us, now)
    attempts, attempt_total = effect_page.attempts(row)
    compensations, children = effect_page.related(row)
    context = {
        "effect": row,
        "known": sentences.known(row, attempts, attempt_total, now),
        "verdict": verdict,
        "case": case,
        "asked": prompt,
        "answers": [(name, *ANSWERS[name]) for name in prompt.only],
        "draft": draft,
        "refused": refused,
        "wrong": _FIELD_OF.get(refused.code, refused.code) if refused is not None else "",
        "differences": differences,
        "said": resolutions.told(row),
        "heard": resolve_page.heard(row),
        "attempts": attempts,
        "attempts_in_all": attempt_total,
        "tool": effect_page.tool(row),
        "final": _is_final(row),
        "exchange": effect_page.exchange(row, attempts),
        "undoing": compensations,
        "children": children,
        "gates": effect_page.gates(row),
        "breaches": breaches.of(row),
        "token": resolve_page.sign(row, verdict, request.membership),
        "least": resolutions.LEAST_RATIONALE,
        "most": resolutions.MOST_RATIONALE,
    }
    return render(request, "inquiry/resolve.html", context, status=status)


def _confirm(
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
    attempts, _ = effect_page.attempts(row)
    context = {
        "effect": row,
        "exchange": effect_page.exchange(row, attempts),
        "draft": draft,
        "title": ANSWERS[draft["answer"]][0],
        "does": ANSWERS[draft["answer"]][2],
        "final": _is_final(row),
        "typing": _is_final(row) and bool(row.intent_digest),
        "password": _is_final(row) and not proof.fresh(request),
        "code": card.code(row.intent_digest),
        "typed": request.POST.get("code", "")[:8] if not other else "",
        "errors": errors,
        "digest": _digest(draft),
        "other": other,
    }
    return render(
        request,
        "inquiry/resolve_confirm.html",
        context,
        status=409 if other else 422 if errors else 200,
    )


def _unproved(request: MemberRequest, row: Effect) -> dict[str, str]:
    """Return errors of the code or password by field.

    The password is checked after the code.
    """
    if not _is_final(row):
        return {}
    code = request.POST.get("code", "").strip().lower()
    if row.intent_digest and not hmac.compare_digest(
        code.encode(), card.code(row.intent_digest).encode()
    ):
        return {"code": "That code doesn’t match. Type the four characters shown above."}
    if proof.fresh(request) or proof.prove(request, request.POST.get("password", "")):
        return {}
    return {
        "password": "Wrong password. After five wrong passwords, sign-in is locked for 15 minutes."
    }


def _is_final(row: Effect) -> bool:
    """Return True if the operator declared the tool irreversible, or declared nothing."""
    return declared.tool(row.project_id, row.tool).reversibility == "irreversible"


def _key(row: Effect) -> str:
    return f"resolve:{row.id.hex}"


def _digest(draft: dict[str, str]) -> str:
    """Return a digest of the draft, 64 hex characters."""
    return hashlib.sha256(orjson.dumps([draft.get(name, "") for name in FIELDS])).hexdigest()
