"""An attempt in doubt is replaced only as the verdict table says, once, and under the leave that the row asks for."""


import pytest

from ledger.models import Attempt, Effect
from sessions.models import Project
from tests.ingest.caller import Caller
from tests.recovery.remote import declare, replay, verdict


@pytest.fixture
def worker(agent: Caller) -> Caller:
    """An agent with an open session, in a project whose tools are declared."""
    declare(Project.objects.get(name="default"))
    agent.session()
    return agent


def dispatched(worker: Caller, tool: str, key: str = "e-1", **fields: object) -> dict[str, object]:
    effect = worker.plan(key, tool=tool, **fields)
    worker.dispatch(effect)
    return effect


def test_a_keyed_effect_is_replayed_under_the_same_remote_key_and_the_old_attempt_is_replaced(worker: Caller) -> None:
    effect = dispatched(worker, "pay.keyed")
    said = verdict(worker, effect)
    assert (said["verdict"], said["row"], said["reason"]) == ("replay", "17", "KEY_LIVE")
    assert said["needs_leave"] is False
    answer = replay(worker, effect)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["attempt"], answer.json()["remote_key"]) == (2, said["remote_key"])
    first, second = Attempt.objects.filter(effect=effect["id"]).order_by("number")
    assert (first.is_open, first.replaced, second.is_open) == (False, True, True)
    assert (second.replaces, second.verdict_row, second.remote_key) == (1, "17", first.remote_key)
    assert worker.acknowledge(effect, 2)["answer"] == "done"
    assert Effect.objects.get(id=effect["id"]).violates is False
