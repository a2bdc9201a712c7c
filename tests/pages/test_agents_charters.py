"""An agent's charter: shown and changed by administrators, every version in the journal."""

import json

from django.urls import reverse

from accounts import agents, people
from accounts.models import Agent
from journal.models import Body, Entry
from tests.pages.people import Organization

CHARTER = "Deploy the web shop.\nNever on a Friday."


def store(organization: Organization, charter: str, version: int) -> object:
    return organization.client("administrator").post(
        reverse("agent_settings", args=[organization.agent.pk]),
        {"charter": charter, "version": version},
    )


def test_a_charter_is_stored_as_a_version_and_kept_in_the_journal(
    organization: Organization,
) -> None:
    client, url = (
        organization.client("administrator"),
        reverse("agent_settings", args=[organization.agent.pk]),
    )
    assert url in client.get(reverse("agent", args=[organization.agent.pk])).text
    assert "no charter" in client.get(url).text
    answer = client.post(url, {"charter": CHARTER.replace("\n", "\r\n"), "version": 0}, follow=True)
    assert "at version 1" in answer.text
    assert "Never on a Friday." in answer.text
    agent = Agent.objects.get(pk=organization.agent.pk)
    assert (agent.charter, agent.charter_version) == (CHARTER, 1)
    entry = Entry.objects.get(kind="admin.agent_chartered")
    assert entry.actor == people.ensure_pseudonym(organization.members["administrator"].user)
    assert json.loads(entry.facts) == {"agent": str(agent.id), "charter_version": 1}
    assert json.loads(Body.objects.get(entry=entry).text)["charter"] == CHARTER


def test_storing_the_same_again_makes_no_version(organization: Organization) -> None:
    store(organization, CHARTER, 0)
    store(organization, f"  {CHARTER}\n", 1)
    assert Agent.objects.get(pk=organization.agent.pk).charter_version == 1
    assert Entry.objects.filter(kind="admin.agent_chartered").count() == 1


def test_the_second_of_two_concurrent_edits_is_refused(organization: Organization) -> None:
    store(organization, CHARTER, 0)
    client, url = (
        organization.client("administrator"),
        reverse("agent_settings", args=[organization.agent.pk]),
    )
    answer = client.post(url, {"charter": "Deploy whenever.", "version": 0})
    assert answer.status_code == 422
    assert "Another person changed the agent" in answer.text
    assert "Deploy whenever." in answer.text, "what was written is not lost"
    assert Agent.objects.get(pk=organization.agent.pk).charter == CHARTER


def test_a_charter_that_is_too_long_or_contains_nul_is_refused(organization: Organization) -> None:
    client, url = (
        organization.client("administrator"),
        reverse("agent_settings", args=[organization.agent.pk]),
    )
    for charter in ("x" * (agents.MAX_CHARTER_CHARACTERS + 1), "a\0b"):
        assert client.post(url, {"charter": charter, "version": 0}).status_code == 422
    assert (
        client.post(url, {"charter": "x" * agents.MAX_CHARTER_CHARACTERS, "version": 0}).status_code
        == 302
    )
    assert Agent.objects.get(pk=organization.agent.pk).charter_version == 1


def test_markup_in_a_charter_is_text(organization: Organization) -> None:
    store(organization, "</textarea><script>alert(1)</script>", 0)
    text = (
        organization.client("administrator")
        .get(reverse("agent_settings", args=[organization.agent.pk]))
        .text
    )
    assert "<script>alert" not in text
    assert "&lt;/textarea&gt;" in text
