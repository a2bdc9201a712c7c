"""`gatebook mcp-permissions` with the client of the real MCP SDK, before a scripted Gatebook."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evaluation.bench.installation import own_port
from tests.client.coroutines import run_coroutine
from tests.config.server import ROOT

pytestmark = pytest.mark.once
CALL = {
    "tool_name": "Bash",
    "input": {"command": "git push", "description": "push"},
    "tool_use_id": "toolu_1",
}


@dataclass
class Gatebook:
    """Answers hooks in turn; its gate is ruled on as soon as somebody waits for it."""

    decisions: list[dict[str, Any]]
    permission: str = "pending"
    url: str = ""
    status: int = 200
    hooks: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def answer(self, path: str, body: bytes) -> Any:
        self.paths.append(path)
        if path.startswith("/api/v1/hooks/"):
            self.hooks.append(json.loads(body))
            if self.hooks[-1]["hook_event_name"] != "PreToolUse":
                return {}
            output = {"hookEventName": "PreToolUse", **self.decisions.pop(0)}
            return {"hookSpecificOutput": output}
        if path.startswith("/api/v1/effects?"):
            gate = {"id": "g-1"}
            effect = {"handle": "e_7", "permission": self.permission, "gate": gate}
            return {"items": [effect]}
        return {"status": "approved" if "wait=" in path else "pending", "version": 3}


@pytest.fixture
def gatebook() -> Iterator[Gatebook]:
    server = Gatebook([])

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = json.dumps(server.answer(self.path, body)).encode()
            self.send_response(server.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = respond  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield server
    httpd.shutdown()
    httpd.server_close()


def ask(url: str, folder: Path, call: dict[str, Any], *options: str) -> tuple[Any, list[str]]:
    """Call the tool as Claude Code does; return its answer and the reports of progress."""
    heard: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(str(message))

    async def body() -> Any:
        from mcp import StdioServerParameters  # collecting the tests does not import it
        from mcp.client.client import Client

        words = ["-m", "gatebook_client", "mcp-permissions", *options]
        parameters = StdioServerParameters(
            command=sys.executable,
            args=words,
            cwd=str(folder),
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "PYTHONPATH": str(ROOT / "client"),
                "GATEBOOK_URL": url,
                "GATEBOOK_TOKEN": "gbk_abcdefgh_" + "x" * 43,
            },
        )
        async with Client(parameters) as client:
            (tool,) = (await client.list_tools()).tools
            assert tool.name == "permission"
            result = await client.call_tool("permission", call, progress_callback=hear)
            (block,) = result.content
            assert block.type == "text"
            assert not result.is_error
            return json.loads(block.text)

    return run_coroutine(asyncio.wait_for(body(), 60)), heard


def test_what_gatebook_permits_runs_with_its_own_input(gatebook: Gatebook, tmp_path: Path) -> None:
    gatebook.decisions = [{"permissionDecision": "allow"}]
    answer, _ = ask(gatebook.url, tmp_path, CALL)
    assert answer == {"behavior": "allow", "updatedInput": CALL["input"]}
    (hook,) = gatebook.hooks
    assert (hook["hook_event_name"], hook["tool_use_id"]) == ("PreToolUse", "toolu_1")
    assert hook["tool_input"] == CALL["input"]
    assert hook["session_id"].startswith("permissions-")


def test_where_no_rules_are_enforced_nothing_is_allowed(gatebook: Gatebook, tmp_path: Path) -> None:
    """Claude Code asks this tool in the place of a person, and no rule speaks for one."""
    gatebook.decisions = [{}]
    answer, _ = ask(gatebook.url, tmp_path, CALL)
    assert answer["behavior"] == "deny"
    assert "Activate a policy" in answer["message"]
    assert gatebook.paths[0] == "/api/v1/hooks/claude-code?permitted=allow"
    # Gatebook counts a call that is not held as begun, so it learns that this one did not run.
    assert [hook["hook_event_name"] for hook in gatebook.hooks] == [
        "PreToolUse",
        "PermissionDenied",
    ]


def test_a_replaced_command_is_passed_on(gatebook: Gatebook, tmp_path: Path) -> None:
    changed = {"command": "gatebook exec -- bash -c 'git push'"}
    gatebook.decisions = [{"permissionDecision": "allow", "updatedInput": changed}]
    assert ask(gatebook.url, tmp_path, CALL)[0]["updatedInput"] == changed


@pytest.mark.parametrize("waiting", ["deny", "defer"])
def test_it_waits_for_people_and_asks_again(
    gatebook: Gatebook, tmp_path: Path, waiting: str
) -> None:
    reason = {"permissionDecision": waiting, "permissionDecisionReason": "e_7 waits"}
    gatebook.decisions = [reason, {"permissionDecision": "allow"}]
    answer, heard = ask(gatebook.url, tmp_path, CALL)
    assert answer["behavior"] == "allow"
    assert heard == ["e_7 waits for approval"]
    assert len(gatebook.hooks) == 2
    assert any("/gates/g-1?wait=" in path and "since=3" in path for path in gatebook.paths)


def test_a_denial_has_its_reason(gatebook: Gatebook, tmp_path: Path) -> None:
    gatebook.permission = "denied"
    gatebook.decisions = [
        {"permissionDecision": "deny", "permissionDecisionReason": "not on a Friday"}
    ]
    answer, _ = ask(gatebook.url, tmp_path, CALL)
    assert answer == {"behavior": "deny", "message": "not on a Friday"}


def test_after_the_wait_it_denies_and_the_request_stays(gatebook: Gatebook, tmp_path: Path) -> None:
    gatebook.decisions = [{"permissionDecision": "deny", "permissionDecisionReason": "e_7 waits"}]
    answer, _ = ask(gatebook.url, tmp_path, CALL, "--wait", "0")
    assert answer == {"behavior": "deny", "message": "e_7 waits"}


@pytest.mark.parametrize("decision", [{"permissionDecision": "ask"}, {"hookEventName": "Stop"}])
def test_an_answer_that_is_not_understood_denies(
    gatebook: Gatebook, tmp_path: Path, decision: dict[str, Any]
) -> None:
    gatebook.decisions = [decision]
    assert ask(gatebook.url, tmp_path, CALL)[0]["behavior"] == "deny"


@pytest.mark.parametrize("status", [401, 500])
def test_an_error_denies(gatebook: Gatebook, tmp_path: Path, status: int) -> None:
    gatebook.status, gatebook.decisions = status, [{"permissionDecision": "allow"}]
    assert ask(gatebook.url, tmp_path, CALL)[0]["behavior"] == "deny"


def test_without_gatebook_it_denies(tmp_path: Path) -> None:
    with own_port() as port:
        answer, _ = ask(f"http://127.0.0.1:{port}", tmp_path, CALL)
    assert answer["behavior"] == "deny"
    assert "Nothing was executed" in answer["message"]


@pytest.mark.parametrize("call", [{}, {"tool_name": "Bash"}, {"tool_name": 1, "input": {}}])
def test_a_request_that_names_no_call_denies(
    gatebook: Gatebook, tmp_path: Path, call: dict[str, Any]
) -> None:
    assert ask(gatebook.url, tmp_path, call)[0]["behavior"] == "deny"
    assert gatebook.hooks == []


def test_session_and_prompt_are_those_of_the_transcript(gatebook: Gatebook, tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "projects" / "-work"
    folder.mkdir(parents=True)
    for name, call, prompt in (("s-1", "toolu_1", "p-1"), ("s-2", "toolu_2", "p-2")):
        lines = [
            {"type": "user", "promptId": prompt},
            {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": call}]}},
            {"type": "user", "promptId": "later"},
        ]
        text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    gatebook.decisions = [{"permissionDecision": "allow"}]
    ask(gatebook.url, tmp_path, CALL)
    assert (gatebook.hooks[0]["session_id"], gatebook.hooks[0]["prompt_id"]) == ("s-1", "p-1")
