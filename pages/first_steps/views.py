"""The first steps of a project: connect an agent, see its first effect, write the first rule."""

from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from accounts import agents, one_time_secret, people, tokens
from accounts.access import MemberRequest, has_role, member_required, role_required
from approvals.policies import policies
from db.errors import ChangeRefused
from pages.first_steps import client_wheel, data
from pages.first_steps.data import FirstSteps
from pages.sample import sample_project

HIDDEN_COOKIE: Final = "gatebook-first-steps"
_PATH: Final = "/first-steps/"
_LIFETIME: Final = "30d"
_YEAR_S: Final = 365 * 86_400


@require_safe
@member_required
@vary_on_headers("HX-Request")
def first_steps_page(request: MemberRequest) -> HttpResponse:
    """Show the steps; polls get 204 while nothing changed."""
    steps = data.load_first_steps(request.membership.project)
    if request.headers.get("HX-Request") and request.GET.get("since") == steps.mark:
        return HttpResponse(status=204)
    context = build_steps_context(request, steps)
    response = render(request, "pages/first_steps/first_steps.html", context)
    return one_time_secret.clear_secret_cookie(response, _PATH)


def build_steps_context(request: MemberRequest, steps: FirstSteps) -> dict[str, Any]:
    """Return what `_steps.html` shows; tests the proposed rules while they wait for a person."""
    proposals = []
    may_change = has_role(request.membership, "administrator")
    if steps.current == 3 and may_change:
        proposals = data.evaluate_proposals(steps.project, data.load_proposals(steps))
    steps.arguments = data.load_arguments(steps)
    shown = {} if request.headers.get("HX-Request") else one_time_secret.take_secret_once(request)
    return {
        "steps": steps,
        "proposals": proposals,
        "token": shown.get("secret", "") if shown.get("kind") == "first_token" else "",
        "agent": shown.get("name", data.FIRST_AGENT),
        "url": settings.GATEBOOK_URL,
        "wheel": client_wheel.build_client_wheel().file_name,
        "is_hidden": bool(request.COOKIES.get(HIDDEN_COOKIE)),
        "has_sample": bool(sample_project.find_samples(request.user)),
    }


@require_POST
@role_required("administrator")
def issue_first_token(request: MemberRequest) -> HttpResponse:
    """Issue a token for the first agent, which the page shows once."""
    response = redirect("first_steps")
    try:
        with transaction.atomic(durable=True):
            actor = people.ensure_pseudonym(request.user)
            # Without an owner every reviewer may approve for it, also the only one.
            agent = agents.ensure_agent(request.membership.project, data.FIRST_AGENT, actor=actor)
            lifetime = tokens.parse_lifetime(_LIFETIME)
            token = tokens.issue_token(agent, scope="agent", expires_in=lifetime, actor=actor)
    except ChangeRefused as refusal:
        messages.error(request, str(refusal))
        return response
    one_time_secret.store_secret_once(
        request, response, token, _PATH, kind="first_token", name=agent.name
    )
    return response


@require_POST
@role_required("administrator")
def activate_first_rule(request: MemberRequest) -> HttpResponse:
    """Store and enforce the chosen proposal, unless rules are in force by now."""
    project = request.membership.project
    steps = data.load_first_steps(project)
    if steps.activation is not None:
        messages.error(request, f"{steps.activation.policy_set} is in force already.")
        return redirect("first_steps")
    proposals = {proposal.key: proposal for proposal in data.load_proposals(steps)}
    chosen = proposals.get(request.POST.get("rule", ""))
    if chosen is None or chosen.digest != request.POST.get(f"shown_{chosen.key}"):
        messages.error(request, "These rules changed since you opened the page. Choose again.")
        return redirect("first_steps")
    try:
        with transaction.atomic(durable=True):
            actor = people.ensure_pseudonym(request.user)
            policy_set = policies.load_policy_set(project, chosen.text, actor)
            policies.activate_policy_set(project, policy_set, "enforce", request.user, actor)
    except ChangeRefused as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, f"{policy_set} is in force now.")
    return redirect("first_steps")


@require_POST
@member_required
def hide_first_steps(request: MemberRequest) -> HttpResponse:
    """Hide the steps from the first page of this browser, or show them there again."""
    if request.POST.get("do") == "show":
        response = redirect("first_steps")
        response.delete_cookie(HIDDEN_COOKIE, samesite="Lax")
        return response
    messages.success(request, "The first steps are hidden. Open them again from Help.")
    response = redirect("home")
    response.set_cookie(
        HIDDEN_COOKIE,
        "hidden",
        max_age=_YEAR_S,
        httponly=True,
        secure=settings.SESSION_COOKIE_SECURE,
        samesite="Lax",
    )
    return response


@require_safe
def download_client(request: HttpRequest, file_name: str) -> HttpResponse:
    """Return the Python client as a wheel for `pip install`; it is public, like its source."""
    wheel = client_wheel.build_client_wheel()
    if file_name != wheel.file_name:
        raise Http404
    response = HttpResponse(wheel.content, content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{wheel.file_name}"'
    return response
