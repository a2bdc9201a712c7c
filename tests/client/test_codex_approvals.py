"""`gatebook codex-approvals` before a scripted app-server and a scripted Gatebook."""

import argparse
import io
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gatebook_client import codex_approvals_command
from gatebook_client.call_permissions import CallPermissions
from gatebook_client.codex_approvals_command import CodexProxy, enforce_policy
from gatebook_client.json_rpc import LineWriter

from evaluation.bench.installation import own_port
from tests.client.agents.app_server import has_fields
from tests.client.hook_server import HookServer, serve_hooks
from tests.config.server import ROOT

pytestmark = pytest.mark.once
TOKEN = "gbk_abcdefgh_" + "x" * 43
PROGRAM = Path(__file__).with_name("agents") / "app_server.py"
PLACE = {"threadId": "thread-1", "turnId": "turn-1", "itemId": "call-1", "startedAtMs": 1}
COMMAND = "/bin/bash -lc 'git push origin HEAD'"
ASK = {
    "id": 0,
    "method": codex_approvals_command.COMMAND_REQUEST,
    "params": PLACE | {"kind": "command", "command": COMMAND, "cwd": "/tmp", "reason": "the fix"},
}
ITEM = {
    "type": "commandExecution",
    "id": "call-1",
    "command": COMMAND,
    "cwd": "/tmp",
    "source": "agent",
    "status": "completed",
    "exitCode": 0,
    "aggregatedOutput": "pushed\n",
    "durationMs": 7,
}
ACCEPTED = {"wait": {"id": 0, "result": {"decision": "accept"}}}
DECLINED = {"wait": {"id": 0, "result": {"decision": "decline"}}}


def wait_until(when: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not when():
        assert time.monotonic() < until
        time.sleep(0.01)


def complete(**fields: Any) -> dict[str, Any]:
    params = {"threadId": "thread-1", "turnId": "turn-1", "item": ITEM | fields}
    return {"send": {"method": "item/completed", "params": params}}


class Proxy:
    """The proxy between a client and an app-server, which plays a script."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.received: list[dict[str, Any]] = []  # by the app-server

    def run(self, *steps: dict[str, Any], sends: str = "") -> str:
        """Play the script to its end, in this process; return what the client gets."""
        arrived: queue.Queue[dict[str, Any]] = queue.Queue()
        output = io.BytesIO()
        permissions = CallPermissions("codex", self.url, TOKEN)
        options = argparse.Namespace(connection="", wait=None, keep_policy=False)

        class ScriptedUpstream:
            def start(self, on_line: Any, on_end: Any) -> None:
                """Begin nothing: the test delivers the lines."""

            def send(self, line: bytes) -> None:
                arrived.put(json.loads(line))

            def close(self) -> int:
                return 0

        proxy = CodexProxy(ScriptedUpstream(), LineWriter(output), permissions, options)
        for line in sends.splitlines():
            proxy.take_client_line(line.encode())
        for step in steps:
            if "send" in step:
                text = step["send"] if isinstance(step["send"], str) else json.dumps(step["send"])
                proxy.take_server_line(text.encode())
            if "do" in step:
                step["do"]()
            while "wait" in step:
                message = arrived.get(timeout=60)
                self.received.append(message)
                if message.get("method") == "turn/steer":
                    answer_json = {"id": message["id"], "result": {}}
                    proxy.take_server_line(json.dumps(answer_json).encode())
                if has_fields(message, step["wait"]):
                    break
        proxy.take_server_end()
        assert proxy.close() == 0
        return output.getvalue().decode()

    def run_command(self, *steps: dict[str, Any]) -> str:
        """Play the script with the command `gatebook` and an app-server on pipes."""
        (self.folder / "script.json").write_text(json.dumps(steps))
        command = [sys.executable, "-m", "gatebook_client", "codex-approvals"]
        with subprocess.Popen(
            [*command, "--", sys.executable, str(PROGRAM)],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "PYTHONPATH": str(ROOT / "client"),
                "GATEBOOK_URL": self.url,
                "GATEBOOK_TOKEN": TOKEN,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            watch = threading.Timer(60, process.kill)
            watch.start()
            lines: list[str] = []
            while not lines or "the end" not in lines[-1]:
                lines.append(process.stdout.readline())
                assert lines[-1], "the proxy ended"
            process.stdin.close()
            assert process.wait(timeout=60) == 0
            watch.cancel()
        return "".join(lines)


END = {"send": {"method": "the end"}}


@pytest.fixture
def gatebook() -> Iterator[HookServer]:
    with serve_hooks() as server:
        server.only_event = "PreToolUse"
        yield server


@pytest.fixture
def proxy(gatebook: HookServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Proxy(tmp_path, gatebook.url)


def answer(gatebook: HookServer, **output: str) -> None:
    hook = {"hookEventName": "PreToolUse", **output}
    gatebook.answer = json.dumps({"hookSpecificOutput": hook}).encode()


def test_a_permitted_command_is_accepted_and_its_end_reported(
    proxy: Proxy, gatebook: HookServer
) -> None:
    seen = proxy.run_command({"send": ASK}, ACCEPTED, complete(), END)
    assert "requestApproval" not in seen  # the client is not asked
    assert "item/completed" in seen
    before, after = gatebook.bodies()
    assert before["tool_input"] == {
        "command": "git push origin HEAD",
        "justification": "the fix",
    }
    assert (before["session_id"], before["turn_id"]) == ("thread-1", "turn-1")
    assert before["tool_use_id"] == after["tool_use_id"] == "call-1"
    assert after["hook_event_name"] == "PostToolUse"
    assert after["tool_response"] == {"exit_code": 0, "output": "pushed\n"}
    assert after["duration_ms"] == 7


@pytest.mark.parametrize(
    ("end", "error", "is_interrupt"),
    [
        ({"exitCode": 3, "status": "failed"}, "Exit code 3\npushed\n", None),
        ({"exitCode": None, "status": "failed"}, "pushed\n", True),
    ],
)
def test_a_failure_is_reported_as_what_is_known_of_it(
    proxy: Proxy, gatebook: HookServer, end: dict[str, Any], error: str, is_interrupt: bool | None
) -> None:
    proxy.run({"send": ASK}, ACCEPTED, complete(**end), END)
    report = gatebook.bodies()[-1]
    assert report["hook_event_name"] == "PostToolUseFailure"
    assert (report["error"], report.get("is_interrupt")) == (error, is_interrupt)


def test_a_denial_is_a_decline_whose_words_the_model_reads(
    proxy: Proxy, gatebook: HookServer
) -> None:
    answer(gatebook, permissionDecision="deny", permissionDecisionReason="not on a Friday")
    seen = proxy.run({"send": ASK}, DECLINED, complete(status="declined", exitCode=None), END)
    assert "not on a Friday" in seen
    (steer,) = [message for message in proxy.received if message.get("method") == "turn/steer"]
    assert steer["params"]["expectedTurnId"] == "turn-1"
    assert steer["params"]["input"][0]["text"] == "not on a Friday"
    assert [body["hook_event_name"] for body in gatebook.bodies()] == ["PreToolUse"]


def test_a_call_that_ran_although_it_was_declined_is_reported(
    proxy: Proxy, gatebook: HookServer
) -> None:
    answer(gatebook, permissionDecision="deny", permissionDecisionReason="no")
    proxy.run({"send": ASK}, DECLINED, complete(), END)
    assert [body["hook_event_name"] for body in gatebook.bodies()] == ["PreToolUse", "PostToolUse"]


@pytest.mark.parametrize("failure", ["away", "500", "not understood", "hang up", "ask"])
def test_whatever_fails_the_request_is_declined(
    proxy: Proxy, gatebook: HookServer, failure: str
) -> None:
    with own_port() as port:
        if failure == "away":
            proxy.url = f"http://127.0.0.1:{port}"
        elif failure == "500":
            gatebook.status = 500
        elif failure == "hang up":
            gatebook.hang_up = True
        elif failure == "ask":
            answer(gatebook, permissionDecision="ask")
        else:
            gatebook.answer = b"{}"
        proxy.run({"send": ASK}, DECLINED, END)


@pytest.mark.parametrize(
    "params",
    [
        {"command": None},
        {"command": " "},
        {"itemId": None},
        {"threadId": 7},
        {"kind": "newKind"},
        {"kind": "humanCommand"},  # no person has approved it
    ],
)
def test_a_request_that_is_not_understood_is_declined(
    proxy: Proxy, gatebook: HookServer, params: dict[str, Any]
) -> None:
    answer(gatebook)
    proxy.run({"send": ASK | {"params": ASK["params"] | params}}, DECLINED, END)  # type: ignore[operator]


def test_what_grants_more_than_one_call_is_declined(proxy: Proxy, gatebook: HookServer) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("item/permissions/requestApproval", {"permissions": {}, "scope": "turn"}),
        ("execCommandApproval", {"decision": "denied"}),
        ("applyPatchApproval", {"decision": "denied"}),
        (
            codex_approvals_command.PATCH_REQUEST,
            {"decision": "decline"},
        ),  # nothing says what it changes
    ]
    steps: list[dict[str, Any]] = []
    for number, (method, expected) in enumerate(requests):
        steps.append({"send": {"id": number, "method": method, "params": PLACE}})
        steps.append({"wait": {"id": number, "result": expected}})
    steps.append({"send": {"id": 9, "method": "item/later/requestApproval", "params": PLACE}})
    steps.append({"wait": {"id": 9, "error": {"code": -32600}}})
    seen = proxy.run(*steps, END)
    assert 'equestApproval"' not in seen
    assert gatebook.requests == []


def test_a_change_of_files_is_shown_as_codex_described_it(
    proxy: Proxy, gatebook: HookServer
) -> None:
    changes = [{"path": "/w/a.py", "kind": {"type": "add"}, "diff": "x = 1\n"}]
    item = {"type": "fileChange", "id": "call-1", "changes": changes, "status": "inProgress"}
    place = {"threadId": "thread-1", "turnId": "turn-1"}
    proxy.run(
        {"send": {"method": "item/started", "params": place | {"item": item}}},
        {"send": ASK | {"method": codex_approvals_command.PATCH_REQUEST, "params": PLACE}},
        ACCEPTED,
        {
            "send": {
                "method": "item/completed",
                "params": place | {"item": item | {"status": "completed"}},
            }
        },
        END,
    )
    before, after = gatebook.bodies()
    assert (before["tool_name"], before["tool_input"]) == ("apply_patch", {"changes": changes})
    assert after["tool_response"]["exit_code"] == 0


def test_a_call_of_an_mcp_server_is_held_as_its_tool(proxy: Proxy, gatebook: HookServer) -> None:
    place = {"threadId": "thread-1", "turnId": "turn-1"}
    item = {
        "type": "mcpToolCall",
        "id": "call-1",
        "server": "bank",
        "tool": "transfer",
        "arguments": {"to": "ada"},
        "status": "inProgress",
    }
    meta = {
        "codex_approval_kind": "mcp_tool_call",
        "tool_name": "transfer",
        "tool_params": {"to": "ada"},
    }
    ask = {"serverName": "bank", "_meta": meta, "mode": "form", "message": "?"}
    request = {"id": 0, "method": codex_approvals_command.ELICITATION, "params": place | ask}
    proxy.run(
        {"send": {"method": "item/started", "params": place | {"item": item}}},
        {"send": request},
        {"wait": {"id": 0, "result": {"action": "accept"}}},
        {"send": request | {"id": 1}},  # no second call was begun
        {"wait": {"id": 1, "result": {"action": "decline"}}},
        END,
    )
    (before,) = gatebook.bodies()
    assert before["tool_name"] == "mcp__bank__transfer"
    assert (before["tool_input"], before["tool_use_id"]) == ({"to": "ada"}, "call-1")


def test_a_question_of_an_mcp_server_is_for_the_client(proxy: Proxy) -> None:
    ask = {
        "threadId": "thread-1",
        "serverName": "bank",
        "mode": "form",
        "message": "Which account?",
    }
    seen = proxy.run(
        {"send": {"id": 5, "method": codex_approvals_command.ELICITATION, "params": ask}}, END
    )
    assert "Which account?" in seen


def test_a_second_run_of_an_item_is_a_second_effect(proxy: Proxy, gatebook: HookServer) -> None:
    again = ASK | {"id": 1}
    proxy.run({"send": ASK}, ACCEPTED, {"send": again}, {"wait": {"id": 1}}, complete(), END)
    first, cut_off, second, after = gatebook.bodies()
    assert (cut_off["tool_use_id"], cut_off["is_interrupt"]) == ("call-1", True)
    assert second["tool_use_id"] == after["tool_use_id"] == "call-1.2"
    assert first["tool_input"] == second["tool_input"]


def test_what_ran_without_a_request_is_reported(proxy: Proxy, gatebook: HookServer) -> None:
    proxy.run(complete(), complete(id="call-2", source="userShell"), END)
    (report,) = gatebook.bodies()
    assert (report["hook_event_name"], report["tool_use_id"]) == ("PostToolUse", "call-1")
    assert report["tool_input"] == {"command": "git push origin HEAD"}


def test_a_client_cannot_answer_a_request_in_the_place_of_gatebook(
    proxy: Proxy, gatebook: HookServer
) -> None:
    answer(gatebook, permissionDecision="deny", permissionDecisionReason="no")
    forged = json.dumps({"id": 0, "result": {"decision": "accept"}}) + "\n"
    proxy.run({"send": ASK}, DECLINED, END, sends=forged)
    answers = [message for message in proxy.received if message.get("id") == 0]
    assert answers == [{"id": 0, "result": {"decision": "decline"}}]


def test_a_request_that_codex_withdraws_is_not_accepted(proxy: Proxy, gatebook: HookServer) -> None:
    gatebook.hold = threading.Event()
    resolved = {"threadId": "thread-1", "requestId": 0}
    proxy.run(
        {"send": ASK},
        {"do": lambda: wait_until(lambda: len(gatebook.requests) == 1)},
        {"send": {"method": "serverRequest/resolved", "params": resolved}},
        {"do": gatebook.hold.set},
        {"do": lambda: wait_until(lambda: len(gatebook.requests) == 2)},
        {"send": {"id": 7, "method": "item/later/requestApproval", "params": PLACE}},
        {"wait": {"id": 7}},
        END,
    )
    assert [message["id"] for message in proxy.received if "id" in message] == [7]
    names = [body["hook_event_name"] for body in gatebook.bodies()]
    assert names == ["PreToolUse", "PermissionDenied"]  # it was permitted, and did not run


def test_reports_that_gatebook_does_not_get_are_kept_and_sent_later(
    proxy: Proxy, gatebook: HookServer
) -> None:
    gatebook.hang_up = True
    proxy.run(complete(), END)
    assert len(list(proxy.folder.rglob("*.report"))) == 1
    gatebook.hang_up = False
    proxy.run(complete(id="call-2"), END)
    names = [body["tool_use_id"] for body in gatebook.bodies()]
    assert names == ["call-1", "call-1", "call-2"]  # the first of these got no answer


def test_the_client_cannot_switch_questions_or_needed_notifications_off(proxy: Proxy) -> None:
    begin = {"approvalPolicy": "never", "config": {"approval_policy": "never", "model": "m"}}
    opted = {"capabilities": {"optOutNotificationMethods": ["item/completed", "thread/closed"]}}
    sends = [
        {"id": 1, "method": "initialize", "params": opted},
        {"id": 2, "method": "thread/start", "params": begin},
        {"id": 3, "method": "turn/start", "params": {"threadId": "thread-1", "input": []}},
    ]
    text = "".join(json.dumps(message) + "\n" for message in sends)
    seen = proxy.run({"wait": {"id": 3}}, complete(), END, sends=text)
    assert "item/completed" not in seen  # the client did not want it
    initialize, start, turn = proxy.received
    assert initialize["params"]["capabilities"] == {"optOutNotificationMethods": ["thread/closed"]}
    assert start["params"] == {
        "approvalPolicy": "untrusted",
        "approvalsReviewer": "user",
        "config": {"model": "m"},
    }
    assert turn["params"]["approvalPolicy"] == "untrusted"


def test_other_messages_pass_byte_for_byte(proxy: Proxy) -> None:
    odd = '{"method" : "thread/name/set",  "params": {"n": 12345678901234567890}}'
    passed = '{"method":"item/agentMessage/delta","params":{"x" :1.50}}'
    seen = proxy.run(
        {"wait": {"method": "thread/name/set"}}, {"send": passed}, END, sends=odd + "\n"
    )
    assert passed in seen
    assert proxy.received[0]["params"]["n"] == 12345678901234567890


@pytest.mark.parametrize("line", ["not json", '{"method":"a","method":"b"}', "[1]"])
def test_a_message_that_cannot_be_read_is_not_forwarded(proxy: Proxy, line: str) -> None:
    seen = proxy.run(
        {"wait": {"method": "go on"}}, {"send": line}, END, sends=f'{line}\n{{"method":"go on"}}\n'
    )
    assert [message.get("method") for message in proxy.received] == ["go on"]
    assert json.loads(seen.splitlines()[0])["error"]["code"] < 0


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("/bin/bash -lc 'git push'", "git push"),
        ("bash -c \"echo it's \"'$HOME'", "echo it's $HOME"),
        ('zsh -lc "a \\"b\\" \\$c \\d"', 'a "b" $c \\d'),
        ("sh -c a\\ b", "a b"),
        ("sh -c ''", ""),
        ("bash -lc git push", "bash -lc git push"),  # the script is `git` alone
        ('bash -lc "$x"', 'bash -lc "$x"'),
        ("bash -lc 'a' && b", "bash -lc 'a' && b"),
        ("bash -lc 'a", "bash -lc 'a"),
        ("bash -x -c a", "bash -x -c a"),
        ("git push", "git push"),
    ],
)
def test_the_shell_around_a_script_is_taken_off_only_where_that_is_sure(
    command: str, script: str
) -> None:
    assert codex_approvals_command.unwrap_command(command) == script


def test_the_policy_is_set_where_a_thread_or_turn_begins() -> None:
    for method in ("thread/start", "thread/resume", "thread/fork", "turn/start"):
        message: dict[str, Any] = {"method": method, "params": {}}
        assert enforce_policy(message)
        assert message["params"]["approvalPolicy"] == "untrusted"
    assert not enforce_policy({"method": "thread/list", "params": {}})
    assert enforce_policy({"method": "x", "params": {"approvalsReviewer": "auto_review"}})
