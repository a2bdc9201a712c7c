"""Teams: members of the project only, every change is in the journal, only administrators make one."""

import json
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from accounts import people, projects, teams
from accounts.models import ROLES, Membership, Team, TeamMember
from db.errors import ChangeRefused
from journal.models import Body, Entry
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db


def bodies_of(kind: str) -> list[dict[str, Any]]:
    bodies = Body.objects.filter(entry__kind=kind).order_by("entry")
    return [json.loads(body.text) for body in bodies]


def post(organization: Organization, page: str, *args: Any, **fields: Any) -> Any:
    return organization.client("administrator").post(reverse(page, args=args), fields)


def test_a_team_is_created_and_filled_on_its_page(organization: Organization) -> None:
    reviewer = organization.members["reviewer"]
    assert post(organization, "teams", name="leads").status_code == 302
    team = Team.objects.get()
    assert post(organization, "add_to_team", team.pk, member=reviewer.pk).status_code == 302
    assert teams.load_team_names(organization.project, reviewer.user) == {"leads"}
    page = organization.client("administrator").get(reverse("teams")).content.decode()
    assert "<code>leads</code>" in page
    assert 'Remove<span class="visually-hidden"> reviewer from leads</span>' in page
    assert post(organization, "remove_from_team", team.pk, member=reviewer.pk).status_code == 302
    assert teams.load_team_names(organization.project, reviewer.user) == set()
    assert bodies_of("admin.team_created")[0]["name"] == "leads"
    for kind in ("admin.team_member_added", "admin.team_member_removed"):
        [body] = bodies_of(kind)
        assert (body["team"], body["username"]) == ("leads", "reviewer")
        assert Entry.objects.get(kind=kind).actor == people.ensure_pseudonym(
            organization.members["administrator"].user
        )


@pytest.mark.parametrize("name", ["", "Leads", "a b", "x" * 65, "-x"])
def test_a_name_that_no_rule_can_write_is_refused(organization: Organization, name: str) -> None:
    assert post(organization, "teams", name=name).status_code == 422
    assert not Team.objects.exists()


def test_a_name_is_given_once_in_a_project(organization: Organization) -> None:
    post(organization, "teams", name="leads")
    again = post(organization, "teams", name="leads")
    assert (again.status_code, Team.objects.count()) == (422, 1)
    assert "already a team" in again.content.decode()
    teams.create_team(organization.other, "leads")


def test_only_members_of_the_project_belong_to_its_teams(organization: Organization) -> None:
    team = teams.create_team(organization.project, "leads")
    assert (
        post(organization, "add_to_team", team.pk, member=organization.neighbour.pk).status_code
        == 404
    )
    with pytest.raises(ChangeRefused), transaction.atomic():
        teams.add_team_member(team, organization.neighbour)
    foreign = teams.create_team(organization.other, "leads")
    member = organization.members["reviewer"]
    for name in ("add_to_team", "remove_from_team", "dissolve_team"):
        assert post(organization, name, foreign.pk, member=member.pk).status_code == 404
    assert not TeamMember.objects.exists()


def test_each_project_shows_only_its_own_teams(organization: Organization) -> None:
    reviewer = organization.members["reviewer"]
    elsewhere = people.add_project_member(organization.other, "reviewer", "reviewer")
    teams.add_team_member(teams.create_team(organization.project, "leads"), reviewer)
    teams.add_team_member(teams.create_team(organization.other, "owners"), elsewhere)
    assert teams.load_team_names(organization.project, reviewer.user) == {"leads"}
    assert teams.load_team_names(organization.other, reviewer.user) == {"owners"}


def test_leaving_a_project_leaves_its_teams_with_an_entry_for_each(
    organization: Organization,
) -> None:
    reviewer = organization.members["reviewer"]
    for name in ("leads", "ops"):
        teams.add_team_member(teams.create_team(organization.project, name), reviewer)
    assert post(organization, "remove_person", reviewer.pk).status_code == 302
    assert not Membership.objects.filter(pk=reviewer.pk).exists()
    assert not TeamMember.objects.exists()
    assert [body["team"] for body in bodies_of("admin.team_member_removed")] == ["leads", "ops"]


def test_a_team_is_dissolved_after_a_question(organization: Organization) -> None:
    team = teams.create_team(organization.project, "leads")
    teams.add_team_member(team, organization.members["reviewer"])
    question = organization.client("administrator").get(reverse("dissolve_team", args=[team.pk]))
    assert "It has 1 member." in question.content.decode()
    assert post(organization, "dissolve_team", team.pk).status_code == 302
    assert not Team.objects.exists()
    assert len(bodies_of("admin.team_member_removed")) == len(bodies_of("admin.team_removed")) == 1


@pytest.mark.parametrize("role", ROLES[:-1])
def test_only_administrators_keep_teams(organization: Organization, role: str) -> None:
    team = teams.create_team(organization.project, "leads")
    client = organization.client(role)
    for name, args in (("teams", []), ("add_to_team", [team.pk]), ("dissolve_team", [team.pk])):
        assert client.post(reverse(name, args=args), {"name": "mine"}).status_code == 403
    assert client.get(reverse("teams")).status_code == 403
    assert Team.objects.count() == 1


def test_a_project_without_teams_has_no_team_names(organization: Organization) -> None:
    assert (
        teams.load_team_names(
            projects.create_project("third"), organization.members["reviewer"].user
        )
        == set()
    )
