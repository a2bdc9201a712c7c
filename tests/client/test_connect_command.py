"""`gatebook connect`: the settings file, its undo, the token, and the test of the hook."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from gatebook_client import connect_command, connections
from gatebook_client.agent_settings import AGENT_SETTINGS, make_hook_command

from tests.client.hook_server import serve_hooks
from tests.config.server import Server

# Other tests run the server on both databases; these test the command alone.
pytestmark = pytest.mark.once
FORM = re.compile(r'name="(csrfmiddlewaretoken|in_project)" value="([^"]+)"')
CLAUDE = {
    "permissions": {"allow": ["Bash(ls:*)"]},
    "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "x"}]}]},
}


@pytest.fixture(scope="module")
def token(live_server_process: Server) -> str:
    live_server_process.run(
        "from django.db import transaction; from accounts import projects\n"
        "with transaction.atomic(): projects.create_project('connected')"
    )
    return live_server_process.token("coder", "--project", "connected")


class Desk:
    """A home folder and a project folder, and `gatebook connect` in them."""

    def __init__(self, server: Server, token: str, folder: Path) -> None:
        self.server, self.token = server, token
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()

    def settings(self, agent: str, *, project: bool = False) -> Path:
        return AGENT_SETTINGS[agent].locate_file(self.project if project else None)

    def run(self, *words: str) -> int:
        return connect_command.main([*words, "--url", self.server.url, "--token", self.token])


@pytest.fixture
def desk(
    live_server_process: Server, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    desk = Desk(live_server_process, token, tmp_path)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GATEBOOK_URL", "GATEBOOK_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(desk.home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(desk.home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(desk.home / "state"))
    monkeypatch.chdir(desk.project)
    return desk


@pytest.mark.parametrize("agent", list(AGENT_SETTINGS))
@pytest.mark.parametrize("where", ["--user", "--project"])
def test_the_settings_file_is_written_and_restored_exactly(
    desk: Desk, agent: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = desk.settings(agent, project=where == "--project")
    assert path.is_relative_to(desk.project if where == "--project" else desk.home)
    assert desk.run(agent, where, "--yes", "--no-test") == 0
    written = json.loads(path.read_text())
    (event,) = AGENT_SETTINGS[agent].gate_events
    (hook,) = written["hooks"][event][0]["hooks"]
    assert "hook_start.py" in hook["command"]
    assert f"+++ {path}" in capsys.readouterr().out
    assert desk.run(agent, where, "--undo", "--yes") == 0
    assert not path.exists()


def test_what_is_there_stays_and_undo_restores_every_byte(desk: Desk) -> None:
    path = desk.settings("claude-code")
    path.parent.mkdir(parents=True)
    before = json.dumps(CLAUDE, indent=4).encode() + b"\n\n"
    path.write_bytes(before)
    path.chmod(0o640)
    for _ in range(2):
        assert desk.run("claude-code", "--yes", "--no-test") == 0
    hooks = json.loads(path.read_text())["hooks"]
    assert hooks["PreToolUse"][0] == CLAUDE["hooks"]["PreToolUse"][0]  # type: ignore[index]
    assert len(hooks["PreToolUse"]) == 2
    assert path.stat().st_mode & 0o777 == 0o640
    assert desk.run("claude-code", "--connection", "other", "--yes", "--no-test") == 0
    assert desk.run("claude-code", "--undo", "--yes") == 0
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_command_that_undoes_a_project_names_the_project(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert desk.run("claude-code", "--project", "--yes", "--no-test") == 0
    undo = capsys.readouterr().out.rpartition("`gatebook connect ")[2].partition("`")[0]
    assert undo == "claude-code --project --undo"
    assert desk.run(*undo.split(), "--yes") == 0
    assert not desk.settings("claude-code", project=True).exists()


def test_undo_after_other_changes_removes_only_the_hooks(desk: Desk) -> None:
    path = desk.settings("claude-code")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(CLAUDE, indent=2))
    assert desk.run("claude-code", "--yes", "--no-test") == 0
    path.write_text(path.read_text().replace('"Bash(ls:*)"', '"Bash(cat:*)"'))
    assert desk.run("claude-code", "--undo", "--yes") == 0
    assert json.loads(path.read_text()) == CLAUDE | {"permissions": {"allow": ["Bash(cat:*)"]}}


def test_without_consent_nothing_is_written(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: PTH123, SIM115
    assert desk.run("claude-code", "--no-test") == connect_command.USAGE
    assert "pass --yes" in capsys.readouterr().err
    assert not desk.settings("claude-code").exists()


def test_a_file_that_is_not_understood_is_left_alone(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    path = desk.settings("gemini")
    path.parent.mkdir(parents=True)
    path.write_text('{"hooks": {"BeforeTool": "mine"}}')
    assert desk.run("gemini", "--yes", "--no-test") == connect_command.USAGE
    assert "is not changed: hooks.BeforeTool is not an array" in capsys.readouterr().err
    assert path.read_text() == '{"hooks": {"BeforeTool": "mine"}}'


def test_a_linked_settings_file_stays_a_link(desk: Desk) -> None:
    path, target = desk.settings("codex"), desk.home / "dotfiles.json"
    target.write_text("{}")
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    assert desk.run("codex", "--yes", "--no-test") == 0
    assert path.is_symlink()
    assert "hooks" in json.loads(target.read_text())


def test_the_token_is_stored_for_its_owner_only_and_used_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert desk.run("codex", "--yes", "--no-test") == 0
    (file,) = (desk.home / "config" / "gatebook" / "connections").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    assert desk.token not in desk.settings("codex").read_text()
    assert connections.load_connection("default") == (desk.server.url, desk.token)
    assert connect_command.main(["gemini", "--yes", "--no-test"]) == 0


def test_a_refused_token_changes_nothing(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.token = "gbk_abcdefgh_" + "x" * 43
    assert desk.run("claude-code", "--yes") == connect_command.REFUSED
    assert "refuses the token" in capsys.readouterr().err
    assert not desk.settings("claude-code").exists()
    assert not (desk.home / "config").exists()


def test_the_browser_issues_a_token(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    words = [sys.executable, "-m", "gatebook_client", "connect", "claude-code"]
    process = subprocess.Popen(
        [*words, "--url", desk.server.url, "--yes", "--no-test", "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(connect_command.__file__).parents[1])},
    )
    assert process.stdout is not None
    lines = [line.strip() for line in itertools.islice(process.stdout, 7)]
    page = lines[2]
    assert page.startswith(f"{desk.server.url}/settings/connect/")
    assert lines[4] == "The page must show this code:"
    check_code = lines[6]
    with httpx.Client(base_url=desk.server.url, timeout=60) as browser:

        def send(path: str, **fields: str) -> tuple[str, httpx.Response]:
            shown = browser.get(path).text
            return shown, browser.post(path, data=dict(FORM.findall(shown)) | fields)

        send("/sign-in/", username=desk.server.administrator, password=desk.server.password)
        path = page.removeprefix(desk.server.url)
        shown, granted = send(path, agent="from-browser", expires="1d", compared="on")
        assert f"<output>{check_code}</output>" in shown
        assert "Return to the terminal" in granted.text
    rest, _ = process.communicate(timeout=60)
    assert "The token of from-browser arrived." in rest
    assert process.returncode == 0
    url, token = connections.load_connection("default")
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{url}/api/v1/sessions", headers=headers, timeout=60).status_code == 200


# The test of the hook, against servers that hold and that do not.


def decide(agent: str, decision: str, *, changed: str = "") -> dict[str, Any]:
    """Return an answer in the form of an agent."""
    if agent == "gemini":
        answer: dict[str, Any] = {"decision": decision, "reason": "e_1 waits for approval"}
        if changed:
            answer["hookSpecificOutput"] = {"tool_input": {"command": changed}}
        return answer
    output: dict[str, Any] = {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": "e_1 waits for approval",
    }
    if changed:
        output["updatedInput"] = {"command": changed}
    return {"hookSpecificOutput": output}


@pytest.mark.parametrize("agent", list(AGENT_SETTINGS))
@pytest.mark.parametrize(
    ("decision", "changed", "code", "sentence"),
    [
        ("deny", "", 0, "is denied until people approve it"),
        ("allow", "gatebook exec -- git push", 0, "is replaced by `gatebook exec`"),
        ("allow", "", connect_command.NOT_HELD, "Not held"),
    ],
)
def test_it_says_whether_the_command_is_held(
    agent: str,
    decision: str,
    changed: str,
    code: int,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with serve_hooks() as server:
        server.answer = json.dumps(decide(agent, decision, changed=changed)).encode()
        connections.store_connection("default", server.url, "gbk_abcdefgh_" + "x" * 43)
        options = connect_command._make_parser().parse_args([agent])
        result = connect_command.check_hook(
            AGENT_SETTINGS[agent], options, server.url, "gbk_abcdefgh_" + "x" * 43
        )
    printed = capsys.readouterr().out
    assert (result, sentence in printed) == (code, True), printed
    assert "Without a connection the hook denies every call." in printed
    (body,) = server.bodies()
    assert body["tool_input"] == {"command": connect_command.TEST_COMMAND}
    assert body["gatebook"]["delivery"]


def test_a_hook_without_an_answer_is_not_taken_for_a_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serve_hooks() as server:
        server.status = 500
        connections.store_connection("default", server.url, "gbk_abcdefgh_" + "x" * 43)
        options = connect_command._make_parser().parse_args(["claude-code"])
        result = connect_command.check_hook(
            AGENT_SETTINGS["claude-code"], options, server.url, "gbk_abcdefgh_" + "x" * 43
        )
    assert result == connect_command.UNAVAILABLE
    assert "gets no answer" in capsys.readouterr().err


def test_a_command_that_cannot_start_blocks_the_call(tmp_path: Path) -> None:
    """As the coding agents run it, through a shell: exit code 2 blocks."""
    command = make_hook_command("claude-code", "default", portable=True, gate=True)
    completed = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
        check=False,
    )
    assert completed.returncode == 2
    assert "the call is blocked" in completed.stderr
