"""The session list: kinds with their numbers, orders, and pages of an order."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from pages.sessions import views
from sessions.models import Session
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.query.test_overview_numbers import run_without_permission

pytestmark = pytest.mark.django_db


def read_list(client: Client, query: str = "") -> tuple[str, list[str]]:
    """Return the markup of the list and its handles in order."""
    answer = client.get(f"{reverse('sessions')}{query}")
    assert answer.status_code == 200
    page = answer.content.decode().partition("<main")[2].partition("</main>")[0]
    return page, re.findall(r'class="handle[^"]*" id="(s_\d+)"', page)


def test_each_number_of_sessions_equals_its_list(organization: Organization, agent: Caller) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    inbox.declare("deploy")
    inbox.plan("waits", tool="deploy")
    for key, status in (("bad", "failed"), ("good", "completed")):
        opened = agent.session(key)
        agent.post(f"/sessions/{opened['id']}/end", {"status": status})
    reported = {"id": "f", "kind": "effect.planned", "session": "reported-later", "effect_key": "e"}
    agent.report([{**reported, "session": agent.session("reported", mode="reported")["id"]}])
    viewer = organization.client("viewer")
    page, handles = read_list(viewer)
    assert len(handles) == Session.objects.count()
    tabs = re.findall(r'<a href="([^"]+)"[^>]*>\s*([A-Z][a-z ]+) (\d+)\s*</a>', page)
    numbers = {words: int(number) for _, words, number in tabs}
    assert numbers["Waiting"] == numbers["Failed"] == numbers["Reported or imported"] == 1
    assert (numbers["Ended"], numbers["Needs attention"]) == (2, 0)
    for link, words, number in tabs:
        listed = read_list(viewer, link.replace("&amp;", "&"))[1]
        assert len(listed) == int(number), words
    run_without_permission(inbox, "alone")  # until a person acknowledges it
    page = read_list(viewer)[0]
    assert re.search(r"Needs attention 1\s*</a>", page)
    assert len(read_list(viewer, "?show=attention")[1]) == 1
    names_agent = reverse("agent", args=[organization.agent.id])
    assert page.count(f'<a href="{names_agent}">') == len(handles)


def test_sessions_are_ordered_and_paged_by_problems_effects_and_last_act(
    organization: Organization, agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, errors, fine in (("a", 1, 3), ("b", 3, 0), ("c", 0, 1)):
        agent.session(key)
        for number in range(errors + fine):
            effect = agent.plan(f"{key}{number}", key, arguments={"n": f"{key}{number}"})
            agent.dispatch(effect)
            agent.acknowledge(effect, outcome="error" if number < errors else "ok")
    agent.plan("last", "a")
    handles = {row.key: str(row) for row in Session.objects.all()}
    viewer = organization.client("viewer")
    page, by_problems = read_list(viewer, "?sort=problems")
    assert by_problems == [handles["b"], handles["a"]]
    assert re.search(r"problems=1#timeline\"\s*>3</a>", page)
    assert read_list(viewer, "?sort=effects")[1] == [handles[key] for key in "abc"]
    assert read_list(viewer, "?sort=seen")[1] == [handles[key] for key in "acb"]
    assert read_list(viewer)[1] == [handles[key] for key in "cba"]
    monkeypatch.setattr(views, "SIZE", 1)
    for sort, order in (("effects", "abc"), ("seen", "acb"), ("problems", "ba")):
        query, paged = f"?sort={sort}", list[str]()
        while query:
            page, rows = read_list(viewer, query)
            paged += rows
            links = re.findall(r'rel="next" href="([^"]+)"', page)
            query = links[0].replace("&amp;", "&") if links else ""
        assert paged == [handles[key] for key in order], sort
