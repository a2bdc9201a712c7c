"""Teams, which rules can ask for approval. For administrators."""

from uuid import UUID

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from accounts import people, teams
from accounts.access import MemberRequest, role_required
from accounts.models import Membership, Team
from db.errors import ChangeRefused


class NewTeamForm(forms.Form):
    """The name of a new team."""

    name = forms.CharField(
        max_length=64,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
        ),
        help_text="As rules write it: a-z, 0-9 and -",
    )


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def teams_page(request: MemberRequest) -> HttpResponse:
    """List the teams with their members; POST creates one."""
    project = request.membership.project
    form = NewTeamForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            with transaction.atomic(durable=True):
                teams.create_team(
                    project, form.cleaned_data["name"], actor=people.ensure_pseudonym(request.user)
                )
        except ChangeRefused as refusal:
            form.add_error("name", str(refusal))
        else:
            return redirect("teams")
    rows = project.teams.prefetch_related("members__membership__user").order_by("name")
    memberships = list(project.memberships.select_related("user").order_by("user__username"))
    context = {"form": form, "teams": [_team_row(team, memberships) for team in rows]}
    return render(request, "accounts/teams.html", context, status=422 if form.errors else 200)


@require_POST
@role_required("administrator")
def add_to_team(request: MemberRequest, team: UUID) -> HttpResponse:
    """Add a member of the project to a team."""
    stored, membership = _load_team_and_member(request, team)
    with transaction.atomic(durable=True):
        teams.add_team_member(stored, membership, actor=people.ensure_pseudonym(request.user))
    messages.success(request, f"{membership.user.get_username()} belongs to {stored.name} now.")
    return redirect("teams")


@require_POST
@role_required("administrator")
def remove_from_team(request: MemberRequest, team: UUID) -> HttpResponse:
    """Remove a member from a team."""
    stored, membership = _load_team_and_member(request, team)
    with transaction.atomic(durable=True):
        teams.remove_team_member(stored, membership, actor=people.ensure_pseudonym(request.user))
    messages.success(
        request, f"{membership.user.get_username()} no longer belongs to {stored.name}."
    )
    return redirect("teams")


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("administrator")
def delete_team_page(request: MemberRequest, team: UUID) -> HttpResponse:
    """Confirm, then delete a team."""
    stored = get_object_or_404(request.membership.project.teams, pk=team)
    if request.method != "POST":
        return render(
            request,
            "accounts/dissolve_team.html",
            {"team": stored, "members": stored.members.count()},
        )
    with transaction.atomic(durable=True):
        teams.delete_team(stored, actor=people.ensure_pseudonym(request.user))
    messages.success(request, f"The team {stored.name} is deleted.")
    return redirect("teams")


def _load_team_and_member(request: MemberRequest, team: UUID) -> tuple[Team, Membership]:
    """Return the team of the path and the member of the form, both of this project."""
    project = request.membership.project
    try:
        member = UUID(request.POST.get("member", ""))
    except ValueError:
        member = UUID(int=0)
    stored = get_object_or_404(project.teams, pk=team)
    return stored, get_object_or_404(project.memberships.select_related("user"), pk=member)


def _team_row(team: Team, memberships: list[Membership]) -> dict[str, object]:
    member_ids = {membership.membership_id for membership in team.members.all()}
    return {
        "team": team,
        "members": [membership for membership in memberships if membership.pk in member_ids],
        "others": [membership for membership in memberships if membership.pk not in member_ids],
    }
