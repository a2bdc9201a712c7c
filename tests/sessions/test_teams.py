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
from tests.pages.people import House

pytestmark = pytest.mark.django_db


def bodies_of(kind: str) -> list[dict[str, Any]]:
    bodies = Body.objects.filter(entry__kind=kind).order_by("entry")
    return [json.loads(body.text) for body in bodies]


def post(house: House, page: str, *args: Any, **fields: Any) -> Any:
    return house.client("administrator").post(reverse(page, args=args), fields)


def test_a_team_is_created_and_filled_on_its_page(house: House) -> None:
    reviewer = house.members["reviewer"]
    assert post(house, "teams", name="leads").status_code == 302
    team = Team.objects.get()
    assert post(house, "add_to_team", team.pk, member=reviewer.pk).status_code == 302
    assert teams.load_team_names(house.project, reviewer.user) == {"leads"}
    page = house.client("administrator").get(reverse("teams")).content.decode()
    assert "<code>leads</code>" in page
    assert 'Remove<span class="visually-hidden"> reviewer from leads</span>' in page
    assert post(house, "remove_from_team", team.pk, member=reviewer.pk).status_code == 302
    assert teams.load_team_names(house.project, reviewer.user) == set()
    assert bodies_of("admin.team_created")[0]["name"] == "leads"
    for kind in ("admin.team_member_added", "admin.team_member_removed"):
        [body] = bodies_of(kind)
        assert (body["team"], body["username"]) == ("leads", "reviewer")
        assert Entry.objects.get(kind=kind).actor == people.ensure_pseudonym(
            house.members["administrator"].user
        )


@pytest.mark.parametrize("name", ["", "Leads", "a b", "x" * 65, "-x"])
def test_a_name_that_no_rule_can_write_is_refused(house: House, name: str) -> None:
    assert post(house, "teams", name=name).status_code == 422
    assert not Team.objects.exists()


def test_a_name_is_given_once_in_a_project(house: House) -> None:
    post(house, "teams", name="leads")
    again = post(house, "teams", name="leads")
    assert (again.status_code, Team.objects.count()) == (422, 1)
    assert "already a team" in again.content.decode()
    teams.create_team(house.other, "leads")


def test_only_members_of_the_project_belong_to_its_teams(house: House) -> None:
    team = teams.create_team(house.project, "leads")
    assert post(house, "add_to_team", team.pk, member=house.neighbour.pk).status_code == 404
    with pytest.raises(ChangeRefused), transaction.atomic():
        teams.add_team_member(team, house.neighbour)
    foreign = teams.create_team(house.other, "leads")
    member = house.members["reviewer"]
    for name in ("add_to_team", "remove_from_team", "dissolve_team"):
        assert post(house, name, foreign.pk, member=member.pk).status_code == 404
    assert not TeamMember.objects.exists()


def test_each_project_shows_only_its_own_teams(house: House) -> None:
    reviewer = house.members["reviewer"]
    elsewhere = people.add_project_member(house.other, "reviewer", "reviewer")
    teams.add_team_member(teams.create_team(house.project, "leads"), reviewer)
    teams.add_team_member(teams.create_team(house.other, "owners"), elsewhere)
    assert teams.load_team_names(house.project, reviewer.user) == {"leads"}
    assert teams.load_team_names(house.other, reviewer.user) == {"owners"}


def test_leaving_a_project_leaves_its_teams_with_an_entry_for_each(house: House) -> None:
    reviewer = house.members["reviewer"]
    for name in ("leads", "ops"):
        teams.add_team_member(teams.create_team(house.project, name), reviewer)
    assert post(house, "remove_person", reviewer.pk).status_code == 302
    assert not Membership.objects.filter(pk=reviewer.pk).exists()
    assert not TeamMember.objects.exists()
    assert [body["team"] for body in bodies_of("admin.team_member_removed")] == ["leads", "ops"]


def test_a_team_is_dissolved_after_a_question(house: House) -> None:
    team = teams.create_team(house.project, "leads")
    teams.add_team_member(team, house.members["reviewer"])
    question = house.client("administrator").get(reverse("dissolve_team", args=[team.pk]))
    assert "It has 1 member." in question.content.decode()
    assert post(house, "dissolve_team", team.pk).status_code == 302
    assert not Team.objects.exists()
    assert len(bodies_of("admin.team_member_removed")) == len(bodies_of("admin.team_removed")) == 1


@pytest.mark.parametrize("role", ROLES[:-1])
def test_only_administrators_keep_teams(house: House, role: str) -> None:
    team = teams.create_team(house.project, "leads")
    client = house.client(role)
    for name, args in (("teams", []), ("add_to_team", [team.pk]), ("dissolve_team", [team.pk])):
        assert client.post(reverse(name, args=args), {"name": "mine"}).status_code == 403
    assert client.get(reverse("teams")).status_code == 403
    assert Team.objects.count() == 1


def test_a_project_without_teams_has_no_team_names(house: House) -> None:
    assert (
        teams.load_team_names(projects.create_project("third"), house.members["reviewer"].user)
        == set()
    )
