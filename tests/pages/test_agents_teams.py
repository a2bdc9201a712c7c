"""Set teams of agents on the agent's page or with a token; each change is journalled."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from accounts.models import Agent
from journal.models import Body, Entry
from tests.pages.people import Organization
from tests.rows_with_entries import add_row

pytestmark = pytest.mark.django_db
KIND = "admin.agent_team_changed"


def test_an_administrator_puts_an_agent_into_a_team_and_takes_it_out(
    organization: Organization,
) -> None:
    admin, at = (
        organization.client("administrator"),
        reverse("change_agent_team", args=[organization.agent.id]),
    )
    page = reverse("agent_settings", args=[organization.agent.id])
    other = add_row(Agent(project=organization.project, name="rescue-1", team="night"))
    for team in ("night", "night", ""):
        assert admin.post(at, {"team": team}).headers["Location"] == page
        assert Agent.objects.get(id=organization.agent.id).team == team
        assert (reverse("agent", args=[other.id]) in admin.get(page).text) is bool(team)
    entries = Entry.objects.filter(kind=KIND).order_by("position")
    assert [(entry.subject, entry.actor.startswith("p_")) for entry in entries] == [
        (organization.agent.id, True)
    ] * 2
    assert '"team":"night"' in Body.objects.get(entry=entries[0]).text


@pytest.mark.parametrize("team", ["Night shift", "-x", "a/b", "x" * 65, "nüll"])
def test_an_invalid_team_name_is_refused_with_a_sentence(
    organization: Organization, team: str
) -> None:
    at = reverse("change_agent_team", args=[organization.agent.id])
    refused = organization.client("administrator").post(at, {"team": team})
    assert (refused.status_code, Agent.objects.get(id=organization.agent.id).team) == (422, "")
    assert "Choose another" in refused.text or "at most 64 characters" in refused.text
    assert not Entry.objects.filter(kind=KIND).exists()


def test_only_administrators_set_teams(organization: Organization) -> None:
    at = reverse("change_agent_team", args=[organization.agent.id])
    for role in ("viewer", "reviewer", "operator"):
        assert organization.client(role).post(at, {"team": "x"}).status_code == 403
    foreign = reverse("change_agent_team", args=[organization.other_token.agent_id])
    assert organization.client("administrator").post(foreign, {"team": "x"}).status_code == 404
    assert set(Agent.objects.values_list("team", flat=True)) == {""}


def test_a_token_is_issued_into_a_team(organization: Organization) -> None:
    def issue(*more: str) -> None:
        call_command("issue_token", "--agent", "rescue-1", *more, stdout=StringIO())

    issue("--team", "night")
    issue()  # without a team
    assert Agent.objects.get(name="rescue-1").team == "night"
    with pytest.raises(CommandError, match="Choose another"):
        issue("--team", "No Team")
    issue("--team", "")
    assert Agent.objects.get(name="rescue-1").team == ""
    assert Entry.objects.filter(kind=KIND, actor="gatebook").count() == 2
