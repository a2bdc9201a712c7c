"""The recipe of `make demo`: its push waits for the administrator, and Ctrl-C ends all processes."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from config.supervisor import KILL_AFTER_S, is_ready
from tests.config.server import ROOT, copy_schema
from tests.config.test_supervisor import BUSY_S, Served, alive, processes_of, wait_until
from tests.matrices import keep_core

RECIPE = (
    (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2].partition("\n\n")[0]
)
WITHIN_S = 300


def approve(url: str, gate: str, password: str) -> None:
    """Sign in as the administrator and approve a gate, with intent code and password."""
    form = re.compile(r'name="(csrfmiddlewaretoken|in_project|seen|seen_draft)" value="([^"]+)"')
    with httpx.Client(base_url=url, timeout=60) as browser:

        def fields(path: str) -> tuple[str, dict[str, str]]:
            page = browser.get(path)
            assert page.status_code == 200, page.text
            return page.text, dict(form.findall(page.text))

        def send(path: str, **more: str) -> None:
            answer = browser.post(path, data=fields(path)[1] | more)
            assert answer.status_code == 302, answer.text

        send("/sign-in/", username="admin", password=password)
        page, form_fields = fields(f"/approvals/{gate}/")
        assert "refs/heads/main" in page
        answer = browser.post(f"/approvals/{gate}/vote/", data=form_fields | {"answer": "approve"})
        confirm = answer.headers["Location"]
        code = re.search(r"Type <code>(\w+)</code>", fields(confirm)[0])
        assert code, "a push to production needs the intent code"
        send(confirm, code=code[1], password=password)


class Demo(Served):
    """A new installation, prepared by the recipe and served with the demo agent."""

    def prepare(self) -> str:
        """Run the recipe's first commands; return the administrator's password."""
        commands = re.findall(r"manage\.py (.+?) &&", RECIPE)
        assert [command.split()[0] for command in commands] == [
            "setup",
            "load_tools",
            "load_policies",
            "load_sample",
        ]
        output = ""
        for command in commands:
            done = self.run("manage.py", *command.split())
            assert done.returncode == 0, done.stderr
            output += done.stdout
        sign_in = re.search(r"Sign in as admin with the password (\S+)", output)
        assert sign_in
        return sign_in[1]

    @contextmanager
    def run_to_gate(self, file: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
        """Serve until the agent waits for approval; yield the supervisor and the gate.

        `file` gets the agent's output. The supervisor is killed at the end. It builds no
        documentation, which tests/docs/ build.
        """
        command = (
            RECIPE.rpartition("exec $(BIN)/python -m ")[2]
            .replace("--docs ", "")
            .replace("$(BIN)/python", sys.executable)
            .split()
        )
        with file.open("wb") as out:
            running = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, env=self.environment, stdout=out
            )
        try:
            wait_until(lambda: "approve it in the browser" in file.read_text(), WITHIN_S)
            address = re.search(rf"\({self.url}/approvals/(\S+)/\)", file.read_text())
            assert address
            yield running, address[1]
        finally:
            running.kill()
            running.wait()


def stop(running: "subprocess.Popen[bytes]", url: str) -> None:
    """Check that Ctrl-C ends all processes. The time limit allows for a busy machine."""
    assert KILL_AFTER_S <= 4, "all processes must end within five seconds"
    children, started = processes_of(running.pid), time.monotonic()
    assert len(children) >= 4, "the web server and its worker, the job worker, the job clock"
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 0
    assert time.monotonic() - started < 5 + BUSY_S
    wait_until(lambda: not any(alive(process) for process in children))
    assert not is_ready(url)


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("is_second_run", keep_core([False, True], [False]))
def test_ctrl_c_ends_all_after_the_push_that_the_administrator_approved(
    tmp_path: Path, is_second_run: bool
) -> None:
    copy_schema(tmp_path)
    demo, first, second = Demo(tmp_path), tmp_path / "first", tmp_path / "second"
    password = demo.prepare()
    if is_second_run:
        with demo.run_to_gate(first) as (running, _):
            stop(running, demo.url)
        assert "push-next" not in first.read_text()
    with demo.run_to_gate(second) as (running, gate):
        approve(demo.url, gate, password)
        wait_until(lambda: f"done; see {demo.url}/sessions/" in second.read_text(), WITHIN_S)
        assert len(processes_of(running.pid)) >= 4, "the installation runs on without its agent"
        stop(running, demo.url)
