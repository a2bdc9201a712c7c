"""Exemption pages: list, grant, confirm, revoke."""

from typing import Any, Final
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from accounts.access import MemberRequest, has_role, member_required, role_required
from approvals import confirmation, exemptions
from approvals.confirmation import GivenProof
from approvals.gates.statuses import STEP_UPS
from approvals.models import Exemption
from approvals.policies import policies
from db.clock import now_us
from db.errors import ChangeRefused
from sessions.models import Session

MAX_EXEMPTIONS: Final = 100
_HOUR_US: Final = 3_600_000_000
_LENGTHS: Final = [
    ("1", "1 hour"),
    ("4", "4 hours"),
    ("8", "8 hours"),
    ("24", "1 day"),
    ("72", "3 days"),
    ("168", "7 days"),
    ("720", "30 days"),
]
_PLAIN_INPUT: Final = {"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}


def _glob_field(
    label: str, longest: int, help_text: str = "", *, required: bool = False
) -> forms.CharField:
    widget = forms.TextInput(attrs=dict(_PLAIN_INPUT))
    return forms.CharField(
        label=label, max_length=longest, required=required, widget=widget, help_text=help_text
    )


class ExemptionForm(forms.Form):
    """Scope, length and reason of an exemption."""

    tool = _glob_field(
        "Tool", 100, "A glob such as git.push or git.*. Use * for every tool.", required=True
    )
    rule = _glob_field("Rule", 64, "Id of the rule to skip. Leave empty for all rules.")
    agent = _glob_field("Agent", 64, "Leave empty for every agent.")
    repository = _glob_field("Repository", 200, "Leave empty for any repository (or none).")
    ref = _glob_field("Ref", 200, "Refs that git moves: main, refs/heads/release/*")
    environment = _glob_field("Environment", 64)
    session = _glob_field("Session", 20, "A handle such as s_412. Leave empty for every session.")
    hours = forms.ChoiceField(label="Ends after", choices=_LENGTHS, initial="4")
    reason = forms.CharField(
        label="Reason",
        max_length=exemptions.MAX_EXEMPTION_REASON,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=f"At least {exemptions.MIN_EXEMPTION_REASON} characters. It stays in the "
        "journal.",
    )


@require_safe
@member_required
def exemptions_page(request: MemberRequest) -> HttpResponse:
    """List the exemptions of the project, the latest first, with reasons and uses."""
    rows = exemptions.annotate_valid_grantors(request.membership.project.exemptions.all())
    rows = (
        rows.select_related("granted_by", "session")
        .prefetch_related("votes__user")
        .order_by("-granted_at_us")
    )
    exemption_rows, now = list(rows[:MAX_EXEMPTIONS]), now_us()
    reasons = exemptions.load_exemption_reasons(exemption_rows)
    context_rows = []
    for row in exemption_rows:
        live = row.revoked_at_us is None and row.ends_at_us > now
        waits = (
            live
            and row.in_force_at_us is None
            and all(vote.user_id != request.user.pk for vote in row.votes.all())
        )
        context_rows.append(
            {"exemption": row, "reason": reasons.get(row.id), "live": live, "waits": waits}
        )
    return render(
        request,
        "approvals/exemptions/exemptions.html",
        {
            "exemptions": context_rows,
            "most": MAX_EXEMPTIONS,
            "may_operate": has_role(request.membership, "operator"),
        },
    )


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def grant_exemption(request: MemberRequest) -> HttpResponse:
    """Ask for scope, reason and end, then for code and password; grant or request it."""
    project = request.membership.project
    first = {name: request.GET.get(name, "") for name in ("tool", "rule", "agent")}
    form = ExemptionForm(request.POST if request.method == "POST" else None, initial=first)
    if request.method == "POST" and form.is_valid() and "change" not in request.POST:
        cleaned = form.cleaned_data
        scope = {
            "reason": cleaned["reason"],
            **{name: cleaned[name] for name in exemptions.EXEMPTION_SCOPES},
        }
        ends_at_us = now_us() + int(cleaned["hours"]) * _HOUR_US
        try:
            session = _load_session(request, cleaned["session"])
            covered, _ = exemptions.validate_exemption(
                project, ends_at_us=ends_at_us, session=session, **scope
            )
            people = exemptions.count_needed_grantors(project, covered["tool"], covered["rule"])
            code = exemptions.compute_exemption_code(
                project.pk, request.user.pk, *(cleaned[name] for name in ExemptionForm.base_fields)
            )
            proof = _check_step_up(request, code)
            if proof.password_at_us is None:
                context = {
                    "scope": scope,
                    "session": session,
                    "hours": cleaned["hours"],
                    "people": people,
                    "form": form,
                }
                return _render_confirm(request, code, proof.errors, context)
            with transaction.atomic(durable=True):
                granted = exemptions.create_exemption(
                    project,
                    ends_at_us=ends_at_us,
                    user=request.user,
                    session=session,
                    **_step_up_values(proof),
                    **scope,
                )
        except ChangeRefused as refusal:
            form.add_error(None, str(refusal))
        else:
            _report_grant(request, granted)
            return redirect("exemptions")
    current = policies.load_activation(project)
    context = {"form": form, "rules": current.policy_set.rules["rules"] if current else []}
    return render(
        request, "approvals/exemptions/grant.html", context, status=422 if form.errors else 200
    )


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def confirm_exemption(request: MemberRequest, exemption: UUID) -> HttpResponse:
    """Show a requested exemption, ask for code and password, then add a grant."""
    exemption_row: Exemption = get_object_or_404(
        request.membership.project.exemptions, pk=exemption
    )
    code = exemptions.compute_exemption_code(exemption_row.id, request.user.pk)
    proof = _check_step_up(request, code) if request.method == "POST" else GivenProof({})
    if proof.password_at_us is not None:
        try:
            with transaction.atomic(durable=True):
                exemptions.confirm_exemption_grant(
                    exemption_row, request.user, **_step_up_values(proof)
                )
        except ChangeRefused as refusal:
            messages.error(request, str(refusal), extra_tags="failed")
        else:
            exemption_row.refresh_from_db()
            _report_grant(request, exemption_row)
        return redirect("exemptions")
    scope = {name: getattr(exemption_row, name) for name in exemptions.EXEMPTION_SCOPES}
    scope["reason"] = exemptions.load_exemption_reasons([exemption_row]).get(exemption_row.id, "")
    context = {
        "scope": scope,
        "session": exemption_row.session,
        "exemption": exemption_row,
        "people": exemption_row.minimum,
    }
    return _render_confirm(
        request, code, proof.errors, context | {"grantors": exemptions.load_grantors(exemption_row)}
    )


def _check_step_up(request: MemberRequest, code: str) -> GivenProof:
    """Check code and password; a proof without errors and time if neither was sent."""
    if "code" not in request.POST:
        return GivenProof({})
    return confirmation.check_step_up(request, STEP_UPS[-1], code)


def _step_up_values(proof: GivenProof) -> dict[str, Any]:
    return {
        "step_up": STEP_UPS[-1],
        "password_at_us": proof.password_at_us,
        "password_for": proof.password_for,
    }


def _render_confirm(
    request: MemberRequest, code: str, errors: dict[str, str], context: dict[str, Any]
) -> HttpResponse:
    context |= {
        "code": code,
        "errors": errors,
        "password": not confirmation.is_recently_proved(request),
        "password_until_us": confirmation.password_counts_until_us(request),
    }
    return render(
        request, "approvals/exemptions/confirm.html", context, status=422 if errors else 200
    )


def _report_grant(request: MemberRequest, granted: Exemption) -> None:
    if granted.in_force_at_us is not None:
        messages.success(
            request, f"Effects matching {granted.tool} skip approval until the exemption ends."
        )
        return
    messages.success(
        request,
        f"The exemption of {granted.tool} is requested. "
        f"It starts once {granted.minimum} people have granted it.",
    )


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def revoke_exemption(request: MemberRequest, exemption: UUID) -> HttpResponse:
    """Ask to confirm, then end an exemption early."""
    exemption_row: Exemption = get_object_or_404(
        request.membership.project.exemptions, pk=exemption
    )
    if request.method != "POST":
        return render(request, "approvals/exemptions/revoke.html", {"exemption": exemption_row})
    with transaction.atomic(durable=True):
        ended = exemptions.end_exemption(exemption_row, request.user)
    if ended:
        messages.success(
            request,
            f"The exemption of {exemption_row.tool} has ended. The rules require approval again.",
        )
    else:
        messages.error(request, "The exemption had already ended.", extra_tags="failed")
    return redirect("exemptions")


def _load_session(request: MemberRequest, handle: str) -> Session | None:
    """Load the session of a handle; None for an empty handle. Raises ChangeRefused."""
    if not handle:
        return None
    number = handle.removeprefix("s_")
    if number.isascii() and number.isdigit() and len(number) < 19:
        session = request.membership.project.sessions.filter(opened_position=int(number)).first()
        if session is not None:
            return session
    raise ChangeRefused(
        f"This project has no session {handle}. Copy the handle from its page, such as s_412."
    )
