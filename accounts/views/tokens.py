"""Settings page of the project's agents and their tokens, for administrators."""

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

from accounts import agents, one_time_secret, people, tokens
from accounts.access import MemberRequest, role_required
from accounts.models import Agent, Project
from db.errors import ChangeRefused

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
    ("import", "import: imports old trajectories, unredacted, as observed"),
    ("audit", "audit: reads only, and sees who decided"),
]


class TokenForm(forms.Form):
    """Agent, owner, lifetime and scope of a new token."""

    agent = forms.CharField(
        label="Agent",
        max_length=64,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
        ),
        help_text="A new name creates a new agent.",
    )
    owner = forms.ModelChoiceField(
        User.objects.none(),
        to_field_name="username",
        required=False,
        empty_label="nobody",
        help_text="The person responsible for the agent.",
    )
    expires = forms.ChoiceField(choices=LIFETIMES, initial="90d")
    scope = forms.ChoiceField(choices=SCOPES)

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        people_of_project = User.objects.filter(memberships__project=project).order_by("username")
        cast("forms.ModelChoiceField[User]", self.fields["owner"]).queryset = people_of_project


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def tokens_page(request: MemberRequest) -> HttpResponse:
    """List agents with their tokens; POST issues one, which the next page shows once."""
    project = request.membership.project
    form = TokenForm(project, request.POST or None)
    if request.method == "POST" and form.is_valid():
        fields = form.cleaned_data
        try:
            with transaction.atomic(durable=True):
                actor = people.ensure_pseudonym(request.user)
                agent = agents.ensure_agent(project, fields["agent"], fields["owner"], actor=actor)
                expires_in = tokens.parse_lifetime(fields["expires"])
                token = tokens.issue_token(
                    agent, scope=fields["scope"], expires_in=expires_in, actor=actor
                )
        except ChangeRefused as refusal:
            form.add_error("agent", str(refusal))
        else:
            response = redirect("tokens")
            one_time_secret.store_secret_once(
                request, response, token, kind="token", name=agent.name
            )
            return response
    rows = Paginator(_query_token_rows(project), PAGE).get_page(request.GET.get("page"))
    context = {
        "form": form,
        "rows": rows,
        "now": timezone.now(),
        "shown": one_time_secret.take_secret_once(request),
    }
    return one_time_secret.clear_secret_cookie(
        render(request, "accounts/tokens.html", context, status=422 if form.errors else 200)
    )


def _query_token_rows(project: Project) -> "QuerySet[Agent]":
    """Return every agent by name, once per token, newest first; once without a token."""
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


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def revoke_token_page(request: MemberRequest, token: UUID) -> HttpResponse:
    """Confirm, then revoke a token."""
    stored = get_object_or_404(request.membership.project.tokens.select_related("agent"), pk=token)
    if request.method != "POST":
        return render(request, "accounts/revoke_token.html", {"token": stored})
    with transaction.atomic(durable=True):
        tokens.revoke_agent_token(stored, actor=people.ensure_pseudonym(request.user))
    messages.success(
        request,
        f"gbk_{stored.public_id} of {stored.agent.name} is revoked. Requests with it fail now.",
    )
    return redirect("tokens")
