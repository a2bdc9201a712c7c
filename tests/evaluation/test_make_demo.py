"""What `make demo` runs, as the Makefile has it: it stops for the administrator that setup made, and for Ctrl-C."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.house.server import ROOT
from tests.house.test_supervisor import House, alive, processes_of, wait_until

RECIPE = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2].partition("\n\n")[0]
WITHIN_S = 60
APPROVE = """
from approvals import rulings
from approvals.models import Gate
from approvals.rulings import Shown
from journal.clock import now_us
from sessions.models import Agent, Membership
gate, admin = Gate.objects.get(id="{gate}"), Membership.objects.select_related("project", "user").get()
assert Agent.objects.get().owner is None
assert admin.user.username == "admin"
shown = Shown(gate.version, gate.digest, "0" * 64, True, now_us())
assert rulings.answer(gate, admin, "approve", "", shown).refusal is None
"""


class Demo(House):
    """A new installation, prepared as the recipe does and served with the demo agent."""

    def prepare(self) -> None:
        commands = re.findall(r"manage\.py (.+?) &&", RECIPE)
        assert [command.split()[0] for command in commands] == ["setup", "load_tools", "load_policies"]
        for command in commands:
            done = self.run("manage.py", *command.split())
            assert done.returncode == 0, done.stderr

    @contextmanager
    def at_the_gate(self, file: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
        """Serve until the agent waits for people; yield the supervisor and the gate. `file` keeps what the agent says.

        Killed at the end, if it has not ended by then.
        """
        words = RECIPE.rpartition("exec $(BIN)/python -m ")[2].replace("$(BIN)/python", sys.executable).split()
        with file.open("wb") as out:
            running = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, env=self.environment, stdout=out)
        try:
            wait_until(lambda: "approve it in the browser" in file.read_text(), WITHIN_S)
            found = re.search(rf"\({self.url}/approvals/(\S+)/\)", file.read_text())
            assert found
            yield running, found[1]
        finally:
            running.kill()
            running.wait()


def stop(running: "subprocess.Popen[bytes]") -> None:
    """Fail unless all is gone within five seconds of Ctrl-C."""
    children, started = processes_of(running.pid), time.monotonic()
    running.send_signal(signal.SIGINT)
    assert running.wait(10) == 0
    assert time.monotonic() - started < 5
    assert not any(alive(process) for process in children)


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ctrl_c_ends_all_while_the_agent_waits_and_a_later_run_is_approved_by_the_administrator(tmp_path: Path) -> None:
    demo, first, second = Demo(tmp_path), tmp_path / "first", tmp_path / "second"
    demo.prepare()
    with demo.at_the_gate(first) as (running, _):
        stop(running)
    assert "push-next" not in first.read_text()
    with demo.at_the_gate(second) as (running, gate):
        approved = demo.run("manage.py", "shell", "--no-imports", "-c", APPROVE.format(gate=gate))
        assert approved.returncode == 0, approved.stderr
        wait_until(lambda: f"done; see {demo.url}/sessions/" in second.read_text(), WITHIN_S)
        assert len(processes_of(running.pid)) >= 4, "the house goes on without its agent"
        stop(running)
