"""A command ends with its `gatebook exec`, however that ends, and after its tool's lifetime."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gatebook_client import watcher

from tests.client.test_command import WITHIN_S, Terminal, terminal
from tests.client.test_pushes import a_token, wait_until
from tests.config.server import Server

__all__ = ["terminal"]
pytestmark = pytest.mark.once
LIFETIME_S, LONG_S = 2, 60
TOOLS = f"""
tools:
  hand: {{class: opaque, request_lifetime_s: {LIFETIME_S}}}
  arm: {{class: opaque, request_lifetime_s: {LONG_S}}}
  shell: {{class: opaque}}
"""
TRIES = 20  # a busy machine may need longer than a lifetime to start a command
linux = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere only what stays in the command's group is ended"
)
# A command that forks: a child in its process group, and a daemon in another process session.
FORKS = """
import os, pathlib, subprocess, sys, time
sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
pids = [subprocess.Popen(sleeps).pid, subprocess.Popen(sleeps, start_new_session=True).pid, os.getpid(), os.getppid()]
pathlib.Path("new").write_text(" ".join(map(str, pids)))
os.rename("new", "pids")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def token(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    tools = tmp_path_factory.mktemp("killed") / "tools.yaml"
    token = a_token(live_server_process, "killed", tools)
    tools.write_text(TOOLS)
    live_server_process.manage("load_tools", "--project", "killed", str(tools))
    return token


def begin(
    terminal: Terminal, session: str, *, tool: str = "shell"
) -> tuple["subprocess.Popen[str]", list[int]]:
    """Start `gatebook exec` with a forking command; return its two children, itself and its parent.

    Returns no process where the command was ended before it had forked.
    """
    running = terminal.start(
        "exec", "--tool", tool, "--session", session, "--", sys.executable, "-c", FORKS
    )
    file = terminal.folder / "pids"
    wait_until(lambda: file.exists() or running.poll() is not None)
    return running, [int(pid) for pid in file.read_text().split()] if file.exists() else []


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; a zombie has."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return True


def all_gone(pids: list[int]) -> Callable[[], bool]:
    return lambda: all(is_gone(pid) for pid in pids)


@linux
@pytest.mark.parametrize("whom", ["itself", "its group"])
def test_killed_by_sigkill_no_process_of_the_command_remains(terminal: Terminal, whom: str) -> None:
    session = whom.replace(" ", "-")
    running, pids = begin(terminal, session)
    (os.kill if whom == "itself" else os.killpg)(running.pid, signal.SIGKILL)
    running.communicate(timeout=WITHIN_S)
    wait_until(all_gone(pids))
    (effect,) = terminal.effects(session)
    assert effect["state"] == "dispatched"
    assert (
        terminal.type(
            "exec", "--tool", "shell", "--session", session, "--", sys.executable, "-c", FORKS
        )[0]
        == 75
    )


@linux
def test_without_its_watcher_the_command_is_ended_and_the_outcome_unknown(
    terminal: Terminal,
) -> None:
    running, pids = begin(terminal, "watched")
    others, (command, parent) = pids[:2], pids[2:]
    os.kill(parent, signal.SIGKILL)
    assert running.wait(WITHIN_S) == 128 + signal.SIGKILL
    wait_until(all_gone([command, parent]))
    (effect,) = terminal.effects("watched")
    assert (effect["state"], effect["outcome"]) == ("acknowledged", "unknown")
    for pid in others:  # orphans of both: no parent is left to end them
        os.kill(pid, signal.SIGKILL)
    running.communicate()


@linux
@pytest.mark.parametrize("stopped", [False, True])
def test_at_the_end_of_its_tools_lifetime_it_is_ended_with_all_it_started(
    terminal: Terminal, stopped: bool
) -> None:
    """Also while `gatebook` itself is stopped."""
    for number in range(TRIES):
        session = f"late-{stopped}-{number}"
        running, pids = begin(terminal, session, tool="hand")
        if pids:
            break
        running.communicate()
    if stopped:
        running.send_signal(signal.SIGSTOP)
    wait_until(all_gone(pids[:3]))
    running.send_signal(signal.SIGCONT)
    _, wrong = running.communicate(timeout=WITHIN_S)
    assert running.returncode == 124
    assert (
        f"the command did not end within {LIFETIME_S} s and was killed, "
        "with the processes that it had started" in wrong
    )
    (effect,) = terminal.effects(session)
    assert (effect["state"], effect["outcome"]) == ("failed", "unknown")


@pytest.mark.parametrize("timeout", ["60.5", "1e9", "inf", "nan", "0", "-1"])
def test_a_timeout_that_outlasts_the_lifetime_is_refused_before_anything_is_planned(
    terminal: Terminal, timeout: str
) -> None:
    words = [
        "exec",
        "--tool",
        "arm",
        "--session",
        f"t{timeout}",
        "--timeout",
        timeout,
        "--",
        "touch",
        "ran",
    ]
    code, printed, wrong = terminal.type(*words)
    assert (code, printed) == (64, "")
    assert "Nothing was begun." in wrong
    if timeout in ("60.5", "1e9", "inf"):
        assert f"longer than the request lifetime of arm, {LONG_S} s" in wrong
    assert terminal.effects(f"t{timeout}") == []
    assert f"t{timeout}" not in terminal.type("sessions", "--limit", "200")[1]
    assert not (terminal.folder / "ran").exists()
    words[words.index(timeout)] = str(LONG_S)
    assert terminal.type(*words)[0] == 0


def test_a_daemon_of_a_finished_command_keeps_running(terminal: Terminal) -> None:
    script = (
        "import os, subprocess, sys; " + "print(subprocess.Popen(['sleep', '600'], stdout=2).pid)"
    )
    code, printed, _ = terminal.type(
        "exec", "--tool", "shell", "--session", "leaves", "--", sys.executable, "-c", script
    )
    assert code == 0
    assert not is_gone(int(printed))
    os.kill(int(printed), signal.SIGKILL)


@pytest.mark.parametrize("closed", [True, False])
def test_without_a_subreaper_the_process_group_of_the_command_is_ended(
    tmp_path: Path, closed: bool
) -> None:
    """As on systems other than Linux: after the end of `gatebook`, or of the lifetime."""
    elsewhere = "import runpy, sys; sys.platform = 'other'; del sys.argv[0]; runpy.run_path(sys.argv[0], {}, '__main__')"
    watch = [sys.executable, "-c", elsewhere, watcher.__file__]
    lasts, file = "600" if closed else "1", tmp_path / "pids"
    for _ in range(TRIES):
        alive, holds = os.pipe()
        read_end, output = os.pipe()
        options = [str(alive), str(output), lasts, "0"]
        running = subprocess.Popen(
            [*watch, *options, sys.executable, "-c", FORKS],
            pass_fds=(alive, output),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
        )
        os.close(alive)
        os.close(output)
        wait_until(lambda: file.exists() or running.poll() is not None)  # noqa: B023 - at once
        if closed:
            os.close(holds)
        with os.fdopen(read_end) as report:
            events = report.read().splitlines()
        assert running.wait(WITHIN_S) == 0
        if not closed:
            os.close(holds)
        if file.exists():
            break
    assert events == ["begun", "cut off"]
    child, daemon, command, _ = [int(pid) for pid in file.read_text().split()]
    wait_until(all_gone([child, command]))
    assert not is_gone(daemon)
    os.kill(daemon, signal.SIGKILL)
