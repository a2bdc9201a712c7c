"""Who withdraws a request: the agent that asked and nobody else, by whichever of the agents' doors."""

from collections.abc import Iterator
from typing import Any

import pytest
import time_machine

from approvals.models import Gate
from approvals.states import US
from journal.models import Entry
from sessions import agents
from tests.approvals.story import Desk
from tests.ingest.caller import Caller, code
from tests.pages.book import doors

pytestmark = pytest.mark.django_db


@pytest.fixture
def second(desk: Desk) -> Iterator[Caller]:
    """Another agent of the same project."""
    with doors(agents.ensure(desk.project, "build-9", desk.user("reviewer"))) as caller:
        yield caller


def supersede(caller: Caller, effect: dict[str, Any], **options: Any) -> Any:
    return caller.post(f"/effects/{effect['id']}/supersede", **options)


@pytest.mark.parametrize("decided", [False, True])
def test_no_agent_withdraws_what_another_asked_for(desk: Desk, second: Caller, decided: bool) -> None:
    planned = desk.plan()
    if decided:
        desk.answer(desk.gate(planned), "reviewer")
    before = desk.gate(planned)
    refused = supersede(second, planned)
    assert code(refused) == (409, "NO_LEAVE")
    assert "only that agent withdraws it" in refused.json()["detail"]
    effect = desk.effect(planned)
    assert (effect.state, effect.leave) == ("planned", "granted" if decided else "pending")
    assert Gate.objects.get().version == before.version
    assert not Entry.objects.filter(kind="effect.superseded").exists()
    assert supersede(desk.agent, planned, key="mine").status_code == 200
    assert (desk.gate(planned).status, desk.gate(planned).reason) == ("cancelled", "superseded")
    assert supersede(desk.agent, planned, key="mine").headers["Idempotent-Replay"] == "true"


def test_what_nobody_is_asked_about_any_agent_withdraws(desk: Desk, second: Caller) -> None:
    planned = desk.plan()
    desk.answer(desk.gate(planned), "reviewer", "deny", "not on a Friday")
    assert supersede(second, planned).json()["state"] == "superseded"


def test_a_deadline_that_had_passed_is_not_told_as_a_withdrawal(desk: Desk, second: Caller) -> None:
    planned = desk.plan()
    with time_machine.travel(desk.gate(planned).decide_by_us / US + 1, tick=False):
        assert supersede(second, planned).json()["state"] == "superseded"
    assert desk.gate(planned).status == "expired"
