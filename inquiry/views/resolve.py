"""The human answer to an effect of which nobody can know: everything known of it, four answers, and a page between.

What is typed waits in the sign-in's session while the confirm page asks; it is given back with every refusal.
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
LONGEST: Final = resolutions.MOST_RATIONALE + 1  # of a field: one more than is accepted, so that the verb says so
STALE: Final = Refusal(
    "stale_view", "This form was not made for you, or more than twelve hours ago. Look at what is here, then answer."
)
CHANGED: Final = Refusal("stale_view", "The effect changed since your page was made. Look at what is new, then answer.")
GONE: Final = Refusal(
    "stale_view", "The answer that your page asked about waits no more: it was given, or dropped, from another page."
)
NONE_CHOSEN: Final = Refusal("answer", "Choose one of the answers.")
OTHER: Final = (
    "Nothing was recorded. Your page asked about another answer than the one begun last, perhaps in a second window. "
    "The one begun last is shown here."
)
_FIELD_OF: Final = {"rationale_required": "rationale", "reference": "reference", "evidence": "evidence"}


@require_http_methods(["GET", "HEAD", "POST"])
@requires("operator")
def resolve(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Everything known of the effect and, where people are asked, the form; a POST goes on to the confirm page."""
    found = effect_of(request, effect)
    if found.imported:
        return _history(request, found)
    if request.method != "POST":
        return _page(request, found, request.session.get(_key(found), {}))
    draft = {name: request.POST.get(name, "")[:LONGEST] for name in FIELDS}
    refused = _unfit(request, found, draft)
    if refused is not None:
        return _refusal(request, found, draft, refused)
    request.session[_key(found)] = draft
    return redirect("resolve_confirm", effect=found.id)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("operator")
def confirm(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Ask once more, saying what the answer does; of what cannot be undone it takes the code and a password."""
    found = effect_of(request, effect)
    if found.imported:
        return _history(request, found)
    draft = request.session.get(_key(found))
    if draft is None:
        return redirect("resolve", effect=found.id) if request.method != "POST" else _refusal(request, found, {}, GONE)
    if request.method != "POST":
        return _confirm(request, found, draft, {})
    if not hmac.compare_digest(request.POST.get("seen_draft", "").encode(), _digest(draft).encode()):
        return _confirm(request, found, draft, {}, other=OTHER)
    refused = _unfit(request, found, draft)
    errors = {} if refused is not None else _unproved(request, found)
    if errors:
        return _confirm(request, found, draft, errors)
    del request.session[_key(found)]
    if refused is not None:
        return _refusal(request, found, draft, refused)
    return _decide(request, found, draft)


def _history(request: MemberRequest, found: Effect) -> HttpResponse:
    messages.error(request, resolutions.HISTORY)
    return redirect("effect", effect=found.id)


def _decide(request: MemberRequest, found: Effect, draft: dict[str, str]) -> HttpResponse:
    shown = resolve_page.read(draft["seen"], found, request.membership)
    if shown is None:
        return _refusal(request, found, draft, STALE)
    step_up = "typed_digest" if _is_final(found) and found.intent_digest else "reauth" if _is_final(found) else "none"
    said = _word(draft, shown.version, step_up)
    resolved = resolving.resolve(found.id, request.membership, said)
    if resolved.refusal is not None:
        return _refusal(request, effect_of(request, found.id), draft, resolved.refusal)
    here = reverse("effect", args=[found.id])
    text = 'Your answer on <a href="{}">{}</a> is recorded at position {}: {}.'
    messages.success(request, markup(text, here, str(found), str(resolved.position), ANSWERS[said.answer][1]))
    return redirect("effect", effect=found.id)


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


def _unfit(request: MemberRequest, found: Effect, draft: dict[str, str]) -> Refusal | None:
    """What speaks against an answer before the verb is asked."""
    shown = resolve_page.read(draft["seen"], found, request.membership)
    if shown is None:
        return STALE
    now = now_us()
    case, verdict = resolutions.judged(found, now)
    asked = resolutions.standing(case, verdict, found.deadline_us, now)
    if shown.version != found.version:
        return CHANGED
    if asked.refused:
        return Refusal("not_asked", asked.refused)
    if draft["answer"] not in asked.only:
        return NONE_CHOSEN
    if asked.against and not draft["insists"]:
        return Refusal("insist", f"{asked.against} Tick that you answer all the same, or wait.")
    return resolutions.wanting(_word(draft, shown.version, "none"))


def _refusal(request: MemberRequest, found: Effect, draft: dict[str, str], refused: Refusal) -> HttpResponse:
    """The page as it is now, with what was refused, what is new, and the words as they were typed."""
    now = now_us()
    shown = resolve_page.read(draft.get("seen", ""), found, request.membership)
    _, verdict = resolutions.judged(found, now)
    new = resolve_page.differences(shown, found, verdict) if shown is not None else []
    status = 422 if refused.code in (*_FIELD_OF, "answer", "insist") else 409
    return _page(request, found, draft, refused=refused, differences=new, status=status)


def _page(
    request: MemberRequest,
    found: Effect,
    draft: dict[str, str],
    *,
    refused: Refusal | None = None,
    differences: Any = (),
    status: int = 200,
) -> HttpResponse:
    now = now_us()
    case, verdict = resolutions.judged(found, now)
    asked = resolutions.standing(case, verdict, found.deadline_us, now)
    tried, times = effect_page.attempts(found)
    undoing, children = effect_page.related(found)
    context = {
        "effect": found,
        "known": sentences.known(found, tried, times, now),
        "verdict": verdict,
        "case": case,
        "asked": asked,
        "answers": [(name, *ANSWERS[name]) for name in asked.only],
        "draft": draft,
        "refused": refused,
        "wrong": _FIELD_OF.get(refused.code, refused.code) if refused is not None else "",
        "differences": differences,
        "said": resolutions.told(found),
        "heard": resolve_page.heard(found),
        "attempts": tried,
        "attempts_in_all": times,
        "tool": effect_page.tool(found),
        "final": _is_final(found),
        "exchange": effect_page.exchange(found, tried),
        "undoing": undoing,
        "children": children,
        "gates": effect_page.gates(found),
        "breaches": breaches.of(found),
        "token": resolve_page.sign(found, verdict, request.membership),
        "least": resolutions.LEAST_RATIONALE,
        "most": resolutions.MOST_RATIONALE,
    }
    return render(request, "inquiry/resolve.html", context, status=status)


def _confirm(
    request: MemberRequest, found: Effect, draft: dict[str, str], errors: dict[str, str], *, other: str = ""
) -> HttpResponse:
    """The page that asks once more. It says of what draft it asks, since a second window may begin another."""
    tried, _ = effect_page.attempts(found)
    context = {
        "effect": found,
        "exchange": effect_page.exchange(found, tried),
        "draft": draft,
        "title": ANSWERS[draft["answer"]][0],
        "does": ANSWERS[draft["answer"]][2],
        "final": _is_final(found),
        "typing": _is_final(found) and bool(found.intent_digest),
        "password": _is_final(found) and not proof.fresh(request),
        "code": card.code(found.intent_digest),
        "typed": request.POST.get("code", "")[:8] if not other else "",
        "errors": errors,
        "digest": _digest(draft),
        "other": other,
    }
    return render(request, "inquiry/resolve_confirm.html", context, status=409 if other else 422 if errors else 200)


def _unproved(request: MemberRequest, found: Effect) -> dict[str, str]:
    """What is wrong with the code or the password, by field; the password is not asked while the code is wrong."""
    if not _is_final(found):
        return {}
    code = request.POST.get("code", "").strip().lower()
    if found.intent_digest and not hmac.compare_digest(code.encode(), card.code(found.intent_digest).encode()):
        return {"code": "This is not the code of the intent that is shown above."}
    if proof.fresh(request) or proof.prove(request, request.POST.get("password", "")):
        return {}
    return {
        "password": "This is not your password. After five wrong ones your name is closed for a quarter of an hour."
    }


def _is_final(found: Effect) -> bool:
    """True where the operator declared that it cannot be undone, or declared nothing."""
    return declared.tool(found.project_id, found.tool).reversibility == "irreversible"


def _key(found: Effect) -> str:
    return f"resolve:{found.id.hex}"


def _digest(draft: dict[str, str]) -> str:
    """What tells this answer from any other on the same effect, as 64 hex characters."""
    return hashlib.sha256(orjson.dumps([draft.get(name, "") for name in FIELDS])).hexdigest()
