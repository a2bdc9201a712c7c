"""The agents of the current project and their tokens, for its administrators."""

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import F, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from sessions import agents, once, people, tokens
from sessions.access import MemberRequest, requires
from sessions.models import Agent, Project
from sessions.refused import RefusedError

PAGE = 50
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
    ("audit", "audit: reads, and is told who decided; writes nothing"),
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


class CharterForm(forms.Form):
    """The charter, and the version it was read at."""

    charter = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "true"}),
        help_text="What the agent is for, and its standing orders. Every version is kept in the journal.",
    )
    version = forms.IntegerField(min_value=0, widget=forms.HiddenInput())


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
    rows = Paginator(_rows(project), PAGE).get_page(request.GET.get("page"))
    context = {"form": form, "rows": rows, "now": timezone.now(), "shown": once.take(request)}
    return once.cleared(render(request, "sessions/tokens.html", context, status=422 if form.errors else 200))


def _rows(project: Project) -> "QuerySet[Agent]":
    """Every agent by name, once for each of its tokens, newest first; one without a token once."""
    return (
        project.agents.select_related("owner")
        .annotate(
            token_id=F("tokens__id"),
            token_public_id=F("tokens__public_id"),
            token_scope=F("tokens__scope"),
            token_created_at=F("tokens__created_at"),
            token_expires_at=F("tokens__expires_at"),
            token_revoked_at=F("tokens__revoked_at"),
            token_used_at=F("tokens__used_at"),
        )
        .order_by("name", "-token_created_at", "-token_id")
    )


class TeamForm(forms.Form):
    """The team of an agent."""

    team = forms.CharField(
        label="Team",
        required=False,
        max_length=64,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}),
        help_text="Agents of one team may work in each other's sessions. Leave it empty for none.",
    )


@require_http_methods(["POST"])
@requires("administrator")
def change_team(request: MemberRequest, agent: UUID) -> HttpResponse:
    """Put an agent into a team, or into none."""
    found = get_object_or_404(request.membership.project.agents.select_related("owner"), pk=agent)
    form = TeamForm(request.POST)
    if form.is_valid():
        try:
            with transaction.atomic(durable=True):
                agents.set_team(found, form.cleaned_data["team"], actor=people.pseudonym_of(request.user))
        except RefusedError as refusal:
            form.add_error("team", str(refusal))
        else:
            team = f"in the team {found.team}" if found.team else "in no team"
            messages.success(request, f"{found.name} is {team}.")
            return redirect("agent", agent)
    return _agent_page(request, found, _charter_form(found), form)


def _charter_form(agent: Agent, sent: Any = None) -> CharterForm:
    return CharterForm(sent, initial={"charter": agent.charter, "version": agent.charter_version})


def _agent_page(request: MemberRequest, agent: Agent, form: CharterForm, team: TeamForm) -> HttpResponse:
    mates = request.membership.project.agents.filter(team=agent.team).exclude(pk=agent.pk) if agent.team else []
    context = {"agent": agent, "form": form, "team": team, "mates": mates, "most": agents.CHARTER_CHARACTERS}
    refused = form.errors or team.errors
    return render(request, "sessions/agent.html", context, status=422 if refused else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("administrator")
def agent_page(request: MemberRequest, agent: UUID) -> HttpResponse:
    """An agent's team and charter; POST stores the charter's next version."""
    found = get_object_or_404(request.membership.project.agents.select_related("owner"), pk=agent)
    form = _charter_form(found, request.POST or None)
    if request.method == "POST" and form.is_valid():
        charter, version = form.cleaned_data["charter"], form.cleaned_data["version"]
        try:
            with transaction.atomic(durable=True):
                agents.set_charter(found, charter, version=version, actor=people.pseudonym_of(request.user))
        except RefusedError as refusal:
            form.add_error("charter", str(refusal))
        else:
            messages.success(request, f"The charter of {found.name} is at version {found.charter_version}.")
            return redirect("agent", agent)
    return _agent_page(request, found, form, TeamForm(initial={"team": found.team}))


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
