"""No page shows a session without a worker as running, or its effects as settling by themselves."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.stuck import sweeper
from monitoring.stuck.rule_inputs import LeaseInput
from recovery import liveness
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import ORGANIZATIONS_TOKEN, connect_agent
from tests.recovery.lease_helpers import expire, hold

pytestmark = pytest.mark.django_db
RULES = "name: n\nrules:\n- {id: p, title: P, match: {tools: [git.push]}, outcome: require}\n"
NOW = 10**15


def lease(expires: int, **more: Any) -> LeaseInput:
    return LeaseInput(1, "p-1", 0, 0, NOW + expires, 0, 0, **more)


@pytest.mark.parametrize(
    ("status", "mode", "start_by", "held", "helped", "expected"),
    [
        ("running", "leased", None, lease(1), False, "running"),
        ("running", "leased", None, lease(-1), False, "worker gone"),
        ("waiting", "leased", None, lease(-1), False, "worker gone"),
        ("running", "leased", None, lease(-1, quiet_until_us=NOW + 1), False, "running"),
        ("running", "leased", None, lease(-1, quiet_until_us=NOW - 1), False, "worker gone"),
        ("running", "leased", None, lease(-1), True, "running"),
        ("running", "leased", None, lease(1, released_at_us=NOW - 1), False, "no worker"),
        ("waiting", "leased", None, lease(1, released_at_us=NOW - 1), False, "waiting"),
        ("running", "leased", NOW + 1, None, False, "running"),
        ("running", "leased", NOW - 1, None, False, "not started"),
        ("completed", "leased", None, lease(-1), False, "completed"),
        ("suspended", "leased", None, lease(-1), False, "suspended"),
        ("running", "one_shot", None, None, False, "running"),
        ("running", "reported", None, None, False, "end not reported"),
    ],
)
def test_the_shown_liveness_follows_status_mode_and_lease(
    status: str, mode: str, start_by: int | None, held: Any, helped: bool, expected: str
) -> None:
    assert liveness.shown_liveness(status, mode, start_by, held, helped, NOW) == expected


@pytest.fixture
def agent(organization: Organization) -> Any:
    with connect_agent(organization.agent, kept=ORGANIZATIONS_TOKEN) as caller:
        yield caller


def text(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, url
    return answer.content.decode()


def states(html: str) -> list[str]:
    """Return the labels of all states on a page."""
    return re.findall(r'<span class="state [\w-]+"><svg.*?</svg>(.*?)</span>', html)


def test_every_page_shows_a_dead_worker_while_a_gate_is_pending(
    organization: Organization, agent: Caller
) -> None:
    InboxScenario(organization, agent).rules(RULES)
    session = agent.session("s-1", mode="leased", title="Worker that dies")
    child = agent.session("s-2", mode="leased", parent=session["id"])
    held = hold(agent, "s-1")
    other = hold(agent, "s-2")
    agent.plan("waits", lease_epoch=held["epoch"])
    client = organization.client("reviewer")
    incident = reverse("open_incident")
    opened = client.post(
        incident, {"title": "Dead worker", "thing": session["handle"], "reason": "it died"}
    )
    assert opened.status_code == 302, opened.content.decode()
    of = {"session": session["id"]}
    pages = [
        *(
            reverse(name, kwargs=of)
            for name in ("session", "session_timeline", "session_state", "session_resume")
        ),
        *(
            reverse(name, kwargs=of)
            for name in ("session_why", "session_decisions", "session_handoffs")
        ),
        reverse("session", args=[session["id"]]) + "timeline/?view=lanes",
        reverse("session_diff", args=[session["id"], child["id"]]),
        reverse("sessions") + "?text=Worker",
        reverse("search") + "?q=session+mode:leased",
    ]
    for url in pages:
        assert "running" in states(text(client, url)), url
    expire(held)
    expire(other)
    for url in pages:
        html = text(client, url)
        # Facets of a search count stored states.
        shown_states = states(
            html.rpartition("<tbody")[2].partition("</tbody>")[0] if "/search/" in url else html
        )
        assert "worker gone" in shown_states, url
        assert "running" not in shown_states, url
    members = text(client, opened["Location"])
    assert "worker gone" in states(members)
    resume = text(client, reverse("session_resume", kwargs=of))
    assert "No active worker" in resume
    why = text(client, reverse("session_why", kwargs=of))
    assert "No worker." in why
    assert "Not stuck." not in why
    assert 'class="statement is-ack"' not in resume
    filtered = text(client, reverse("sessions") + "?status=worker_gone")
    assert "Worker that dies" in filtered
    assert "Worker that dies" not in text(client, reverse("sessions") + "?status=running")


def test_nothing_settles_by_itself_without_a_worker(
    organization: Organization, agent: Caller
) -> None:
    agent.session("s-1", mode="leased")
    held = hold(agent, "s-1")
    probeable = {
        "name": "git.push",
        "tool_class": "probeable",
        "reversibility": "compensable",
        "deadline_s": 1,
    }
    InboxScenario(organization, agent).declare(probeable["name"], tool_class="probeable")  # type: ignore[arg-type]
    planned = agent.plan("push", lease_epoch=held["epoch"])
    agent.post(
        f"/effects/{planned['id']}/dispatch",
        {
            "process": "p-1",
            "intent_digest": planned["intent_digest"],
            "lease_epoch": held["epoch"],
        },
    )
    from ledger.models import Effect

    Effect.objects.update(deadline_us=1)
    sweeper.sweep_stuck()
    client = organization.client("reviewer")
    board = text(client, reverse("stuck"))
    assert "settles by itself" in board
    expire(held)
    board = text(client, reverse("stuck"))
    assert "settles by itself" not in board
    assert "Outcome unknown, and no worker to check it" in board
