"""Who withdraws a request: the agent that asked and agents of its team, by whichever of the agents'
doors."""

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
from tests.approvals.inbox_scenario import Desk
from tests.approvals.reviewer import Reviewer
from tests.pages.sample_data import doors
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db


@pytest.fixture
def second(desk: Desk) -> Iterator[Caller]:
    """Another agent of the same project."""
    with doors(agents.ensure_agent(desk.project, "build-9", desk.user("reviewer"))) as caller:
        one_team("deploy-7", "build-9")
        yield caller


def supersede(caller: Caller, effect: dict[str, Any], **options: Any) -> Any:
    return caller.post(f"/effects/{effect['id']}/supersede", **options)


@pytest.mark.parametrize("decided", [False, True])
def test_no_stranger_withdraws_what_another_agent_asked_for(desk: Desk, decided: bool) -> None:
    planned = desk.plan()
    if decided:
        desk.answer(desk.gate(planned), "reviewer")
    before = desk.gate(planned)
    with doors(agents.ensure_agent(desk.project, "stranger")) as stranger:
        assert code(supersede(stranger, planned)) == (403, "OTHER_AGENT")
    effect = desk.effect(planned)
    assert (effect.state, effect.permission) == ("planned", "granted" if decided else "pending")
    assert Gate.objects.get().version == before.version
    assert not Entry.objects.filter(kind="effect.superseded").exists()
    assert Entry.objects.filter(kind="integrity.fenced", effect=effect.id).count() == 1
    assert supersede(desk.agent, planned, key="mine").status_code == 200
    assert (desk.gate(planned).status, desk.gate(planned).reason) == ("cancelled", "superseded")
    assert supersede(desk.agent, planned, key="mine").headers["Idempotent-Replay"] == "true"


@pytest.mark.parametrize("way", ["supersede", "cancel"])
def test_an_agent_of_the_team_withdraws_what_another_asked_for(
    desk: Desk, second: Caller, way: str
) -> None:
    planned = desk.plan()
    gate = desk.gate(planned)
    answer = (
        supersede(second, planned)
        if way == "supersede"
        else second.post(f"/gates/{gate.id}/cancel")
    )
    assert answer.status_code == 200, answer.text
    assert (desk.gate(planned).status, desk.effect(planned).permission) == ("cancelled", "none")


def test_what_nobody_is_asked_about_any_agent_of_the_team_withdraws(
    desk: Desk, second: Caller
) -> None:
    planned = desk.plan()
    desk.answer(desk.gate(planned), "reviewer", "deny", "not on a Friday")
    assert supersede(second, planned).json()["state"] == "superseded"


def test_a_deadline_that_had_passed_is_not_told_as_a_withdrawal(desk: Desk, second: Caller) -> None:
    planned = desk.plan()
    with time_machine.travel(desk.gate(planned).decide_by_us / US + 1, tick=False):
        assert supersede(second, planned).json()["state"] == "superseded"
    assert desk.gate(planned).status == "expired"


@pytest.mark.parametrize("way", ["withdrawn", "superseded"])
@pytest.mark.parametrize("at", ["answer", "confirm", "proof"])
def test_what_was_withdrawn_while_its_form_was_open_asks_for_no_password(
    desk: Desk, final: Gate, rita: Reviewer, way: str, at: str
) -> None:
    seen = rita.seen(final)
    if at != "answer":
        assert rita.answer(final, seen=seen).status_code == 302
    draft = rita.draft(final) if at == "proof" else ""
    if way == "withdrawn":
        assert desk.agent.post(f"/gates/{final.id}/cancel", {}).status_code == 200
    else:
        assert desk.agent.post(f"/effects/{final.effect_id}/supersede").status_code == 200
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
