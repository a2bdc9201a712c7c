"""An agent reads its own plan again; another agent of the project does not, nor does one of another
project."""

from collections.abc import Callable

from tests.api.api_client import Caller


def test_an_agent_reads_its_own_plan_again_without_its_secrets(agent: Caller) -> None:
    agent.session("s")
    secret = {"ref": "fix", "headers": {"Authorization": "Bearer 0123456789abcdef0123456789abcdef"}}
    effect = agent.plan(
        "k", "s", arguments=secret, why="all tests pass", target={"ref": "refs/heads/fix"}
    )
    told = agent.get(f"/effects/{effect['id']}/plan")
    assert told.status_code == 200
    body = told.json()
    assert (body["effect"], body["effect_key"], body["tool"]) == (effect["id"], "k", "git.push")
    assert (body["redactions"], body["arguments"]["ref"], body["why"]) == (
        1,
        "fix",
        "all tests pass",
    )
    assert body["target"] == {"ref": "refs/heads/fix"}
    assert "0123456789abcdef" not in told.text


def test_nobody_else_reads_it(agent: Caller, call: Callable[..., Caller]) -> None:
    agent.session("s")
    effect = agent.plan("k", "s")
    for other in (call("another"), call("tester", project="elsewhere")):
        told = other.get(f"/effects/{effect['id']}/plan")
        assert (told.status_code, told.json()["code"]) == (404, "not_found")


def test_of_what_was_reported_without_arguments_none_are_invented(agent: Caller) -> None:
    agent.report([{"id": "1", "kind": "effect.dispatched", "session": "s", "effect_key": "k"}])
    (effect,) = agent.get("/effects", session="s").json()["items"]
    told = agent.get(f"/effects/{effect['id']}/plan")
    assert told.status_code == 200
    assert "arguments" not in told.json()
