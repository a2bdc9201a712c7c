"""Whatever arrives and whatever fails: a 200 that the client understands, and a call is denied."""

import json
from typing import Any

import pytest
from django.db import OperationalError

from accounts import agents
from approvals import plan_command
from hooks.coding_agents import planned_calls
from journal.models import Entry
from tests.hooks.hook_client import (
    HookClient,
    count_attempts,
    list_effects,
    make_caller,
    the_effect,
)
from tests.pages.sample_data import connect_agent

CLIENTS = ("claude-code", "codex", "gemini")


def read_denial(answer: Any) -> str:
    """Check that an answer denies, in the form of its client; return the reason."""
    assert answer.status_code == 200, answer.text
    body = answer.json()
    if "decision" in body:
        assert body["decision"] == "deny"
        return str(body["reason"])
    output = body["hookSpecificOutput"]
    assert output["permissionDecision"] == "deny"
    return str(output["permissionDecisionReason"])


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"not JSON",
        b'{"hook_event_name":"PreToolUse"',
        b'{"hook_event_name":"PreToolUse"}',
        b'{"session_id":"s","hook_event_name":"PreToolUse","tool_input":{}}',
        b'{"session_id":7,"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{}}',
        b'{"session_id":"s","tool_name":"Bash"}',
        b'{"session_id":"s","hook_event_name":"PreToolUseNext","tool_name":7}',
        b'{"session_id":"s","hook_event_name":"BeforeTool"}',
        b"{" * 10_000,
        b'{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"x","tool_input":'
        + b"[" * 40
        + b"]" * 40
        + b"}",
        b'{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"x","tool_input":NaN}',
        b'{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"x","tool_input":1,'
        b'"tool_input":2}',
        b'{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"x","tool_use_id":"t",'
        b'"tool_input":{"a":"half \\ud83d"}}',
    ],
)
def test_a_call_that_cannot_be_read_is_denied(claude: HookClient, client: str, body: bytes) -> None:
    agent = HookClient(claude.scenario, client)
    reason = read_denial(agent.send_raw(body))
    assert "nothing was executed" in reason
    assert list_effects() == []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("token", [None, "gbk_12345678_" + "a" * 43, "nonsense"])
def test_a_bad_token_denies_a_call_and_tells_the_user_of_other_events(
    claude: HookClient, client: str, token: str | None
) -> None:
    stranger = make_caller(token, claude.scenario.agent)
    call = claude.shell("BeforeTool" if client == "gemini" else "PreToolUse", "ls")
    assert "token" in read_denial(stranger.client.post(f"/hooks/{client}", json=call))
    answer = stranger.client.post(f"/hooks/{client}", json=claude.build("Stop"))
    assert answer.status_code == 200
    assert "token" in answer.json()["systemMessage"]
    assert list_effects() == []


def test_an_audit_token_denies(claude: HookClient) -> None:
    with connect_agent(claude.scenario.organization.agent, "audit") as auditor:
        answer = auditor.client.post("/hooks/claude-code", json=claude.shell("PreToolUse", "ls"))
    assert "read-only" in read_denial(answer)


def test_a_token_in_the_address_denies(claude: HookClient) -> None:
    body = json.dumps(claude.shell("PreToolUse", "ls")).encode()
    assert "URL" in read_denial(claude.send_raw(body, "?token=gbk_x"))


def test_a_database_outage_denies_a_call(
    claude: HookClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_what: Any, **_how: Any) -> None:
        raise OperationalError("the database is gone")

    monkeypatch.setattr(plan_command, "plan_with_policy", fail)
    answer = claude.send_raw(json.dumps(claude.shell("PreToolUse", "ls")).encode())
    assert "database is not available" in read_denial(answer)
    assert list_effects() == []


def test_a_bug_denies_a_call_and_is_logged(
    claude: HookClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_what: Any, **_how: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(planned_calls, "decide_call", fail)
    answer = claude.send_raw(json.dumps(claude.shell("PreToolUse", "ls")).encode())
    assert "server's log" in read_denial(answer)
    # A report is lost then, which the user sees.
    monkeypatch.setattr("hooks.coding_agents.hook_facts.record_hook_event", fail)
    assert "server's log" in claude.send(claude.build("Stop"))["systemMessage"]


def test_a_report_of_the_command_that_is_not_recorded_is_sent_again(
    claude: HookClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command keeps what is not answered with 2xx; so an outage must not be a 200."""
    claude.before("ls")
    report = claude.shell("PostToolUse", "ls", tool_response={"stdout": "x"}, gatebook={})

    def fail(*_what: Any, **_how: Any) -> None:
        raise OperationalError("the database is gone")

    with monkeypatch.context() as outage:
        outage.setattr("hooks.coding_agents.reported_calls.record_result", fail)
        answer = claude.send_raw(json.dumps(report).encode())
    assert answer.status_code == 503
    assert "database is not available" in answer.json()["detail"]
    stranger = make_caller("nonsense", claude.scenario.agent)
    assert stranger.client.post("/hooks/claude-code", json=report).status_code == 401
    assert the_effect().state == "dispatched"
    assert claude.send(report) == {}
    assert the_effect().state == "acknowledged"
    # Claude Code runs nothing without the answer to these.
    for event in ("PreToolUse", "PermissionRequest"):
        call = report | {"hook_event_name": event}
        assert stranger.client.post("/hooks/claude-code", json=call).status_code == 200


def test_another_agents_session_denies(claude: HookClient) -> None:
    claude.before("ls")
    call = claude.shell("PreToolUse", "pwd", "t2")
    with connect_agent(agents.ensure_agent(claude.scenario.project, "somebody")) as other:
        answer = other.client.post("/hooks/claude-code", json=call)
    assert "belongs to another agent" in read_denial(answer)
    assert count_attempts() == 1


@pytest.mark.parametrize("event", ["Stop", "TeammateIdle", "PreCompact", "X", "ZweiWörter", "x1"])
def test_any_other_event_is_recorded_with_its_unknown_fields(
    claude: HookClient, event: str
) -> None:
    assert claude.send(claude.build(event, novel={"a": [1]})) == {}
    entry = Entry.objects.get(kind__startswith="hook.")
    assert '"novel":{"a":[1]}' in entry.body.text


def test_an_unknown_event_before_a_call_is_decided_like_a_call(claude: HookClient) -> None:
    body = claude.shell("PreToolUseNext", "git push origin main")
    assert claude.send(body)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert the_effect().permission == "pending"


def test_unknown_fields_of_a_call_change_nothing(claude: HookClient) -> None:
    assert "permissionDecision" not in claude.before("ls", novel=[{"a": 1}])


def test_nul_is_stored_as_it_was_sent(claude: HookClient) -> None:
    body = claude.build(
        "PreToolUse", tool_name="mcp__x__y", tool_input={"text": "a\0b"}, tool_use_id="t"
    )
    claude.send(body)
    plan = claude.scenario.agent.get(f"/effects/{the_effect().id}/plan").json()
    assert plan["arguments"] == {"text": "a\0b"}
    claude.send(body | {"hook_event_name": "PostToolUse", "tool_response": {"stdout": "\0"}})
    assert the_effect().outcome == "ok"


def test_a_result_with_half_a_character_is_recorded_with_a_replacement(
    claude: HookClient,
) -> None:
    claude.before("ls")
    body = json.dumps(claude.shell("PostToolUse", "ls", tool_response={"stdout": "cut \ud83d"}))
    assert claude.send_raw(body.encode()).json() == {}
    assert the_effect().outcome == "ok"
    answer = Entry.objects.get(kind="effect.acknowledged")
    assert "cut \N{REPLACEMENT CHARACTER}" in answer.body.text


def test_a_result_of_20_mb_is_stored_by_its_ends(claude: HookClient) -> None:
    claude.before("cat big")
    assert claude.after("cat big", stdout="0123456789" * 2_000_000) == {}
    assert the_effect().outcome == "ok"
    stored = json.loads(Entry.objects.get(kind="effect.acknowledged").body.text)["result"]
    assert stored["cut"] is True
    assert stored["bytes"] > 20_000_000
    assert len(stored["start"]) == len(stored["end"]) == 30_000


def test_a_call_with_20_mb_of_arguments_is_denied(claude: HookClient) -> None:
    call = claude.build(
        "PreToolUse",
        tool_name="Write",
        tool_input={"file_path": "/x", "content": "0123456789" * 2_000_000},
        tool_use_id="t",
    )
    reason = claude.send(call)["hookSpecificOutput"]["permissionDecisionReason"]
    assert "Split the call" in reason
    assert list_effects() == []


@pytest.mark.parametrize("session", ["x" * 5_000, "with space", "\u0000", "ü"])
def test_a_strange_session_id_still_names_one_session(claude: HookClient, session: str) -> None:
    claude.session = session
    claude.before("ls")
    claude.after("ls")
    assert the_effect().outcome == "ok"


def test_a_secret_in_a_command_is_not_stored(claude: HookClient) -> None:
    secret = "gbk_abcdefgh_" + "A" * 43
    claude.before(f"curl -H 'Authorization: Bearer {secret}' https://example.org")
    assert secret not in Entry.objects.get(kind="effect.planned").body.text


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_another_method_is_denied_too(claude: HookClient, method: str) -> None:
    answer = claude.scenario.agent.client.request(method, "/hooks/claude-code")
    assert "POST" in read_denial(answer)
