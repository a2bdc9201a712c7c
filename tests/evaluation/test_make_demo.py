"""What `make demo` runs, as the Makefile has it: it stops for the administrator that setup made,
and for Ctrl-C."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from config.supervisor import KILL_AFTER_S
from tests.config.server import ROOT
from tests.config.test_supervisor import House, alive, processes_of, wait_until

RECIPE = (
    (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2].partition("\n\n")[0]
)
WITHIN_S = 300


def approve(url: str, gate: str, password: str) -> None:
    """Sign in as the administrator and approve a gate: its page, the confirm page with code and
    password, the end."""
    form = re.compile(r'name="(csrfmiddlewaretoken|in_project|seen|seen_draft)" value="([^"]+)"')
    with httpx.Client(base_url=url, timeout=30) as browser:

        def fields(path: str) -> tuple[str, dict[str, str]]:
            page = browser.get(path)
            assert page.status_code == 200, page.text
            return page.text, dict(form.findall(page.text))

        def send(path: str, **more: str) -> None:
            answer = browser.post(path, data=fields(path)[1] | more)
            assert answer.status_code == 302, answer.text

        send("/sign-in/", username="admin", password=password)
        page, found = fields(f"/approvals/{gate}/")
        assert "refs/heads/main" in page
        answer = browser.post(f"/approvals/{gate}/vote/", data=found | {"answer": "approve"})
        confirm = answer.headers["Location"]
        code = re.search(r"Type <code>(\w+)</code>", fields(confirm)[0])
        assert code, "a push to production takes the code of the intent"
        send(confirm, code=code[1], password=password)


class Demo(House):
    """A new installation, prepared as the recipe does and served with the demo agent."""

    def prepare(self) -> str:
        """Do what the recipe does first; return the administrator's password."""
        commands = re.findall(r"manage\.py (.+?) &&", RECIPE)
        assert [command.split()[0] for command in commands] == [
            "setup",
            "load_tools",
            "load_policies",
        ]
        said = ""
        for command in commands:
            done = self.run("manage.py", *command.split())
            assert done.returncode == 0, done.stderr
            said += done.stdout
        found = re.search(r"Sign in as admin with the password (\S+)", said)
        assert found
        return found[1]

    @contextmanager
    def at_the_gate(self, file: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
        """Serve until the agent waits for people; yield the supervisor and the gate. `file` keeps
        what the agent says.

        Killed at the end, if it has not ended by then.
        """
        words = (
            RECIPE.rpartition("exec $(BIN)/python -m ")[2]
            .replace("$(BIN)/python", sys.executable)
            .split()
        )
        with file.open("wb") as out:
            running = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=ROOT, env=self.environment, stdout=out
            )
        try:
            wait_until(lambda: "approve it in the browser" in file.read_text(), WITHIN_S)
            found = re.search(rf"\({self.url}/approvals/(\S+)/\)", file.read_text())
            assert found
            yield running, found[1]
        finally:
            running.kill()
            running.wait()


def stop(running: "subprocess.Popen[bytes]") -> None:
    """Fail unless Ctrl-C ends all. How long a machine takes that is busy with other tests says
    nothing about that."""
    assert KILL_AFTER_S <= 4, "all must be gone within five seconds"
    children = processes_of(running.pid)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 0
    wait_until(lambda: not any(alive(process) for process in children))


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ctrl_c_ends_all_while_the_agent_waits_and_a_later_run_is_approved_by_the_administrator(
    tmp_path: Path,
) -> None:
    demo, first, second = Demo(tmp_path), tmp_path / "first", tmp_path / "second"
    password = demo.prepare()
    with demo.at_the_gate(first) as (running, _):
        stop(running)
    assert "push-next" not in first.read_text()
    with demo.at_the_gate(second) as (running, gate):
        approve(demo.url, gate, password)
        wait_until(lambda: f"done; see {demo.url}/sessions/" in second.read_text(), WITHIN_S)
        assert len(processes_of(running.pid)) >= 4, "the house goes on without its agent"
        stop(running)
