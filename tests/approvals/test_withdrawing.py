"""Who withdraws a request: its agent and agents of its team, through any of the agents'
endpoints."""

from collections.abc import Iterator
from typing import Any

import pytest
import time_machine
from django.urls import reverse

from accounts import agents
from approvals.gates.statuses import US
from approvals.models import Gate, Vote
from journal.models import Entry
from tests.api.api_client import Caller, code
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer
from tests.pages.sample_data import connect_agent
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db


@pytest.fixture
def second(inbox: InboxScenario) -> Iterator[Caller]:
    """Another agent of the same project."""
    with connect_agent(
        agents.ensure_agent(inbox.project, "build-9", inbox.user("reviewer"))
    ) as caller:
        one_team("deploy-7", "build-9")
        yield caller


def supersede(caller: Caller, effect: dict[str, Any], **options: Any) -> Any:
    return caller.post(f"/effects/{effect['id']}/supersede", **options)


@pytest.mark.parametrize("decided", [False, True])
def test_no_foreign_agent_withdraws_another_agents_request(
    inbox: InboxScenario, decided: bool
) -> None:
    planned = inbox.plan()
    if decided:
        inbox.answer(inbox.gate(planned), "reviewer")
    before = inbox.gate(planned)
    with connect_agent(agents.ensure_agent(inbox.project, "stranger")) as stranger:
        assert code(supersede(stranger, planned)) == (403, "OTHER_AGENT")
    effect = inbox.effect(planned)
    assert (effect.state, effect.permission) == ("planned", "granted" if decided else "pending")
    assert Gate.objects.get().version == before.version
    assert not Entry.objects.filter(kind="effect.superseded").exists()
    assert Entry.objects.filter(kind="integrity.fenced", effect=effect.id).count() == 1
    assert supersede(inbox.agent, planned, key="mine").status_code == 200
    assert (inbox.gate(planned).status, inbox.gate(planned).reason) == ("cancelled", "superseded")
    assert supersede(inbox.agent, planned, key="mine").headers["Idempotent-Replay"] == "true"


@pytest.mark.parametrize("way", ["supersede", "cancel"])
def test_an_agent_of_the_team_withdraws_another_agents_request(
    inbox: InboxScenario, second: Caller, way: str
) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    answer = (
        supersede(second, planned)
        if way == "supersede"
        else second.post(f"/gates/{gate.id}/cancel")
    )
    assert answer.status_code == 200, answer.text
    assert (inbox.gate(planned).status, inbox.effect(planned).permission) == ("cancelled", "none")


def test_any_agent_of_the_team_withdraws_an_effect_without_an_open_gate(
    inbox: InboxScenario, second: Caller
) -> None:
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "reviewer", "deny", "not on a Friday")
    assert supersede(second, planned).json()["state"] == "superseded"


def test_a_passed_deadline_is_not_recorded_as_a_withdrawal(
    inbox: InboxScenario, second: Caller
) -> None:
    planned = inbox.plan()
    with time_machine.travel(inbox.gate(planned).decide_by_us / US + 1, tick=False):
        assert supersede(second, planned).json()["state"] == "superseded"
    assert inbox.gate(planned).status == "expired"


@pytest.mark.parametrize("way", ["withdrawn", "superseded"])
@pytest.mark.parametrize("at", ["answer", "confirm", "proof"])
def test_a_form_of_a_withdrawn_request_asks_for_no_password(
    inbox: InboxScenario, final: Gate, rita: Reviewer, way: str, at: str
) -> None:
    seen = rita.seen(final)
    if at != "answer":
        assert rita.answer(final, seen=seen).status_code == 302
    draft = rita.draft(final) if at == "proof" else ""
    if way == "withdrawn":
        assert inbox.agent.post(f"/gates/{final.id}/cancel", {}).status_code == 200
    else:
        assert inbox.agent.post(f"/effects/{final.effect_id}/supersede").status_code == 200
    if at == "answer":
        answer = rita.answer(final, seen=seen)
    elif at == "confirm":
        answer = rita.client.get(reverse("gate_confirm", args=[final.id]))
    else:
        sent = {"seen_draft": draft, "code": "wrong", "password": "wrong"}
        answer = rita.client.post(reverse("gate_confirm", args=[final.id]), sent)
    text = answer.content.decode()
    assert answer.status_code == 409
    assert 'name="password"' not in text
    assert {"withdrawn": "withdrew its request", "superseded": "was withdrawn"}[way] in text
    assert not Vote.objects.exists()
