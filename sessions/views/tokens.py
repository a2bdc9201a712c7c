"""The agents of the current project and their tokens, for its administrators."""

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Prefetch
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from sessions import agents, once, people, tokens
from sessions.access import MemberRequest, requires
from sessions.models import AgentToken, Project
from sessions.refused import RefusedError

LIFETIMES = [
    ("1d", "in a day"),
    ("1w", "in a week"),
    ("30d", "in 30 days"),
    ("90d", "in 90 days"),
    ("365d", "in a year"),
    ("never", "never"),
]
SCOPES = [
    ("agent", "agent: records what it does"),
    ("import", "import: brings in old trajectories, unredacted, as observed"),
]


class TokenForm(forms.Form):
    """Which agent, whose, until when, for what."""

    agent = forms.CharField(
        label="Agent",
        max_length=64,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}),
        help_text="A new name makes a new agent.",
    )
    owner = forms.ModelChoiceField(
        User.objects.none(),
        to_field_name="username",
        required=False,
        empty_label="nobody",
        help_text="Answers for the agent.",
    )
    expires = forms.ChoiceField(choices=LIFETIMES, initial="90d")
    scope = forms.ChoiceField(choices=SCOPES)

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        people_of_project = User.objects.filter(memberships__project=project).order_by("username")
        cast("forms.ModelChoiceField[User]", self.fields["owner"]).queryset = people_of_project


@require_http_methods(["GET", "HEAD", "POST"])
@requires("administrator")
def tokens_page(request: MemberRequest) -> HttpResponse:
    """List agents with their tokens; POST issues one, which the next page shows once."""
    project = request.membership.project
    form = TokenForm(project, request.POST or None)
    if request.method == "POST" and form.is_valid():
        wanted = form.cleaned_data
        try:
            with transaction.atomic(durable=True):
                actor = people.pseudonym_of(request.user)
                agent = agents.ensure(project, wanted["agent"], wanted["owner"], actor=actor)
                expires_in = tokens.lifetime(wanted["expires"])
                token = tokens.issue(agent, scope=wanted["scope"], expires_in=expires_in, actor=actor)
        except RefusedError as refusal:
            form.add_error("agent", str(refusal))
        else:
            response = redirect("tokens")
            once.put(request, response, token, kind="token", name=agent.name)
            return response
    ordered = AgentToken.objects.order_by("-created_at", "-id")
    known = project.agents.select_related("owner").prefetch_related(Prefetch("tokens", ordered)).order_by("name")
    context = {"form": form, "agents": known, "now": timezone.now(), "shown": once.take(request)}
    return once.cleared(render(request, "sessions/tokens.html", context, status=422 if form.errors else 200))


@require_http_methods(["GET", "HEAD", "POST"])
@requires("administrator")
def revoke_token(request: MemberRequest, token: UUID) -> HttpResponse:
    """Ask, then end a token."""
    found = get_object_or_404(request.membership.project.tokens.select_related("agent"), pk=token)
    if request.method != "POST":
        return render(request, "sessions/revoke_token.html", {"token": found})
    with transaction.atomic(durable=True):
        tokens.revoke(found, actor=people.pseudonym_of(request.user))
    messages.success(
        request, f"gbk_{found.public_id} of {found.agent.name} is revoked: no request with it is answered."
    )
    return redirect("tokens")
