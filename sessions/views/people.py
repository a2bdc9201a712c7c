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

from sessions import invitations, once, people
from sessions.access import MemberRequest, requires
from sessions.models import ROLES
from sessions.refused import RefusedError

MEANINGS = (
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
@requires("administrator")
def people_page(request: MemberRequest) -> HttpResponse:
    """List the members; POST invites a person. The next page shows a password once.

    The page shows a password for known and unknown names alike.
    """
    form = PersonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        username, role = form.cleaned_data["username"], form.cleaned_data["role"]
        try:
            with transaction.atomic(durable=True):
                actor = people.pseudonym_of(request.user)
                password = invitations.invite(
                    request.membership.project, username, role, actor=actor
                )
        except RefusedError as refusal:
            form.add_error("username", str(refusal))
        else:
            response = redirect("people")
            once.put(request, response, password, kind="invitation", name=username)
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
        "meanings": MEANINGS,
        "shown": once.take(request),
    }
    context["invited"] = invited
    return once.cleared(
        render(request, "sessions/people.html", context, status=422 if form.errors else 200)
    )


@require_POST
@requires("administrator")
def withdraw_invitation(request: MemberRequest, invitation: UUID) -> HttpResponse:
    """Withdraw an invitation that was not answered."""
    project = request.membership.project
    get_object_or_404(project.invitations, pk=invitation)
    try:
        with transaction.atomic(durable=True):
            name = invitations.withdraw(
                project, invitation, actor=people.pseudonym_of(request.user)
            )
    except RefusedError as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        messages.success(request, f"The invitation of {name} is withdrawn.")
    return redirect("people")


@require_POST
@requires("administrator")
def change_role(request: MemberRequest, member: UUID) -> HttpResponse:
    """Give a member another role."""
    membership = get_object_or_404(
        request.membership.project.memberships.select_related("user", "project"), pk=member
    )
    role = request.POST.get("role", "")
    try:
        with transaction.atomic(durable=True):
            people.change_role(membership, role, actor=people.pseudonym_of(request.user))
    except RefusedError as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        messages.success(request, f"{membership.user.get_username()} is {role} now.")
    return redirect("people")


@require_http_methods(["GET", "HEAD", "POST"])
@requires("administrator")
def remove_person(request: MemberRequest, member: UUID) -> HttpResponse:
    """Confirm, then remove a member from the project."""
    membership = get_object_or_404(
        request.membership.project.memberships.select_related("user", "project"), pk=member
    )
    if request.method != "POST":
        return render(request, "sessions/remove_person.html", {"member": membership})
    name = membership.user.get_username()
    try:
        with transaction.atomic(durable=True):
            people.remove(membership, actor=people.pseudonym_of(request.user))
    except RefusedError as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        messages.success(request, f"{name} no longer belongs to {request.membership.project.name}.")
    return redirect("people")


@require_http_methods(["GET", "HEAD", "POST"])
@requires("administrator")
def reset_password(request: MemberRequest, member: UUID) -> HttpResponse:
    """Confirm, then give a member a new password, which the next page shows once."""
    membership = get_object_or_404(
        request.membership.project.memberships.select_related("user", "project"), pk=member
    )
    if request.method != "POST":
        return render(request, "sessions/reset_password.html", {"member": membership})
    response = redirect("people")
    try:
        with transaction.atomic(durable=True):
            password = people.reset_password(
                membership, request.user, actor=people.pseudonym_of(request.user)
            )
    except RefusedError as refusal:
        messages.error(request, str(refusal), extra_tags="failed")
    else:
        once.put(request, response, password, kind="reset", name=membership.user.get_username())
    return response
