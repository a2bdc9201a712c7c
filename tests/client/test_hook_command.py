"""`gatebook hook`: what is printed, what is sent, what is kept, and that failures deny."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gatebook_client import connections, hook_command, hook_spool

from evaluation.bench.installation import own_port
from tests.client.hook_server import ALLOW, HookServer, serve_hooks
from tests.client.test_pushes import wait_until
from tests.config.server import ROOT

pytestmark = pytest.mark.once
START = ROOT / "client" / "gatebook_client" / "hook_start.py"
SAMPLES = ROOT / "tests" / "client" / "samples"
TOKEN = "gbk_abcdefgh_" + "x" * 43
PRE = {
    "session_id": "s-1",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "git push"},
    "tool_use_id": "toolu_1",
}
POST = PRE | {"hook_event_name": "PostToolUse", "tool_response": {"stdout": "done"}}
GEMINI = {
    "session_id": "s-1",
    "hook_event_name": "BeforeTool",
    "tool_name": "run_shell_command",
    "tool_input": {"command": "git push"},
}


@pytest.fixture
def server() -> Iterator[HookServer]:
    with serve_hooks() as server:
        yield server


class Hooks:
    """Runs the hook as a coding agent does."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.state = folder / "state"

    def run(
        self, agent: str, body: bytes, *words: str, url: str | None = None
    ) -> tuple[int, bytes, str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(self.state),
            "GATEBOOK_URL": self.url if url is None else url,
            "GATEBOOK_TOKEN": TOKEN,
        }
        completed = subprocess.run(
            [sys.executable, "-I", "-S", str(START), agent, *words],
            input=body,
            capture_output=True,
            cwd=self.folder,
            env={name: value for name, value in environment.items() if value},
            timeout=60,
            check=False,
        )
        return completed.returncode, completed.stdout, completed.stderr.decode()

    def answer(self, agent: str, hook: dict[str, Any], *words: str, url: str | None = None) -> Any:
        code, printed, _ = self.run(agent, json.dumps(hook).encode(), *words, url=url)
        assert code == 0
        return json.loads(printed)

    def kept(self) -> list[tuple[str, dict[str, Any]]]:
        files = sorted(self.state.glob("gatebook/hooks/*/*.report"))
        pairs = [file.read_bytes().partition(b"\n") for file in files]
        return [(path.decode(), json.loads(body)) for path, _, body in pairs]


@pytest.fixture
def hooks(tmp_path: Path, server: HookServer) -> Hooks:
    return Hooks(tmp_path, server.url)


def reason_of(answer: dict[str, Any]) -> str:
    """Return the reason of a denial; fails for anything else."""
    if answer.get("decision") == "deny":
        return str(answer["reason"])
    output = answer["hookSpecificOutput"]
    assert output["permissionDecision"] == "deny"
    return str(output["permissionDecisionReason"])


def test_the_answer_is_printed_and_the_hook_is_sent_with_git_facts(
    hooks: Hooks, server: HookServer
) -> None:
    subprocess.run(["git", "init", "-q", "-b", "topic", str(hooks.folder)], check=True)
    remote = "https://ada:secret@example.org/acme/tariffs.git"
    subprocess.run(["git", "-C", str(hooks.folder), "remote", "add", "origin", remote], check=True)
    assert hooks.answer("claude-code", PRE | {"cwd": str(hooks.folder)}) == ALLOW
    ((path, token, body),) = server.requests
    assert (path, token) == ("/api/v1/hooks/claude-code", f"Bearer {TOKEN}")
    facts = json.loads(body)["gatebook"]
    assert (facts["repository"], facts["branch"]) == ("acme/tariffs", "topic")
    assert facts["remotes"] == {"origin": "https://example.org/acme/tariffs.git"}
    assert (facts["source"], facts["head"]) == ("git files", "")
    assert b"secret" not in body
    assert len(facts["delivery"]) == 32


@pytest.mark.parametrize(
    "body",
    [
        b'{"hook_event_name": "PostToolUse", "tool_response": {"stdout": "a\\u0000b"}}\n',
        b'{"hook_event_name": "PostToolUse", "tool_response": "\\ud83d cut off"}',
        b'{"hook_event_name":"PostToolUse","n":12345678901234567890.10e2,"x":{"b":1,"a":2}}  ',
    ],
)
def test_every_byte_of_the_hook_arrives_as_it_was(
    hooks: Hooks, server: HookServer, body: bytes
) -> None:
    server.answer = b"{}"
    assert hooks.run("codex", body)[:2] == (0, b"{}\n")
    ((_, _, sent),) = server.requests
    assert sent.startswith(body.rstrip()[:-1] + b',"gatebook":{')


def test_a_field_gatebook_of_somebody_else_is_replaced(hooks: Hooks, server: HookServer) -> None:
    hooks.answer("claude-code", PRE | {"gatebook": {"repository": "not/this"}})
    (body,) = server.bodies()
    assert "repository" not in body["gatebook"]
    assert server.requests[0][2].count(b'"gatebook"') == 1


@pytest.mark.parametrize(
    ("agent", "hook"), [("claude-code", PRE), ("codex", PRE), ("gemini", GEMINI)]
)
def test_without_a_server_a_call_is_denied(hooks: Hooks, agent: str, hook: dict[str, Any]) -> None:
    with own_port() as port:
        answer = hooks.answer(agent, hook, url=f"http://127.0.0.1:{port}")
    assert "does not answer" in reason_of(answer)
    assert "Nothing was executed" in reason_of(answer)
    assert hooks.kept() == []  # the server cannot have heard of it


def test_a_permission_request_is_denied_in_its_own_form(hooks: Hooks) -> None:
    with own_port() as port:
        url = f"http://127.0.0.1:{port}"
        answer = hooks.answer("codex", PRE | {"hook_event_name": "PermissionRequest"}, url=url)
    assert answer["hookSpecificOutput"]["decision"]["behavior"] == "deny"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, b""),
        (200, b"<html>welcome</html>"),
        (200, b"{}"),
        (
            200,
            b'{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "x"}}',
        ),
        (200, b'{"hookSpecificOutput": {"hookEventName": "Stop", "permissionDecision": "allow"}}'),
        (200, b'{"decision": "allow"}'),
        (302, json.dumps(ALLOW).encode()),
        (401, b'{"detail": "The token is revoked."}'),
        (500, json.dumps(ALLOW).encode()),
    ],
)
def test_an_answer_that_is_not_understood_denies(
    hooks: Hooks, server: HookServer, status: int, answer: bytes
) -> None:
    server.status, server.answer = status, answer
    assert reason_of(hooks.answer("claude-code", PRE))
    assert len(server.requests) == 1


def test_a_connection_that_breaks_denies_and_later_tells_that_nothing_ran(
    hooks: Hooks, server: HookServer
) -> None:
    server.hang_up = True
    assert reason_of(hooks.answer("claude-code", PRE | {"agent_id": "a-1"}))
    ((path, report),) = hooks.kept()
    assert path == "/api/v1/hooks/claude-code"
    assert report["hook_event_name"] == "PermissionDenied"
    assert (report["tool_use_id"], report["agent_id"]) == ("toolu_1", "a-1")
    assert report["gatebook"]["denied_locally"] is True
    server.hang_up = False
    assert hooks.answer("claude-code", PRE) == ALLOW
    assert [body["hook_event_name"] for body in server.bodies()] == [
        "PreToolUse",
        "PermissionDenied",
        "PreToolUse",
    ]
    assert hooks.kept() == []


@pytest.mark.parametrize("deadline_s", [0.5, 1])
def test_without_an_answer_in_time_a_call_is_denied(
    hooks: Hooks, server: HookServer, deadline_s: float
) -> None:
    server.hold = threading.Event()
    body = json.dumps(PRE).encode()
    while not server.requests and deadline_s < 60:  # a busy machine sends it later
        shutil.rmtree(hooks.state, ignore_errors=True)
        code, printed, _ = hooks.run("claude-code", body, "--deadline", str(deadline_s))
        assert code == 0
        assert "Nothing was executed" in reason_of(json.loads(printed))
        deadline_s *= 5
    server.hold.set()
    kept = {report["gatebook"]["delivery"]: report for _, report in hooks.kept()}
    assert [report["hook_event_name"] for report in kept.values()] == ["PermissionDenied"]


def test_without_the_whole_hook_in_time_a_call_is_denied(hooks: Hooks) -> None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(START), "codex", "--deadline", "0.5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"HOME": str(hooks.folder), "GATEBOOK_URL": hooks.url, "GATEBOOK_TOKEN": TOKEN},
    )
    assert process.stdout is not None
    assert "did not answer within 0.5 seconds" in reason_of(json.loads(process.stdout.read()))
    assert process.wait(60) == 0
    process.communicate()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"PreToolUse"', b"\xff\xfe{}", b"{" * 100_000, b"\x00" * 10],
    ids=range(8),
)
def test_what_is_no_hook_is_denied(hooks: Hooks, server: HookServer, body: bytes) -> None:
    code, printed, _ = hooks.run("claude-code", body)
    assert code == 0
    assert reason_of(json.loads(printed))
    assert server.requests == []


@pytest.mark.parametrize("words", [("--deadline", "soon"), ("--deadline", "0"), ("--what",)])
def test_wrong_usage_denies(hooks: Hooks, words: tuple[str, ...]) -> None:
    assert reason_of(hooks.answer("claude-code", PRE, *words))


def test_without_a_connection_a_call_is_denied_and_another_event_is_not(hooks: Hooks) -> None:
    answer = hooks.answer("claude-code", PRE, "--connection", "missing")
    assert "gatebook connect" in reason_of(answer)
    assert hooks.answer("claude-code", POST, "--connection", "missing") == {}


def test_reports_are_kept_and_delivered_first_in_their_order(
    hooks: Hooks, server: HookServer
) -> None:
    with own_port() as port:
        away, hooks.url = hooks.url, f"http://127.0.0.1:{port}"
        hooks.state.mkdir()
    # The same address with the server away: the reports are for this address.
    hooks.url = away
    server.status, server.answer = 503, b"{}"
    for number in range(3):
        assert hooks.answer("claude-code", POST | {"tool_use_id": f"toolu_{number}"}) == {}
    assert [report["tool_use_id"] for _, report in hooks.kept()] == [
        "toolu_0",
        "toolu_1",
        "toolu_2",
    ]
    server.requests.clear()
    server.status, server.answer = 200, json.dumps(ALLOW).encode()
    assert hooks.answer("claude-code", PRE | {"tool_use_id": "toolu_9"}) == ALLOW
    assert [body["tool_use_id"] for body in server.bodies()] == [
        "toolu_0",
        "toolu_1",
        "toolu_2",
        "toolu_9",
    ]
    assert len({body["gatebook"]["delivery"] for body in server.bodies()}) == 4
    assert hooks.kept() == []


def test_reports_are_readable_by_their_owner_only(hooks: Hooks, server: HookServer) -> None:
    server.status = 503
    hooks.answer("claude-code", POST)
    (file,) = hooks.state.glob("gatebook/hooks/*/*.report")
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


def test_a_report_that_is_refused_for_good_does_not_block_the_others(
    hooks: Hooks, server: HookServer
) -> None:
    server.status = 503
    hooks.answer("claude-code", POST)
    server.status, server.answer = 422, b'{"detail": "no"}'
    hooks.answer("claude-code", {"hook_event_name": "Stop", "session_id": "s-1"})
    assert hooks.kept() == []
    assert len(list(hooks.state.glob("gatebook/hooks/*/*.refused"))) == 1


def test_the_spool_is_bounded_and_keeps_the_outcome_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hook_spool, "MAX_BYTES", 2_000)
    folder = str(tmp_path / "spool")
    large = POST | {"tool_response": {"stdout": "x" * 5_000}}
    hook = hook_command.Hook("claude-code", json.dumps(large).encode())
    hook_command._keep_for_later(hook, folder, "/p", hook.body, {}, was_sent=True)
    (name,) = hook_spool.list_reports(folder)
    kept = json.loads((tmp_path / "spool" / name).read_bytes().partition(b"\n")[2])
    assert kept["tool_use_id"] == "toolu_1"
    assert kept["tool_response"] == {"left_out": f"{len(hook.body)} bytes"}
    monkeypatch.setattr(hook_spool, "MAX_REPORTS", 1)
    hook_command._keep_for_later(hook, folder, "/p", hook.body, {}, was_sent=True)
    assert len(hook_spool.list_reports(folder)) == 1
    assert "could not be kept" in capsys.readouterr().err


def test_two_hooks_at_once_deliver_a_report_once(hooks: Hooks, server: HookServer) -> None:
    server.status = 503
    hooks.answer("claude-code", POST)
    server.requests.clear()
    server.status, server.answer = 200, json.dumps(ALLOW).encode()
    server.hold = threading.Event()
    threads = [
        threading.Thread(
            target=hooks.answer,
            args=("claude-code", PRE | {"tool_use_id": f"n{n}"}, "--deadline", "120"),
        )
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(server.requests) >= 3)
    server.hold.set()
    for thread in threads:
        thread.join()
    reports = [b for b in server.bodies() if b["hook_event_name"] == "PostToolUse"]
    assert len(reports) == 1
    assert len(server.requests) == 4


def test_the_folder_of_the_agent_cannot_replace_modules_of_the_hook(
    hooks: Hooks, server: HookServer
) -> None:
    for name in ("json", "socket", "os", "gatebook_client"):
        (hooks.folder / f"{name}.py").write_text("raise SystemExit('replaced')")
    assert hooks.answer("claude-code", PRE) == ALLOW


def test_a_stored_connection_is_used(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(hooks.folder / "config"))
    path = Path(connections.store_connection("work", hooks.url, TOKEN))
    assert path.stat().st_mode & 0o077 == 0
    hooks.url = ""
    assert hooks.answer("claude-code", PRE, "--connection", "work") == ALLOW


def test_a_token_is_never_sent_to_another_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("GATEBOOK_URL", "http://elsewhere.example")
    monkeypatch.delenv("GATEBOOK_TOKEN", raising=False)
    connections.store_connection("default", "http://127.0.0.1:1", TOKEN)
    with pytest.raises(connections.ConnectionMissing):
        connections.load_connection()
    assert connections.load_connection("default") == ("http://127.0.0.1:1", TOKEN)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 65])
def test_the_name_of_a_connection_is_a_plain_file_name(name: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        connections.check_connection_name(name)


def test_a_body_of_20_mb_passes(hooks: Hooks, server: HookServer) -> None:
    hook = POST | {"tool_response": {"stdout": "x" * 20_000_000}}
    server.answer = b"{}"
    assert hooks.answer("claude-code", hook) == {}
    assert len(server.requests[0][2]) > 20_000_000


def test_it_starts_without_the_http_library_and_the_parser() -> None:
    words = [sys.executable, "-I", "-S", "-X", "importtime", str(START), "--help"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    loaded = {line.rpartition("|")[2].strip() for line in printed.splitlines()}
    assert "gatebook_client.hook_command" in loaded
    heavy = "httpx argparse ssl http email subprocess typing dataclasses threading hashlib urllib"
    assert loaded & {*heavy.split()} == set()
