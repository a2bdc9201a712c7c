"""The command line with the real server: output, exit codes, signals, and no command runs twice."""

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

# Other tests run the server on both databases; these test the command alone.
pytestmark = pytest.mark.once
WITHIN_S = 60
POLICY = """
name: hands
rules:
  - {id: never, title: Never format a disk, match: {tools: [disk.format]}, outcome: deny}
  - {id: ask, title: A release is asked for, match: {tools: [release]}, outcome: require}
  - {id: rest, title: Everything else, match: {}, outcome: allow}
"""


@dataclass
class Terminal:
    """A terminal at which `gatebook` is typed."""

    server: Server
    token: str
    folder: Path
    capture: pytest.CaptureFixture[str]

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
            preexec_fn=_default_interrupts,
        )

    def type(self, *words: str, url: str = "") -> tuple[int, str, str]:
        """Run the command in this process, which is faster; return exit code and output."""
        self.capture.readouterr()
        code = cli.main(["--url", url or self.server.url, "--token", self.token, *words])
        printed, wrong = self.capture.readouterr()
        return (
            code,
            printed,
            "".join(line for line in wrong.splitlines(keepends=True) if not line.startswith("{")),
        )

    def effects(self, session: str) -> list[dict[str, object]]:
        """Return the effects of a session, newest first."""
        headers = {"Authorization": f"Bearer {self.token}"}
        effects: list[dict[str, object]] = httpx.get(
            f"{self.server.url}/api/v1/effects?session={session}", headers=headers, timeout=60
        ).json()["items"]
        return effects


@pytest.fixture(scope="module")
def token(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("hands")
    # Each module that takes this fixture has a project of its own on the worker's server.
    project = folder.name
    token = a_token(live_server_process, project, folder / "tools.yaml")
    (folder / "policy.yaml").write_text(POLICY)
    live_server_process.manage(
        "load_policies", "--project", project, str(folder / "policy.yaml"), "--activate", "enforce"
    )
    return token


@pytest.fixture
def terminal(
    live_server_process: Server,
    token: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(live_server_process, token, tmp_path, capfd)


def test_output_passes_through_and_the_exit_code_is_the_commands(terminal: Terminal) -> None:
    code, printed, wrong = terminal.type(
        "exec", "--tool", "shell", "--session", "a", "--", "sh", "-c", "echo out; echo x >&2"
    )
    assert (code, printed, wrong) == (0, "out\n", "x\n")
    script = "echo $GATEBOOK_REMOTE_KEY {remote_key}; exit 7"
    code, printed, _ = terminal.type(
        "exec", "--tool", "shell", "--session", "a", "--", "sh", "-c", script
    )
    assert code == 7
    first, second = printed.split()
    assert first == second
    failed, done = terminal.effects("a")
    assert (done["state"], done["outcome"]) == ("acknowledged", "ok")
    assert (failed["state"], failed["outcome"]) == ("acknowledged", "error")


def test_the_same_command_may_be_run_again_and_under_a_key_only_once(terminal: Terminal) -> None:
    once = ["exec", "--tool", "shell", "--session", "b", "--", "sh", "-c", "echo x >> twice"]
    assert [terminal.type(*once)[0] for _ in range(2)] == [0, 0]
    assert (terminal.folder / "twice").read_text() == "x\nx\n"
    keyed = [*once[:5], "--key", "k", "--reference", "echo r-1", "--", "sh", "-c", "echo x >> once"]
    assert terminal.type(*keyed)[0] == 0
    code, _, wrong = terminal.type(*keyed)
    assert (code, (terminal.folder / "once").read_text()) == (0, "x\n")
    assert "was done before (r-1)" in wrong


def test_refused_it_does_not_run(terminal: Terminal) -> None:
    code, _, wrong = terminal.type("exec", "--tool", "disk.format", "--", "touch", "formatted")
    assert code == 77
    assert "the policy refuses it. Nothing was begun." in wrong
    assert not (terminal.folder / "formatted").exists()


def test_without_a_ruling_in_time_it_does_not_run(terminal: Terminal) -> None:
    code, _, wrong = terminal.type(
        "exec", "--tool", "release", "--wait", "0", "--", "touch", "released"
    )
    assert code == 75
    assert "waiting for approval of e_" in wrong
    assert not (terminal.folder / "released").exists()


def test_without_a_ledger_it_does_not_run(terminal: Terminal) -> None:
    with own_port() as port:  # without a listener
        url = f"http://127.0.0.1:{port}"
        code, _, wrong = terminal.type(
            "--patience", "0.2", "exec", "--tool", "shell", "--", "touch", "ran", url=url
        )
    assert code == 69
    assert f"Gatebook does not answer at {url}" in wrong
    assert "Nothing was begun." in wrong
    assert not (terminal.folder / "ran").exists()


@pytest.mark.parametrize(
    ("words", "code"), [(["exec", "--tool", "t"], 64), (["exec", "--tool", "t", "--", "nô"], 127)]
)
def test_a_command_that_cannot_be_run_is_reported(
    terminal: Terminal, words: list[str], code: int
) -> None:
    status, _, wrong = terminal.type(*words)
    assert status == code
    assert "Traceback" not in wrong


def test_killed_in_the_middle_it_is_probed_and_not_run_again(terminal: Terminal) -> None:
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
    running = terminal.start(*words)
    made = terminal.folder / "made"
    wait_until(
        lambda: made.exists() and made.read_text() == "x\n"
    )  # a shell makes the file first, and then writes
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=WITHIN_S)
    code, _, wrong = terminal.type(*words)
    assert (code, made.read_text()) == (0, "x\n")
    assert "was done before (found-it)" in wrong


def _default_interrupts() -> None:
    """Restore SIGINT, which a shell ignores in its background processes and their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


SLEEP = ("sh", "-c", "touch begun; exec sleep 60")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_forwarded_and_the_outcome_is_unknown(
    terminal: Terminal, number: signal.Signals
) -> None:
    """A terminal sends Ctrl-C to the command as well; a signal to `gatebook` alone is forwarded."""
    running = terminal.start("exec", "--tool", "shell", "--session", f"d{number}", "--", *SLEEP)
    wait_until((terminal.folder / "begun").exists)
    running.send_signal(number)
    assert (running.communicate(timeout=WITHIN_S), running.returncode)[1] == 128 + number
    (effect,) = terminal.effects(f"d{number}")
    assert (effect["state"], effect["outcome"]) == ("acknowledged", "unknown")
    code, printed, _ = terminal.type("resume", f"d{number}")
    assert code == 3
    assert printed.startswith("Can it resume safely? NO\n  because: ")


def test_a_signal_at_the_start_of_the_command_is_forwarded(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
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
            terminal.type("exec", "--tool", "shell", "--session", "early", "--", *SLEEP)[0]
            == 128 + signal.SIGTERM
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended_by == []


def test_the_same_call_of_another_session_is_reported_before_it_runs(terminal: Terminal) -> None:
    cut_off = ("exec", "--tool", "shell", "--timeout", "0.2", "--session", "elsewhere")
    words = ("--", "sh", "-c", "test -e once || sleep 60")
    assert terminal.type(*cut_off, *words)[0] == 124
    (terminal.folder / "once").touch()
    code, _, wrong = terminal.type("exec", "--tool", "shell", "--session", "here", *words)
    (first,) = terminal.effects("elsewhere")
    assert (
        code,
        f"the same call may have happened already: {first['handle']} in elsewhere" in wrong,
    ) == (0, True)


def test_its_own_session_stays_open_while_the_outcome_is_unknown(
    terminal: Terminal,
) -> None:
    code, _, wrong = terminal.type("exec", "--tool", "shell", "--", "sh", "-c", "kill -9 $$")
    assert code == 128 + signal.SIGKILL
    assert re.search(r"gatebook: session run-\w+ is left open because of e_\d+\n", wrong)
    assert "OpenWork" not in wrong
    assert re.search(r"s_\d+ +running +run-", terminal.type("sessions", "--limit", "1")[1])


def test_the_commands_that_read(terminal: Terminal) -> None:
    assert terminal.type("exec", "--tool", "shell", "--session", "e", "--", "true")[0] == 0
    code, printed, _ = terminal.type("sessions", "--status", "running")
    assert code == 0
    assert "  e" in {line[20:].rstrip() for line in printed.splitlines()}
    for words in (("effects", "--session", "e"), ("tail", "--once", "--session", "e")):
        code, printed, _ = terminal.type(*words)
        assert code == 0
        assert "acknowledged  ok       used      shell" in printed
    code, printed, _ = terminal.type("resume", "e")
    assert (code, printed.splitlines()[0]) == (0, "Can it resume safely? YES")
    done = terminal.effects("e")[0]
    assert f"  done: {done['handle']}: completed; do not repeat it. shell" in printed
    for name in (str(done["id"]), str(done["handle"])):
        assert terminal.type("wait", name)[0] == 0
    handle = next(
        line.split()[0]
        for line in terminal.type("sessions")[1].splitlines()
        if line.endswith("  e")
    )
    assert terminal.type("resume", handle)[1] == printed
    assert terminal.type("effects", "--session", handle)[1].startswith(f"{done['handle']:>8}")
    with Client(terminal.server.url, terminal.token).session("e", mode="one_shot"):
        pass
    assert terminal.type("resume", "e")[1].startswith(
        "The session has ended (completed). No dispatched effect is open."
    )


def test_resume_names_the_same_call_of_another_session(terminal: Terminal) -> None:
    for session in ("paid", "paid-again"):
        terminal.type("exec", "--tool", "pay", "--session", session, "--", "echo", "invoice 17")
    terminal.server.manage("update_search_index")
    first, second = terminal.effects("paid")[0], terminal.effects("paid-again")[0]
    printed = terminal.type("resume", "paid-again")[1]
    assert f"  same call: {second['handle']} pay repeats {first['handle']} in s_" in printed
    printed = terminal.type("resume", "paid")[1]
    assert f"  same call: {first['handle']} pay was repeated as {second['handle']} in s_" in printed


@pytest.mark.parametrize(
    "words", [("effects", "--session"), ("tail", "--once", "--session"), ("resume",)]
)
@pytest.mark.parametrize("name", ["mistyped", "s_999999", "e_999999", "g_1"])
def test_a_missing_object_is_reported(
    terminal: Terminal, words: tuple[str, ...], name: str
) -> None:
    code, printed, wrong = terminal.type(*words, name)
    assert (code, printed) == (64, "")
    assert "There is no " in wrong
    assert name in wrong


def test_a_word_that_is_no_text_is_named(terminal: Terminal) -> None:
    code, _, wrong = terminal.type("exec", "--tool", "shell", "--", "printf", os.fsdecode(b"\xff"))
    assert (code, "b'\\xff'" in wrong) == (64, True)


def test_a_search_prints_its_rows_and_marks_errors_in_the_query(terminal: Terminal) -> None:
    reference = ("--reference", "printf x\u202ey")
    assert (
        terminal.type(
            "exec", "--tool", "shell.run", "--session", "found", *reference, "--", "true"
        )[0]
        == 0
    )
    code, printed, wrong = terminal.type("search", "effect session:found")
    assert (code, wrong) == (0, "")
    assert printed.splitlines()[0].split()[:3] == ["effect", "at", "session"]
    assert "shell.run  x<U+202E>y" in printed
    code, printed, _ = terminal.type(
        "search", "effect session:found", "--json", "--all", "--limit", "1"
    )
    (row,) = [row for line in printed.splitlines() for row in json.loads(line)["rows"]]
    assert row["reference"] == "x\u202ey"
    assert printed.isascii()
    assert terminal.type("search", "effect session:found | group state")[1].split() == [
        "state",
        "count",
        "acknowledged",
        "1",
    ]
    code, printed, wrong = terminal.type("search", "effect sttate:x")
    assert (code, printed) == (64, "")
    assert wrong.splitlines()[1:] == ["  effect sttate:x", "         ^^^^^^"]
    assert "scope audit" in terminal.type("search", "gate reviewer:carol")[2]
