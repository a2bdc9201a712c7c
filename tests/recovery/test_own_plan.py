"""An agent reads its own plan again; other agents cannot read it."""

from collections.abc import Callable

from tests.api.api_client import Caller


def test_an_agent_reads_its_own_plan_again_without_its_secrets(agent: Caller) -> None:
    agent.session("s")
    secret = {"ref": "fix", "headers": {"Authorization": "Bearer 0123456789abcdef0123456789abcdef"}}
    effect = agent.plan(
        "k", "s", arguments=secret, why="all tests pass", target={"ref": "refs/heads/fix"}
    )
    answer = agent.get(f"/effects/{effect['id']}/plan")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["effect"], body["effect_key"], body["tool"]) == (effect["id"], "k", "git.push")
    assert (body["redactions"], body["arguments"]["ref"], body["why"]) == (
        1,
        "fix",
        "all tests pass",
    )
    assert body["target"] == {"ref": "refs/heads/fix"}
    assert "0123456789abcdef" not in answer.text


def test_other_agents_cannot_read_a_plan(agent: Caller, call: Callable[..., Caller]) -> None:
    agent.session("s")
    effect = agent.plan("k", "s")
    for other in (call("another"), call("tester", project="elsewhere")):
        answer = other.get(f"/effects/{effect['id']}/plan")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_reported_effect_without_arguments_has_none(agent: Caller) -> None:
    agent.report([{"id": "1", "kind": "effect.dispatched", "session": "s", "effect_key": "k"}])
    (effect,) = agent.get("/effects", session="s").json()["items"]
    answer = agent.get(f"/effects/{effect['id']}/plan")
    assert answer.status_code == 200
    assert "arguments" not in answer.json()
