"""Every recorded hook of the real clients gets an answer, and is recorded once."""

from typing import Any

import pytest

from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session
from tests.approvals.inbox_scenario import InboxScenario
from tests.hooks.hook_client import HookClient, list_effects, read_sample
from tests.matrices import keep_core

RECORDED = {
    "claude_code_http_hooks": "claude-code",
    "claude_code_http_hooks_edge_bytes": "claude-code",
    "claude_code_command_hooks": "claude-code",
    "codex_hooks": "codex",
    "gemini_hooks": "gemini",
}
ALLOW = "name: open\nrules:\n- {id: all, title: All, match: {}, outcome: allow}\n"


def is_denied(answer: dict[str, Any]) -> bool:
    output = answer.get("hookSpecificOutput", {})
    return "deny" in (answer.get("decision"), output.get("permissionDecision"))


@pytest.fixture
def open_project(ruled: InboxScenario) -> InboxScenario:
    """A project whose rules allow everything."""
    ruled.rules(ALLOW)
    return ruled


@pytest.mark.parametrize(("name", "client"), RECORDED.items())
def test_every_recorded_hook_is_answered_and_recorded(
    open_project: InboxScenario, name: str, client: str
) -> None:
    agent = HookClient(open_project, client)
    bodies = read_sample(name)
    for body in bodies:
        answer = agent.send(body)
        if body["hook_event_name"] in ("PreToolUse", "BeforeTool"):
            output = answer.get("hookSpecificOutput", {})
            assert answer.get("decision") or output["hookEventName"] == "PreToolUse"
        else:
            assert "permissionDecision" not in answer.get("hookSpecificOutput", {})
            assert answer.keys() <= {"hookSpecificOutput", "systemMessage"}
            # Only a push of a process that was killed has no result at the end of a turn.
            message = answer.get("systemMessage", "")
            assert not message or ("git.push" in message and "resolve it" in message)
    ids = {body["session_id"] for body in bodies}
    assert ids <= set(Session.objects.values_list("key", flat=True))
    assert not Entry.objects.filter(kind__startswith="integrity.").exists()
    # What the hooks reported as ended is acknowledged.
    ended = [body for body in bodies if body["hook_event_name"].startswith(("Post", "After"))]
    ended = [body for body in ended if "tool_name" in body]
    assert Effect.objects.filter(state="acknowledged").count() == len(ended)


@pytest.mark.parametrize(("name", "client"), keep_core(RECORDED.items(), one_in=3))
def test_each_recorded_hook_that_comes_twice_changes_nothing(
    open_project: InboxScenario, name: str, client: str
) -> None:
    agent = HookClient(open_project, client)
    for body in read_sample(name):
        first = agent.send(body)
        entries = Entry.objects.count()
        second = agent.send(body)
        assert Entry.objects.count() == entries, body["hook_event_name"]
        is_call = body["hook_event_name"] == "PreToolUse"
        if is_call and "prompt_id" not in body and client == "claude-code":
            # After --continue nothing tells a repeated delivery from another process.
            assert is_denied(second)
        else:
            assert second == first


def test_the_recorded_crashes_of_claude_code_run_nothing_twice(
    open_project: InboxScenario,
) -> None:
    """The runs cb and ca were killed before and after the push reported its result."""
    agent = HookClient(open_project)
    denied = []
    for body in read_sample("claude_code_command_hooks"):
        if is_denied(agent.send(body)):
            denied.append(body["cwd"].split("/")[-2])
    # rej and cb were killed in flight; ca repeats a push that was acknowledged, under its id.
    assert denied == ["cb", "ca"]
    for effect in list_effects(tool="git.push"):
        assert effect.attempt_count == 1


def test_the_recorded_push_is_held_deferred_approved_and_continued(ruled: InboxScenario) -> None:
    """The run d of Claude Code, with `defer` and --continue, against the inbox of people."""
    agent = HookClient(ruled)
    run = [body for body in read_sample("claude_code_http_hooks") if "/w7/d/" in body["cwd"]]
    first = [body for body in run if body.get("prompt_id", "").startswith("e86429ca")]
    rest = [body for body in run if body not in first]
    answers = [agent.send(body, "?waiting=defer") for body in first]
    assert answers[-2]["hookSpecificOutput"]["permissionDecision"] == "defer"
    agent.rule_on_only_gate()
    answers = [agent.send(body, "?waiting=defer") for body in rest]
    assert answers[0]["hookSpecificOutput"]["permissionDecision"] == "allow"
    (push,) = list_effects(tool="git.push")
    assert (push.state, push.outcome, push.attempt_count) == ("acknowledged", "ok", 1)
    assert push.ref.endswith("refs/heads/agent/cc")


def test_a_recorded_subagent_is_a_child_session(open_project: InboxScenario) -> None:
    agent = HookClient(open_project)
    for body in read_sample("claude_code_http_hooks"):
        if "/w7/sub/" in body["cwd"]:
            agent.send(body)
    child = Session.objects.get(key="33d0fade-36c8-468b-8e9c-289abfa78ed3/abe8532397b4bfb67")
    assert child.parent is not None
    assert child.labels["agent_type"] == "general-purpose"
    assert [effect.tool for effect in list_effects(session=child)] == ["shell.edit"]
    failed = Effect.objects.get(call_id="toolu_main_02")
    assert (failed.state, failed.outcome) == ("acknowledged", "error")
