"""Settings pages of code hosts: webhook sources, and identities of agents. Administrators only."""

from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from accounts import one_time_secret
from accounts.access import MemberRequest, role_required
from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.errors import ChangeRefused
from hooks.code_hosts import agent_identities, sources
from hooks.models import AgentIdentity, CodeHostSource
from ledger.confirmations import CODE_HOST_LABELS

_PLAIN_INPUT = {"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
_OVERLAPS = {0: "none: only the new secret", 1: "1 hour", 24: "1 day", 168: "7 days"}


class SourceForm(forms.Form):
    """A new source."""

    host = forms.ChoiceField(label="Code host", choices=list(CODE_HOST_LABELS.items()))
    name = forms.CharField(
        label="Name",
        max_length=100,
        widget=forms.TextInput(attrs=_PLAIN_INPUT),
        help_text="Such as the organization or repository that sends it.",
    )


class RotateForm(forms.Form):
    """How long the present secret still counts."""

    overlap = forms.TypedChoiceField(
        label="Accept the present secret for",
        choices=list(_OVERLAPS.items()),
        coerce=int,
        initial=24,
    )


class IdentityForm(forms.Form):
    """A login or e-mail address of an agent."""

    host = forms.ChoiceField(label="Code host", choices=list(CODE_HOST_LABELS.items()))
    value = forms.CharField(
        label="Login or e-mail",
        max_length=200,
        widget=forms.TextInput(attrs=_PLAIN_INPUT),
        help_text="Such as release-bot, my-app[bot] or bot@example.org.",
    )


def build_address(source: CodeHostSource) -> str:
    """Return the address that the code host calls."""
    return f"{settings.GATEBOOK_URL}/api/v1/hooks/{source.host}/{source.id}"


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def code_host_sources_page(request: MemberRequest) -> HttpResponse:
    """List sources; POST adds one. The next page shows its secret once."""
    project = request.membership.project
    form = SourceForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            with transaction.atomic(durable=True):
                source = sources.add_source(
                    project,
                    form.cleaned_data["host"],
                    form.cleaned_data["name"],
                    actor=ensure_pseudonym(request.user),
                )
        except ChangeRefused as refusal:
            form.add_error("name", str(refusal))
        else:
            return _show_secret_once(request, source, redirect("code_host_source", source.pk))
    rows = project.code_host_sources.order_by("host", "name")[: sources.MAX_SOURCES]
    context = {
        "form": form,
        "rows": [
            {"source": row, "host": CODE_HOST_LABELS[row.host], "address": build_address(row)}
            for row in rows
        ],
    }
    return render(
        request, "hooks/code_hosts/sources.html", context, status=422 if form.errors else 200
    )


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def code_host_source_page(request: MemberRequest, source: UUID) -> HttpResponse:
    """Show one source with its address; POST rotates its secret."""
    stored = _load_source(request, source)
    form = RotateForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic(durable=True):
            rotated = sources.rotate_source_secret(
                stored, form.cleaned_data["overlap"], actor=ensure_pseudonym(request.user)
            )
        return _show_secret_once(request, rotated, redirect("code_host_source", source))
    now = now_us()
    context: dict[str, Any] = {
        "source": stored,
        "host": CODE_HOST_LABELS[stored.host],
        "address": build_address(stored),
        "form": form if form.is_bound else RotateForm(),
        "overlaps": stored.previous_until_us is not None and now < stored.previous_until_us,
        "latest": stored.deliveries.order_by("-received_us").first(),
        "shown": one_time_secret.take_secret_once(request),
    }
    page = render(
        request, "hooks/code_hosts/source.html", context, status=422 if form.errors else 200
    )
    return one_time_secret.clear_secret_cookie(page)


@require_POST
@role_required("administrator")
def switch_code_host_source(request: MemberRequest, source: UUID) -> HttpResponse:
    """Disable or enable a source."""
    stored = _load_source(request, source)
    with transaction.atomic(durable=True):
        stored = sources.switch_source(
            stored, enabled=not stored.enabled, actor=ensure_pseudonym(request.user)
        )
    word = "enabled" if stored.enabled else "disabled. Its requests get 403"
    messages.success(request, f"{stored.name} is {word}.")
    return redirect("code_host_source", source)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def agent_identities_page(request: MemberRequest, agent: UUID) -> HttpResponse:
    """List the identities of an agent on code hosts; POST adds one."""
    stored = get_object_or_404(request.membership.project.agents, pk=agent)
    form = IdentityForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            with transaction.atomic(durable=True):
                identity = agent_identities.add_identity(
                    stored,
                    form.cleaned_data["host"],
                    form.cleaned_data["value"],
                    actor=ensure_pseudonym(request.user),
                )
        except ChangeRefused as refusal:
            form.add_error("value", str(refusal))
        else:
            messages.success(request, f"{identity.value} is listed for {stored.name}.")
            return redirect("agent_identities", agent)
    rows = AgentIdentity.objects.filter(agent=stored).order_by("host", "kind", "value")
    context = {
        "agent": stored,
        "form": form,
        "rows": [
            {"identity": row, "host": CODE_HOST_LABELS[row.host]}
            for row in rows[: agent_identities.MAX_IDENTITIES]
        ],
    }
    return render(
        request, "hooks/code_hosts/identities.html", context, status=422 if form.errors else 200
    )


@require_POST
@role_required("administrator")
def remove_agent_identity(request: MemberRequest, identity: UUID) -> HttpResponse:
    """Remove an identity from its agent's list."""
    stored = get_object_or_404(
        AgentIdentity.objects.select_related("agent"),
        pk=identity,
        project=request.membership.project,
    )
    agent = stored.agent_id
    with transaction.atomic(durable=True):
        agent_identities.remove_identity(stored, actor=ensure_pseudonym(request.user))
    messages.success(request, f"{stored.value} is removed from {stored.agent.name}.")
    return redirect("agent_identities", agent)


def _load_source(request: MemberRequest, source: UUID) -> CodeHostSource:
    return get_object_or_404(request.membership.project.code_host_sources, pk=source)


def _show_secret_once(
    request: MemberRequest, source: CodeHostSource, response: HttpResponse
) -> HttpResponse:
    secret = sources.derive_source_secret(source.id, source.secret_generation)
    one_time_secret.store_secret_once(request, response, secret, kind="code_host", name=source.name)
    return response
