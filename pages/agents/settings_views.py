"""An agent's team and charter: changed by administrators, read by all members."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from accounts import agents, people
from accounts.access import MemberRequest, has_role, member_required, role_required
from accounts.models import Agent
from db.errors import ChangeRefused


class CharterForm(forms.Form):
    """The charter, and the version that was shown."""

    charter = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "true"}),
        help_text="What the agent is for, and its standing orders. Every version is kept.",
    )
    version = forms.IntegerField(min_value=0, widget=forms.HiddenInput())


class AgentTeamForm(forms.Form):
    """The team of an agent."""

    team = forms.CharField(
        label="Team",
        required=False,
        max_length=64,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
        ),
        help_text="Agents of one team may work in each other's sessions. Leave it empty for none.",
    )


@require_http_methods(["POST"])
@role_required("administrator")
def change_agent_team(request: MemberRequest, agent: UUID) -> HttpResponse:
    """Put an agent into a team, or out of its team."""
    stored = get_object_or_404(request.membership.project.agents.select_related("owner"), pk=agent)
    form = AgentTeamForm(request.POST)
    if form.is_valid():
        try:
            with transaction.atomic(durable=True):
                agents.set_agent_team(
                    stored, form.cleaned_data["team"], actor=people.ensure_pseudonym(request.user)
                )
        except ChangeRefused as refusal:
            form.add_error("team", str(refusal))
        else:
            team = f"in the team {stored.team}" if stored.team else "in no team"
            messages.success(request, f"{stored.name} is {team}.")
            return redirect("agent_settings", agent)
    return _render_agent_settings(request, stored, _charter_form(stored), form)


def _charter_form(agent: Agent, sent: Any = None) -> CharterForm:
    return CharterForm(sent, initial={"charter": agent.charter, "version": agent.charter_version})


def _render_agent_settings(
    request: MemberRequest, agent: Agent, form: CharterForm, team: AgentTeamForm
) -> HttpResponse:
    teammates = (
        request.membership.project.agents.filter(team=agent.team).exclude(pk=agent.pk)
        if agent.team
        else []
    )
    context = {
        "agent": agent,
        "form": form,
        "team": team,
        "mates": teammates,
        "most": agents.MAX_CHARTER_CHARACTERS,
    }
    refused = form.errors or team.errors
    return render(request, "pages/agents/settings.html", context, status=422 if refused else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def agent_settings_page(request: MemberRequest, agent: UUID) -> HttpResponse:
    """Show an agent's team and charter; POST stores the charter's next version."""
    stored = get_object_or_404(request.membership.project.agents.select_related("owner"), pk=agent)
    form = _charter_form(stored, request.POST or None)
    if request.method == "POST" and form.is_valid():
        charter, version = form.cleaned_data["charter"], form.cleaned_data["version"]
        try:
            with transaction.atomic(durable=True):
                agents.set_agent_charter(
                    stored, charter, version=version, actor=people.ensure_pseudonym(request.user)
                )
        except ChangeRefused as refusal:
            form.add_error("charter", str(refusal))
        else:
            messages.success(
                request, f"The charter of {stored.name} is at version {stored.charter_version}."
            )
            return redirect("agent_settings", agent)
    return _render_agent_settings(
        request, stored, form, AgentTeamForm(initial={"team": stored.team})
    )


@require_safe
@member_required
def agent_charter(request: MemberRequest, agent: UUID) -> HttpResponse:
    """Show an agent's charter to any member, who judges its requests by it."""
    stored = get_object_or_404(request.membership.project.agents.select_related("owner"), pk=agent)
    context = {"agent": stored, "may_change": has_role(request.membership, "administrator")}
    return render(request, "pages/agents/charter.html", context)
