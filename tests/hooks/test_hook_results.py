"""How calls ended: acknowledged, failed, executed without permission, or never planned."""

from typing import Any

import pytest

from approvals.models import Gate
from journal.models import Entry
from ledger.violations import load_effect_violations
from tests.hooks.hook_client import FIRST_SESSION, PUSH, RULES, HookClient, list_effects, the_effect

NOT_PERMITTED = ["Executed without approval."]


def test_a_result_after_a_hook_timeout_is_a_violation_at_once(claude: HookClient) -> None:
    """The client's hook timed out and the client ran the held call."""
    claude.before()
    answer = claude.after()
    effect = the_effect()
    assert (effect.state, effect.permission, effect.violates) == (
        "acknowledged",
        "bypassed",
        True,
    )
    assert load_effect_violations(effect) == NOT_PERMITTED
    assert "without Gatebook's permission" in answer["systemMessage"]
    assert str(effect) in answer["systemMessage"]
    assert Gate.objects.get().status == "cancelled"
    entries = Entry.objects.count()
    assert claude.after() == {}
    assert Entry.objects.count() == entries


def test_a_denied_call_that_ran_is_a_violation(claude: HookClient) -> None:
    claude.before()
    claude.rule_on_only_gate("deny", reason="not today")
    claude.after()
    assert load_effect_violations(the_effect()) == NOT_PERMITTED


def test_a_rewritten_call_that_its_gate_did_not_begin_is_no_violation(claude: HookClient) -> None:
    """`gatebook exec` lost its connection, and ended with an exit code of its own."""
    command = "kubectl delete pod p1"
    updated = claude.before(command, gatebook={"rewrite": True})["updatedInput"]["command"]
    assert claude.fail("Exit code 69\ngatebook: Nothing was begun.", updated) == {}
    effect = the_effect()
    assert (effect.state, effect.permission, effect.violates) == ("planned", "granted", False)


@pytest.mark.parametrize("more", ["; kubectl delete pod p2", ";kubectl delete pod p2", " &"])
def test_a_command_behind_a_rewritten_one_is_a_violation(claude: HookClient, more: str) -> None:
    command = "kubectl delete pod p1"
    updated = claude.before(command, gatebook={"rewrite": True})["updatedInput"]["command"]
    claude.scenario.rules(
        RULES.replace("match: {}\n    outcome: allow", "match: {}\n    outcome: deny")
    )
    claude.after(updated + more, "toolu_2")
    assert [effect.violates for effect in list_effects()] == [False, True]


def test_a_call_that_was_never_planned_is_evidence(claude: HookClient) -> None:
    claude.after("ls")
    effect = the_effect()
    assert (effect.state, effect.lane, effect.permission) == (
        "acknowledged",
        "evidence",
        "observed",
    )
    assert not effect.violates
    entries = Entry.objects.count()
    claude.after("ls")
    assert Entry.objects.count() == entries


def test_a_held_call_that_was_never_planned_is_a_violation(claude: HookClient) -> None:
    """Gatebook was away when the hook came, and is back when the call ends."""
    claude.after()
    assert load_effect_violations(the_effect()) == NOT_PERMITTED


@pytest.mark.parametrize(
    ("error", "more", "state", "outcome", "reason"),
    [
        ("Exit code 3\npar", {}, "acknowledged", "error", ""),
        ("Exit code 127\nls: not found", {}, "failed", "error", "rejected"),
        ("Exit code 137", {}, "failed", "unknown", "error"),
        ("Command timed out after 2m 0s", {}, "failed", "unknown", "timeout"),
        ("Exit code 1", {"is_interrupt": True}, "failed", "unknown", "error"),
        ("Permission to use Bash has been denied.", {}, "failed", "error", "rejected"),
        ("socket hang up", {}, "acknowledged", "error", ""),
    ],
)
def test_a_failure_of_claude_code(
    claude: HookClient, error: str, more: dict[str, Any], state: str, outcome: str, reason: str
) -> None:
    claude.before("ls")
    assert claude.fail(error, "ls", **more) == {}
    effect = the_effect()
    assert (effect.state, effect.outcome, effect.failure_reason) == (state, outcome, reason)


def test_a_program_of_a_compound_command_may_have_run(claude: HookClient) -> None:
    claude.before("make && missing")
    claude.fail("Exit code 127", "make && missing")
    assert (the_effect().state, the_effect().outcome) == ("acknowledged", "error")


@pytest.mark.parametrize(
    ("response", "state", "outcome"),
    [
        ({"stdout": "", "interrupted": True}, "failed", "unknown"),
        ({"stdout": "", "backgroundTaskId": "b1"}, "acknowledged", "unknown"),
        ({"isError": True, "content": []}, "acknowledged", "error"),
        ([{"type": "text", "text": "x"}], "acknowledged", "ok"),
        (None, "acknowledged", "ok"),
    ],
)
def test_a_result_of_claude_code(
    claude: HookClient, response: Any, state: str, outcome: str
) -> None:
    claude.before("ls")
    claude.send(claude.shell("PostToolUse", "ls") | {"tool_response": response})
    assert (the_effect().state, the_effect().outcome) == (state, outcome)


def test_a_result_keeps_where_the_rest_of_the_output_is(claude: HookClient) -> None:
    claude.before("ls")
    response = {"stdout": "x", "persistedOutputPath": "/t/o.txt", "persistedOutputSize": 9}
    claude.send(claude.shell("PostToolUse", "ls", tool_response=response, duration_ms=41))
    text = Entry.objects.get(kind="effect.acknowledged").body.text
    assert '"persistedOutputPath":"/t/o.txt"' in text
    assert '"duration_ms":41' in text


def test_a_refusal_of_the_client_says_that_nothing_happened(claude: HookClient) -> None:
    claude.before("ls")
    claude.send(claude.shell("PermissionDenied", "ls", reason="the user said no"))
    effect = the_effect()
    assert (effect.state, effect.failure_reason) == ("failed", "rejected")
    claude.turn = "turn-2"
    assert "permissionDecision" not in claude.before("ls", "toolu_2")


def test_a_push_names_the_commit_that_the_remote_has(claude: HookClient) -> None:
    claude.before()
    claude.rule_on_only_gate()
    claude.before(prompt_id=None)
    claude.after(stdout="To x\n   a1b2c3d..4e5f6a7  HEAD -> agent/cc\n", prompt_id=None)
    assert the_effect().external_reference == "4e5f6a7"


def test_a_result_ends_no_call_of_another_session(codex: HookClient) -> None:
    """Models number their calls: two sessions have a `call_1`."""
    codex.before("ls", "call_1")
    codex.session = "another-session"
    codex.send(codex.shell("PostToolUse", "ls", "call_1", tool_response="x\n"))
    first, second = list_effects()
    assert (first.state, first.session.key) == ("dispatched", FIRST_SESSION)
    assert (second.state, second.session.key) == ("acknowledged", "another-session")


def test_codex_reports_no_exit_code(codex: HookClient) -> None:
    codex.before("make test", "call_1")
    codex.send(codex.shell("PostToolUse", "make test", "call_1", tool_response="ok\n"))
    assert (the_effect().state, the_effect().outcome) == ("acknowledged", "ok")
    codex.before(PUSH, "call_2")
    codex.rule_on_only_gate()
    codex.before(PUSH, "call_3")
    codex.send(codex.shell("PostToolUse", PUSH, "call_3", tool_response="pushed\n"))
    push = the_effect(tool="git.push")
    assert (push.state, push.outcome) == ("acknowledged", "unknown")


def test_codex_learns_after_a_crash_what_may_have_happened(codex: HookClient) -> None:
    codex.before(PUSH, "call_1")
    codex.rule_on_only_gate()
    codex.before(PUSH, "call_2")
    answer = codex.send(codex.build("SessionStart", source="resume", turn_id=None))
    context = answer["hookSpecificOutput"]["additionalContext"]
    assert str(the_effect()) in context
    assert "A person must resolve it" in context


def test_the_end_of_a_turn_names_calls_without_a_result(claude: HookClient) -> None:
    """The client's own permissions refused the call, which no hook reports."""
    call = {"tool_name": "mcp__x__send", "tool_input": {"to": "a"}, "tool_use_id": "t"}
    claude.send(claude.build("PreToolUse", **call))
    claude.before("ls", "toolu_2")
    message = claude.send(claude.build("Stop"))["systemMessage"]
    assert str(the_effect(tool="mcp__x__send")) in message
    assert "shell.read" not in message


def send_gemini(gemini: HookClient, event: str, at: str, **fields: Any) -> dict[str, Any]:
    return gemini.send(gemini.build(event, timestamp=at, **fields))


def shell_gemini(command: str, content: Any = None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "tool_name": "run_shell_command",
        "tool_input": {"command": command, "description": "why"},
    }
    if content is not None:
        fields["tool_response"] = {"llmContent": content, "returnDisplay": ""}
    return fields


@pytest.mark.parametrize(
    ("content", "state", "outcome"),
    [
        ("Output: x\nProcess Group PGID: 1", "acknowledged", "ok"),
        ("Output: x\nExit Code: 3\nProcess Group PGID: 1", "acknowledged", "error"),
        ("Output: x\nExit Code: (none)\nSignal: 9", "failed", "unknown"),
        # What a command prints is not how it ended, and a hook may add words behind the end.
        ("Output: Exit Code: 3\nExit Code: 4\nbeads\nProcess Group PGID: 1", "acknowledged", "ok"),
        (
            [
                "<untrusted_context>\nOutput: x\nExit Code: 3\nProcess Group PGID: 1\n"
                "</untrusted_context>",
                {"text": "[System] Tool input parameters were modified by a hook."},
            ],
            "acknowledged",
            "error",
        ),
        ("Command moved to background (PID: 7). Output hidden.", "acknowledged", "unknown"),
        (
            "Command was automatically cancelled because it exceeded the timeout",
            "failed",
            "unknown",
        ),
        ("Command was cancelled by user before it could start.", "failed", "error"),
    ],
)
def test_a_result_of_gemini(gemini: HookClient, content: Any, state: str, outcome: str) -> None:
    call = shell_gemini("make test")
    assert send_gemini(gemini, "BeforeTool", "t1", **call) == {"decision": "allow"}
    send_gemini(gemini, "AfterTool", "t2", **shell_gemini("make test", content))
    assert (the_effect().state, the_effect().outcome) == (state, outcome)


def test_equal_calls_of_gemini_are_told_apart_by_their_number(gemini: HookClient) -> None:
    for number in range(3):
        send_gemini(gemini, "BeforeTool", f"b{number}", **shell_gemini("ls"))
        send_gemini(gemini, "AfterTool", f"a{number}", **shell_gemini("ls", "Output: x"))
    effects = list_effects()
    assert [effect.effect_key.rpartition(":")[2] for effect in effects] == ["0", "1", "2"]
    assert {effect.outcome for effect in effects} == {"ok"}


def test_gemini_waits_by_a_denial_and_continues_with_an_equal_call(gemini: HookClient) -> None:
    first = send_gemini(gemini, "BeforeTool", "t1", **shell_gemini(PUSH))
    assert first["decision"] == "deny"
    assert str(the_effect()) in first["reason"]
    gemini.rule_on_only_gate()
    assert send_gemini(gemini, "BeforeTool", "t2", **shell_gemini(PUSH)) == {"decision": "allow"}
    # The process is killed, and the next one repeats the call.
    again = send_gemini(gemini, "BeforeTool", "t3", **shell_gemini(PUSH))
    assert again["decision"] == "deny"
    assert "A person must resolve it" in again["reason"]
    assert the_effect().attempt_count == 1
