"""The people of the current project and their roles, for its administrators."""

from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from accounts import invitations, one_time_secret, people
from accounts.access import MemberRequest, role_required
from accounts.models import ROLES
from db.errors import ChangeRefused

ROLE_MEANINGS = (
    ("viewer", "reads everything in the project"),
    ("reviewer", "also approves or denies requests, and stops agents"),
    ("operator", "also grants exemptions, messages agents and resolves unknown outcomes"),
    (
        "administrator",
        "also manages people, teams, tokens, policies, notifications and repositories,"
        " and erases texts",
    ),
)

PAGE = 50


class PersonForm(forms.Form):
    """A name and a role."""

    username = forms.CharField(
        label="Name",
        max_length=150,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
        ),
        help_text="What they sign in with: letters, digits and @ . + - _",
    )
    role = forms.ChoiceField(choices=[(role, role) for role in ROLES])

    def clean_username(self) -> str:
        """Validate the name as a username."""
        username: str = self.cleaned_data["username"]
        User._meta.get_field("username").run_validators(username)
        return username


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def people_page(request: MemberRequest) -> HttpResponse:
    """List the members; POST invites a person. The next page shows a password once.

    The page shows a password for known and unknown names alike.
    """
    form = PersonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        username, role = form.cleaned_data["username"], form.cleaned_data["role"]
        try:
            with transaction.atomic(durable=True):
                actor = people.ensure_pseudonym(request.user)
                password = invitations.invite_person(
                    request.membership.project, username, role, actor=actor
                )
        except ChangeRefused as refusal:
            form.add_error("username", str(refusal))
        else:
            response = redirect("people")
            one_time_secret.store_secret_once(
                request, response, password, kind="invitation", name=username
            )
            return response
    rows = request.membership.project.memberships.select_related("user", "user__person").order_by(
        "user__username"
    )
    members = Paginator(rows, PAGE).get_page(request.GET.get("page"))
    invited = request.membership.project.invitations.select_related("user").order_by(
        "user__username"
    )
    context = {
        "form": form,
        "members": members,
        "roles": ROLES,
        "meanings": ROLE_MEANINGS,
        "shown": one_time_secret.take_secret_once(request),
    }
    context["invited"] = invited
    return one_time_secret.clear_secret_cookie(
        render(request, "accounts/people.html", context, status=422 if form.errors else 200)
    )


@require_POST
@role_required("administrator")
def withdraw_invitation_page(request: MemberRequest, invitation: UUID) -> HttpResponse:
    """Withdraw an invitation that was not answered."""
    project = request.membership.project
    get_object_or_404(project.invitations, pk=invitation)
    try:
        with transaction.atomic(durable=True):
            name = invitations.cancel_invitation(
                project, invitation, actor=people.ensure_pseudonym(request.user)
            )
    except ChangeRefused as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        messages.success(request, f"The invitation of {name} is withdrawn.")
    return redirect("people")


@require_POST
@role_required("administrator")
def change_role_page(request: MemberRequest, member: UUID) -> HttpResponse:
    """Give a member another role."""
    membership = get_object_or_404(
        request.membership.project.memberships.select_related("user", "project"), pk=member
    )
    role = request.POST.get("role", "")
    try:
        with transaction.atomic(durable=True):
            people.change_project_role(
                membership, role, actor=people.ensure_pseudonym(request.user)
            )
    except ChangeRefused as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        messages.success(request, f"{membership.user.get_username()} is {role} now.")
    return redirect("people")


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def remove_person_page(request: MemberRequest, member: UUID) -> HttpResponse:
    """Confirm, then remove a member from the project."""
    membership = get_object_or_404(
        request.membership.project.memberships.select_related("user", "project"), pk=member
    )
    if request.method != "POST":
        return render(request, "accounts/remove_person.html", {"member": membership})
    name = membership.user.get_username()
    try:
        with transaction.atomic(durable=True):
            people.remove_project_member(membership, actor=people.ensure_pseudonym(request.user))
    except ChangeRefused as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        messages.success(request, f"{name} no longer belongs to {request.membership.project.name}.")
    return redirect("people")


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def reset_password_page(request: MemberRequest, member: UUID) -> HttpResponse:
    """Confirm, then give a member a new password, which the next page shows once."""
    membership = get_object_or_404(
        request.membership.project.memberships.select_related("user", "project"), pk=member
    )
    if request.method != "POST":
        return render(request, "accounts/reset_password.html", {"member": membership})
    response = redirect("people")
    try:
        with transaction.atomic(durable=True):
            password = people.reset_member_password(
                membership, request.user, actor=people.ensure_pseudonym(request.user)
            )
    except ChangeRefused as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        one_time_secret.store_secret_once(
            request, response, password, kind="reset", name=membership.user.get_username()
        )
    return response
