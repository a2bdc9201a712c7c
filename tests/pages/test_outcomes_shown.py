"""Effects that failed or ran without approval never have the success mark in a list."""

import re

import pytest
from django.urls import reverse

from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import ORGANIZATIONS_TOKEN, connect_agent

ROW = re.compile(r"<(tr|li)\b.*?</\1>", re.DOTALL)
RULES = """
name: n
rules:
- {id: t, title: T, match: {tools: [test.run]}, outcome: allow}
- {id: p, title: P, match: {tools: [git.push]}, outcome: require}
"""


@pytest.fixture
def effects(organization: Organization) -> dict[str, dict[str, str]]:
    """Create an error, a push that ran without approval, and a waiting push, in one session."""
    with connect_agent(organization.agent, kept=ORGANIZATIONS_TOKEN) as agent:
        inbox = InboxScenario(organization, agent)
        inbox.rules(RULES)
        agent.session("s-1", mode="one_shot")
        failed = agent.plan("test", tool="test.run", arguments={"command": "pytest -q"})
        agent.dispatch(failed)
        agent.acknowledge(failed, outcome="error", result="exit 1")
        bypassed = agent.plan("by", arguments={"ref": "by"})
        report(agent, bypassed)
        waits = agent.plan("waits", arguments={"ref": "waits"})
    assert inbox.effect(bypassed).permission == "bypassed"
    return {"error": failed, "bypassed": bypassed, "waits": waits}


def report(agent: Caller, effect: dict[str, str]) -> None:
    """Report a dispatch and an answer that were never requested."""
    kinds = {"effect.dispatched": {"process": "p-1"}, "effect.acknowledged": {"outcome": "ok"}}
    items = [
        {
            "id": f"r-{kind}",
            "kind": kind,
            "session": "s-1",
            "effect_key": "by",
            "attempt": 1,
            **more,
        }
        for kind, more in kinds.items()
    ]
    answer = agent.report(items)
    assert answer.status_code in (200, 207), answer.text
    assert "refused" not in answer.text, answer.text


def test_no_list_gives_an_error_or_a_violation_the_mark_of_success(
    organization: Organization, effects: dict[str, dict[str, str]]
) -> None:
    viewer = organization.client("viewer")
    session = effects["error"]["session"]
    pages = [
        reverse("gate", args=[effects["waits"]["gate"]["id"]]),  # type: ignore[index]
        reverse("session", args=[session]),
        reverse("session_timeline", args=[session]),
        reverse("session_resume", args=[session]),
        reverse("effect_chain", args=[effects["waits"]["id"]]),
        reverse("search") + "?q=effect",
        reverse("session", args=[session]) + "?asof=0s",
    ]
    for name, tool in (("error", "test.run"), ("bypassed", "git.push")):
        shown = 0
        for url in pages:
            html = viewer.get(url).content.decode()
            for row in (match[0] for match in ROW.finditer(html)):
                if (
                    f"/effects/{effects[name]['id']}/" in row
                    and tool in row
                    and 'class="state' in row
                ):
                    shown += 1
                    assert "#ack" not in row, (name, url, row)
                    assert "is-failed" in row, (name, url, row)
        assert shown >= 4, name


def test_an_effect_that_ran_without_approval_is_headed_by_that(
    organization: Organization, effects: dict[str, dict[str, str]]
) -> None:
    html = (
        organization.client("viewer")
        .get(reverse("effect", args=[effects["bypassed"]["id"]]))
        .content.decode()
    )
    head = html.partition("<h1>")[2].partition("</header>")[0]
    assert "#ack" not in head
    statement = re.search(
        r'<section class="statement is-long ([\w-]+)".*?<h2[^>]*>(.*?)</h2>', html, re.DOTALL
    )
    assert statement
    assert statement[1] == "is-failed"
    assert statement[2].strip().startswith("<b>Ran without approval:</b> acknowledged")
    life = html.partition('<ol class="lifecycle')[2].partition("</ol>")[0]
    assert "permission bypassed" in life
