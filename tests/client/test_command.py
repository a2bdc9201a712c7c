"""The command line before the real server: what passes through, what stops it, and that a command
never runs twice."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from gatebook_client import Client, cli

from evaluation.bench.installation import own_port
from tests.client.test_pushes import a_token, wait_until
from tests.config.server import ROOT, Server

# The server that answers is tried on both databases elsewhere; here it is the command that is.
pytestmark = pytest.mark.once
WITHIN_S = 60
POLICY = """
name: hands
rules:
  - {id: never, title: Nobody formats a disk, match: {tools: [disk.format]}, outcome: deny}
  - {id: ask, title: A release is asked for, match: {tools: [release]}, outcome: require}
  - {id: rest, title: Everything else, match: {}, outcome: allow}
"""


@dataclass
class Desk:
    """A terminal at which `gatebook` is typed."""

    server: Server
    token: str
    folder: Path
    said: pytest.CaptureFixture[str]

    def start(self, *words: str, url: str = "") -> "subprocess.Popen[str]":
        environment = os.environ | {
            "GATEBOOK_URL": url or self.server.url,
            "GATEBOOK_TOKEN": self.token,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "gatebook_client", *words],
            cwd=self.folder,
            env=environment | {"PYTHONPATH": str(ROOT / "client")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            preexec_fn=_hears_of_ctrl_c,
        )

    def type(self, *words: str, url: str = "") -> tuple[int, str, str]:
        """What it exits with and says; in this process, because a new one takes longer than all
        that it does."""
        self.said.readouterr()
        code = cli.main(["--url", url or self.server.url, "--token", self.token, *words])
        said, wrong = self.said.readouterr()
        return (
            code,
            said,
            "".join(line for line in wrong.splitlines(keepends=True) if not line.startswith("{")),
        )

    def effects(self, session: str) -> list[dict[str, object]]:
        """Those of a session, newest first."""
        headers = {"Authorization": f"Bearer {self.token}"}
        found: list[dict[str, object]] = httpx.get(
            f"{self.server.url}/api/v1/effects?session={session}", headers=headers, timeout=60
        ).json()["items"]
        return found


@pytest.fixture(scope="module")
def token(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("hands")
    token = a_token(live_server_process, "hands", folder / "tools.yaml")
    (folder / "policy.yaml").write_text(POLICY)
    live_server_process.manage(
        "load_policies", "--project", "hands", str(folder / "policy.yaml"), "--activate", "enforce"
    )
    return token


@pytest.fixture
def desk(
    live_server_process: Server,
    token: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(live_server_process, token, tmp_path, capfd)


def test_output_passes_through_and_the_exit_code_is_the_commands(desk: Desk) -> None:
    code, said, wrong = desk.type(
        "exec", "--tool", "shell", "--session", "a", "--", "sh", "-c", "echo out; echo x >&2"
    )
    assert (code, said, wrong) == (0, "out\n", "x\n")
    script = "echo $GATEBOOK_REMOTE_KEY {remote_key}; exit 7"
    code, said, _ = desk.type("exec", "--tool", "shell", "--session", "a", "--", "sh", "-c", script)
    assert code == 7
    first, second = said.split()
    assert first == second
    failed, done = desk.effects("a")
    assert (done["state"], done["outcome"]) == ("acknowledged", "ok")
    assert (failed["state"], failed["outcome"]) == ("acknowledged", "error")


def test_the_same_command_may_be_run_again_and_under_a_key_only_once(desk: Desk) -> None:
    once = ["exec", "--tool", "shell", "--session", "b", "--", "sh", "-c", "echo x >> twice"]
    assert [desk.type(*once)[0] for _ in range(2)] == [0, 0]
    assert (desk.folder / "twice").read_text() == "x\nx\n"
    keyed = [*once[:5], "--key", "k", "--reference", "echo r-1", "--", "sh", "-c", "echo x >> once"]
    assert desk.type(*keyed)[0] == 0
    code, _, wrong = desk.type(*keyed)
    assert (code, (desk.folder / "once").read_text()) == (0, "x\n")
    assert "was done before (r-1)" in wrong


def test_refused_it_does_not_run(desk: Desk) -> None:
    code, _, wrong = desk.type("exec", "--tool", "disk.format", "--", "touch", "formatted")
    assert code == 77
    assert "the policy refuses it. Nothing was begun." in wrong
    assert not (desk.folder / "formatted").exists()


def test_nobody_having_ruled_in_the_time_given_it_does_not_run(desk: Desk) -> None:
    code, _, wrong = desk.type(
        "exec", "--tool", "release", "--wait", "0", "--", "touch", "released"
    )
    assert code == 75
    assert "waiting for approval of e_" in wrong
    assert not (desk.folder / "released").exists()


def test_without_a_ledger_it_does_not_run(desk: Desk) -> None:
    with own_port() as port:  # where nobody listens
        url = f"http://127.0.0.1:{port}"
        code, _, wrong = desk.type(
            "--patience", "0.2", "exec", "--tool", "shell", "--", "touch", "ran", url=url
        )
    assert code == 69
    assert f"Gatebook does not answer at {url}" in wrong
    assert "Nothing was begun." in wrong
    assert not (desk.folder / "ran").exists()


@pytest.mark.parametrize(
    ("words", "code"), [(["exec", "--tool", "t"], 64), (["exec", "--tool", "t", "--", "nô"], 127)]
)
def test_what_cannot_be_run_is_said_so(desk: Desk, words: list[str], code: int) -> None:
    found, _, wrong = desk.type(*words)
    assert found == code
    assert "Traceback" not in wrong


def test_killed_in_the_middle_it_is_looked_up_and_not_run_again(desk: Desk) -> None:
    probe = ["--probe", "test -e made && echo found-it"]
    words = [
        "exec",
        "--tool",
        "git.push",
        "--session",
        "c",
        *probe,
        "--",
        "sh",
        "-c",
        "echo x >> made; sleep 60",
    ]
    running = desk.start(*words)
    made = desk.folder / "made"
    wait_until(
        lambda: made.exists() and made.read_text() == "x\n"
    )  # a shell makes the file first, and then writes
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=WITHIN_S)
    code, _, wrong = desk.type(*words)
    assert (code, made.read_text()) == (0, "x\n")
    assert "was done before (found-it)" in wrong


def _hears_of_ctrl_c() -> None:
    """Whatever a shell starts in the background is deaf to it, and so are its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


SLEEP = ("sh", "-c", "touch begun; exec sleep 60")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_handed_on_and_what_it_cut_off_is_unknown(
    desk: Desk, number: signal.Signals
) -> None:
    """Ctrl-C of a terminal reaches the command by itself; what is sent to us alone does not."""
    running = desk.start("exec", "--tool", "shell", "--session", f"d{number}", "--", *SLEEP)
    wait_until((desk.folder / "begun").exists)
    running.send_signal(number)
    assert (running.communicate(timeout=WITHIN_S), running.returncode)[1] == 128 + number
    (effect,) = desk.effects(f"d{number}")
    assert (effect["state"], effect["outcome"]) == ("acknowledged", "unknown")
    code, said, _ = desk.type("resume", f"d{number}")
    assert code == 3
    assert said.startswith("Can it resume safely? NO\n  because: ")


def test_a_signal_that_comes_as_the_command_begins_is_handed_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, ended_by = subprocess.Popen, list[int]()

    def begun(*words: Any, **options: Any) -> "subprocess.Popen[bytes]":
        child = begins(*words, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return child

    monkeypatch.setattr(subprocess, "Popen", begun)
    before = signal.signal(signal.SIGTERM, lambda number, _frame: ended_by.append(number))
    try:
        assert (
            desk.type("exec", "--tool", "shell", "--session", "early", "--", *SLEEP)[0]
            == 128 + signal.SIGTERM
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended_by == []


def test_the_same_call_of_another_session_is_told_before_it_is_done(desk: Desk) -> None:
    cut_off = ("exec", "--tool", "shell", "--timeout", "0.2", "--session")
    words = ("--", "sh", "-c", "test -e once || { touch once; sleep 60; }")
    assert desk.type(*cut_off, "elsewhere", *words)[0] == 124
    code, _, wrong = desk.type(*cut_off, "here", *words)
    (first,) = desk.effects("elsewhere")
    assert (
        code,
        f"the same call may have happened already: {first['handle']} in elsewhere" in wrong,
    ) == (0, True)


def test_a_session_of_its_own_stays_open_where_nobody_knows_what_the_command_did(
    desk: Desk,
) -> None:
    code, _, wrong = desk.type("exec", "--tool", "shell", "--", "sh", "-c", "kill -9 $$")
    assert code == 128 + signal.SIGKILL
    assert re.search(r"gatebook: session run-\w+ is left open because of e_\d+\n", wrong)
    assert "OpenWork" not in wrong
    assert re.search(r"s_\d+ +running +run-", desk.type("sessions", "--limit", "1")[1])


def test_the_commands_that_read(desk: Desk) -> None:
    assert desk.type("exec", "--tool", "shell", "--session", "e", "--", "true")[0] == 0
    code, said, _ = desk.type("sessions", "--status", "running")
    assert code == 0
    assert "  e" in {line[20:].rstrip() for line in said.splitlines()}
    for words in (("effects", "--session", "e"), ("tail", "--once", "--session", "e")):
        code, said, _ = desk.type(*words)
        assert code == 0
        assert "acknowledged  ok       used      shell" in said
    code, said, _ = desk.type("resume", "e")
    assert (code, said.splitlines()[0]) == (0, "Can it resume safely? YES")
    done = desk.effects("e")[0]
    assert f"  done: {done['handle']}: completed; do not repeat it. shell" in said
    for name in (str(done["id"]), str(done["handle"])):
        assert desk.type("wait", name)[0] == 0
    handle = next(
        line.split()[0] for line in desk.type("sessions")[1].splitlines() if line.endswith("  e")
    )
    assert desk.type("resume", handle)[1] == said
    assert desk.type("effects", "--session", handle)[1].startswith(f"{done['handle']:>8}")
    with Client(desk.server.url, desk.token).session("e", mode="one_shot"):
        pass
    assert desk.type("resume", "e")[1].startswith(
        "The session has ended (completed). No dispatched effect is open."
    )


@pytest.mark.parametrize(
    "words", [("effects", "--session"), ("tail", "--once", "--session"), ("resume",), ("wait",)]
)
@pytest.mark.parametrize("name", ["mistyped", "s_999999", "e_999999", "g_1"])
def test_what_is_not_there_is_said_so(desk: Desk, words: tuple[str, ...], name: str) -> None:
    code, said, wrong = desk.type(*words, name)
    assert (code, said) == (64, "")
    assert "There is no " in wrong
    assert name in wrong


def test_a_word_that_is_no_text_is_named(desk: Desk) -> None:
    code, _, wrong = desk.type("exec", "--tool", "shell", "--", "printf", os.fsdecode(b"\xff"))
    assert (code, "b'\\xff'" in wrong) == (64, True)


def test_a_search_prints_what_it_finds_and_marks_what_is_wrong(desk: Desk) -> None:
    told = ("--reference", "printf x\u202ey")
    assert (
        desk.type("exec", "--tool", "shell.run", "--session", "found", *told, "--", "true")[0] == 0
    )
    code, said, wrong = desk.type("search", "effect session:found")
    assert (code, wrong) == (0, "")
    assert said.splitlines()[0].split()[:3] == ["effect", "at", "session"]
    assert "shell.run  x<U+202E>y" in said
    code, said, _ = desk.type("search", "effect session:found", "--json", "--all", "--limit", "1")
    (row,) = [row for line in said.splitlines() for row in json.loads(line)["rows"]]
    assert row["reference"] == "x\u202ey"
    assert said.isascii()
    assert desk.type("search", "effect session:found | group state")[1].split() == [
        "state",
        "count",
        "acknowledged",
        "1",
    ]
    code, said, wrong = desk.type("search", "effect sttate:x")
    assert (code, said) == (64, "")
    assert wrong.splitlines()[1:] == ["  effect sttate:x", "         ^^^^^^"]
    assert "scope audit" in desk.type("search", "gate reviewer:carol")[2]
