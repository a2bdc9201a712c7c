"""The page of an agent: each number equals its search; costs do not grow; who sees what."""

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from journal.models import Entry
from tests.approvals.conftest import quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.linked_numbers import check_linked_numbers
from tests.pages.people import Organization
from tests.pages.sample_data import fill

__all__ = ["quiet"]
DAY_US = 86_400_000_000


def act(inbox: InboxScenario) -> None:
    """Plan effects of every state, requests of several ends, and one without permission."""
    inbox.declare("git.push")
    fill(inbox.agent)  # before any policy: nothing waits
    inbox.rules()
    for number, answer in enumerate(("approve", "approve", "deny", "request_changes", "")):
        gate = inbox.gate(inbox.plan(f"push-{number}", tool="git.push", arguments=[number]))
        if answer:
            inbox.answer(gate, "rita", answer)
    early = inbox.plan("early", tool="git.push", arguments=["at once"])
    session, key = early["session"], early["effect_key"]
    fact = {"session": session, "effect_key": key, "attempt": 1}
    inbox.agent.report(
        [
            {"kind": "effect.dispatched", "id": "f-1", **fact},
            {"kind": "effect.acknowledged", "id": "f-2", "outcome": "ok", **fact},
        ]
    )


def test_every_number_of_the_page_equals_the_search_that_it_links_to(
    quiet: InboxScenario, organization: Organization
) -> None:
    act(quiet)
    page = organization.client("administrator").get(reverse("agent", args=[organization.agent.pk]))
    numbers = check_linked_numbers(page.text, quiet.project)
    of = {query.partition(" since:")[0]: number for query, number in numbers.items()}
    assert of["gate agent:deploy-7 status:pending"] == 1
    by_end = {query.rpartition(" ")[2]: number for query, number in numbers.items()}
    assert by_end["status:[approved,used,expired_unused,revoked]"] == 2
    assert by_end["status:[denied,denied_session]"] == 1
    assert by_end["permission:bypassed"] == 1
    assert len(numbers) > 25


def test_the_queries_of_the_page_do_not_grow_with_what_the_agent_did(
    quiet: InboxScenario, organization: Organization
) -> None:
    client = organization.client("viewer")
    url = reverse("agent", args=[organization.agent.pk])
    fill(quiet.agent)
    client.get(url)

    def count_queries() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(url).status_code == 200
        return len(queries)

    before = count_queries()
    fill(quiet.agent, words="-more", key="another")
    for number in range(20):
        quiet.plan(f"more-{number}", tool=f"tool.{number}", arguments=[number])
    assert count_queries() == before


def test_pages_that_name_the_agent_link_to_it(
    quiet: InboxScenario, organization: Organization
) -> None:
    act(quiet)
    gate = quiet.gate(quiet.plan("linked", tool="git.push", arguments=["linked"]))
    then = f"?asof=%23{Entry.objects.latest('position').position}"
    client = organization.client("administrator")
    link = f'href="{reverse("agent", args=[organization.agent.pk])}"'
    for url in (
        reverse("gate", args=[gate.pk]),
        reverse("gate_history", args=[gate.pk]) + then,
        reverse("effect", args=[gate.effect_id]),
        reverse("effect", args=[gate.effect_id]) + then,
        reverse("session", args=[gate.session_id]),
        reverse("session", args=[gate.session_id]) + then,
        reverse("inbox"),
        "/",
        "/search/?q=effect",
        "/search/?q=gate",
        "/search/?q=session",
    ):
        assert link in client.get(url).text, url


def test_settings_tokens_and_the_stop_are_for_those_who_may_use_them(
    organization: Organization,
) -> None:
    path = reverse("agent", args=[organization.agent.pk])
    stop = f"{reverse('stop')}?scope=agent&amp;subject={organization.agent.pk.hex}"
    settings = reverse("agent_settings", args=[organization.agent.pk])
    shown = {
        role: [
            text in organization.client(role).get(path).text for text in (stop, settings, "gbk_")
        ]
        for role in ("viewer", "reviewer", "administrator")
    }
    assert shown == {
        "viewer": [False, False, False],
        "reviewer": [True, False, False],
        "administrator": [True, True, True],
    }
