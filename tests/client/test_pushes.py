"""An agent killed by SIGKILL before, during and after a real push: the next process pushes exactly
once in all."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.config.server import ROOT, Server

AGENT = Path(__file__).parent / "agents" / "pushing.py"
WITHIN_S = 180
LIFETIME_S = 3
TOOLS = f"""
tools:
  git.push: {{class: probeable, reversibility: compensable, deadline_s: 60, request_lifetime_s: {LIFETIME_S}}}
"""
# The leases of processes that were killed. The processes have a minute for each of their steps.
EXPIRE = """
from django.db.models import F
from sessions.models import Lease
Lease.objects.filter(project__name="pushes").update(expires_at_us=F("heartbeat_at_us"))
"""
# The remote's hook reports the push, and accepts it only on a signal.
HOOK = """#!/bin/sh
echo got >> "$GIT_DIR/got"
while [ -e "$GIT_DIR/closed" ]; do sleep 0.05; done
"""


def wait_until(condition: Callable[[], bool]) -> None:
    until, pause_s = time.monotonic() + WITHIN_S, 0.02
    while not condition():
        assert time.monotonic() < until
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, 0.2)  # conditions ask servers


class Place:
    """A bare remote with a reflog, and a clone with one more commit."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.remote, self.clone, self.marks = (
            folder / "remote.git",
            folder / "clone",
            folder / "marks",
        )
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{
                f"GIT_{who}_{what}": f"a@{what}"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.remote))
        self.git("-C", str(self.remote), "config", "core.logAllRefUpdates", "always")
        self.git("clone", "--quiet", str(self.remote), str(self.clone))
        self.commit("first")
        self.git("-C", str(self.clone), "push", "--quiet", "origin", "HEAD:refs/heads/main")
        self.commit("second")
        hook = self.remote / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(HOOK)
        hook.chmod(0o755)
        self.marks.touch()

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=WITHIN_S,
        )
        return done.stdout.strip()

    def commit(self, text: str) -> None:
        self.git("-C", str(self.clone), "commit", "--quiet", "--allow-empty", "--message", text)

    def head(self) -> str:
        return self.git("-C", str(self.clone), "rev-parse", "HEAD")

    def pushes(self) -> int:
        """Return how often the remote's main moved to the second commit."""
        return (
            self.git("-C", str(self.remote), "reflog", "main", "--format=%H")
            .split()
            .count(self.head())
        )

    def agent(self, server: Server, token: str, call: str, *stand: str) -> "subprocess.Popen[str]":
        words = [
            sys.executable,
            str(AGENT),
            server.url,
            token,
            str(self.clone),
            str(self.marks),
            call,
            *stand,
        ]
        return subprocess.Popen(
            words,
            env=self.environment | {"PYTHONPATH": str(ROOT / "client")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )


def a_token(server: Server, name: str, tools: Path) -> str:
    """A separate project whose only tool can be probed."""
    server.run(
        "from django.db import transaction; from accounts import projects\n"
        f"with transaction.atomic(): projects.create_project('{name}')"
    )
    tools.write_text(TOOLS)
    server.manage("load_tools", "--project", name, str(tools))
    return server.token("pusher", "--project", name)


CALLS = {"same-names": ("", ""), "new-call-ids": ("call-1", "call-2")}


def test_processes_killed_around_a_push_are_followed_by_exactly_one_push_each(
    live_server_process: Server, tmp_path: Path
) -> None:
    """In parallel, because each next process waits for the end of the request before it."""
    server = live_server_process
    token = a_token(server, "pushes", tmp_path / "tools.yaml")
    cases = [(when, name) for when in ("before", "during", "after") for name in CALLS]
    places = {case: Place(tmp_path / "-".join(case)) for case in cases}
    for (when, name), place in places.items():
        kill_first(place, server, token, when, CALLS[name][0])
    server.run(EXPIRE)
    running = {
        case: place.agent(server, token, CALLS[case[1]][1]) for case, place in places.items()
    }
    for case, place in places.items():
        printed, wrong = running[case].communicate(timeout=WITHIN_S)
        assert running[case].returncode == 0, (case, wrong)
        assert place.pushes() == 1, case
        assert printed.split()[-3:-1] == ["ok", place.head()], case
        again = place.marks.read_text().split().count("before") - 1
        assert again == (1 if case[0] == "before" else 0), case


def kill_first(place: Place, server: Server, token: str, when: str, call: str) -> None:
    """Start the push of an agent and kill the agent there."""
    closed, got = place.remote / "closed", place.remote / "got"
    if when == "during":
        closed.touch()
    first = place.agent(server, token, call, when)
    if when == "during":
        wait_until(got.exists)
        first.send_signal(
            signal.SIGKILL
        )  # only the agent: its git continues, like an in-flight request
        first.wait(WITHIN_S)
        closed.unlink()
        wait_until(lambda: place.pushes() == 1)
    else:
        wait_until(lambda: when in place.marks.read_text())
        os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=WITHIN_S)
