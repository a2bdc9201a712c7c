"""The supervisor: no child outlives it, and no child dies unnoticed."""

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from config import supervisor as config_supervisor
from config.supervisor import KILL_AFTER_S, Child, Supervisor, build_web_server, is_ready
from evaluation.bench.installation import own_port
from tests.config.server import ROOT, copy_schema

# Longer than on a quiet machine, because other tests may run. A process that is not stopped stays
# for a minute or for ever.
BUSY_S = 25
# Ignores SIGTERM, has a child that ignores SIGTERM too, and prints both process ids when ready.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(60)"],
    stdout=subprocess.PIPE)
inner.stdout.readline()
open(sys.argv[1], "w").write(f"{os.getpid()} {inner.pid}")
time.sleep(60)
"""


def python(code: str, *arguments: str, vital: bool = True) -> Child:
    return Child("test child", [sys.executable, "-c", code, *arguments], vital=vital)


def alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: object, within_s: float = 60) -> None:
    until = time.monotonic() + within_s
    while not condition():  # type: ignore[operator]  # a plain callable
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_ignores_sigterm_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KILL_AFTER_S <= 4, "all must be gone within five seconds"
    monkeypatch.setattr(config_supervisor, "KILL_AFTER_S", 0.5)
    noted = tmp_path / "pids"
    supervisor = Supervisor([python(STUBBORN, str(noted)), python("import time; time.sleep(60)")])
    supervisor.start()
    wait_until(lambda: noted.exists() and len(noted.read_text().split()) == 2)
    os.kill(os.getpid(), signal.SIGINT)
    started = time.monotonic()
    assert supervisor.watch() is False
    assert supervisor.stop() == 0
    assert time.monotonic() - started < 1.5 + BUSY_S
    wait_until(lambda: not any(alive(int(process)) for process in noted.read_text().split()))


def test_when_one_process_dies_all_are_stopped_and_the_exit_code_is_not_zero(
    capfd: pytest.CaptureFixture[str],
) -> None:
    standing = python("import time; time.sleep(600)")
    supervisor = Supervisor([standing, python("raise SystemExit(7)")])
    supervisor.start()
    assert supervisor.watch() is False
    assert supervisor.stop() == 1
    wait_until(standing.gone)  # killed at the latest; a busy machine ends it later
    assert "test child ended by itself (exit code 7)" in capfd.readouterr().err


def test_an_errand_may_end_without_stopping_anything() -> None:
    standing = python("import time; time.sleep(600)")
    supervisor = Supervisor([standing])
    supervisor.start()
    errand = python("pass", vital=False)
    supervisor.add(errand)
    assert supervisor.watch(until=errand.gone) is True
    assert supervisor.fallen() is None
    supervisor.ask_to_stop()
    assert supervisor.stop() == 0
    wait_until(standing.gone)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_children_fall_with_a_killed_supervisor(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    code = (
        "import sys; from config.supervisor import Child, Supervisor\n"
        "s = Supervisor([Child('c', [sys.executable, '-c', 'import time; time.sleep(60)'])]); "
        "s.start()\n"
        f"open({str(noted)!r}, 'w').write(str(s.children[0].process.pid)); s.watch()"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait_until(lambda: noted.exists() and noted.read_text())
    supervisor.kill()
    supervisor.wait()
    wait_until(lambda: not alive(int(noted.read_text())))


def test_sqlite_is_served_by_one_process_and_postgresql_by_two() -> None:
    def workers(vendor: str) -> str:
        command = build_web_server("127.0.0.1", 1, vendor, 16).command
        return command[command.index("--workers") + 1]

    assert workers("sqlite") == "1"
    assert workers("postgresql") == "2"


class Served:
    """`python -m config.supervisor` on a separate installation."""

    def __init__(self, var: Path) -> None:
        self._holds = ExitStack()  # its port, reserved until the installation is removed
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("DATABASE_", "GATEBOOK_"))
            },
            "GATEBOOK_VAR": str(var),
            "PORT": str(self._holds.enter_context(own_port())),
            "PYTHONDONTWRITEBYTECODE": "",
        }
        self.url = f"http://127.0.0.1:{self.environment['PORT']}"
        self.error_lines: list[str] = []

    def setup(self) -> str:
        return self.run("manage.py", "setup").stdout

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def start(self, *options: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "config.supervisor", *options],
            cwd=ROOT,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        threading.Thread(
            target=lambda: self.error_lines.extend(process.stderr or ()), daemon=True
        ).start()
        wait_until(lambda: is_ready(self.url) or process.poll() is not None, 120)
        return process


def read_process_file(process: int, name: str) -> bytes:
    """Return a file of /proc about a process; empty when the process has ended."""
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def environment_of(process: int) -> bytes:
    """Return the initial environment of a process; empty when it has ended."""
    return read_process_file(process, "environ")


def processes_of(supervisor: int) -> set[int]:
    """Return the process ids below `supervisor` from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "status").read_text().partition("\nPPid:\t")[2].partition("\n")[0]
                )
            except (FileNotFoundError, ProcessLookupError):
                continue
    descendants: set[int] = set()
    new = {supervisor}
    while new:
        new = {process for process, parent in parents.items() if parent in new} - descendants
        descendants |= new
    return descendants


@pytest.fixture(scope="module")
def _prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of an installation that was set up and never served."""
    folder = tmp_path_factory.mktemp("prepared")
    copy_schema(folder)
    served = Served(folder)
    assert "Sign in as admin with the password" in served.setup()
    assert served.setup() == "", (
        "a second setup shows no password and makes no second administrator"
    )
    return folder


@pytest.fixture
def served(_prepared: Path, tmp_path: Path) -> Served:
    """Copy the prepared installation for one test."""
    return Served(shutil.copytree(_prepared, tmp_path / "var"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_installation_stops_when_its_clock_dies(served: Served, tmp_path: Path) -> None:
    served.environment["DATABASE_OWNER_URL"] = "postgres://owner:owners-secret@host/gatebook"
    served.environment["GATEBOOK_SMTP"] = "smtp://gatebook:mails-secret@host"
    noted = tmp_path / "environment"
    code = (
        "import os, sys; "
        f"open({str(noted)!r}, 'w').write(repr(dict(os.environ)) + ' '.join(sys.argv) + 'whole')"
    )
    running = served.start("--demo", sys.executable, "-c", code)
    wait_until(lambda: noted.exists() and noted.read_text().endswith("whole"))
    assert "-secret" not in noted.read_text(), "the demo agent knows Gatebook over HTTP alone"
    assert noted.read_text().endswith(f"-c --url {served.url}whole")
    assert "'GATEBOOK_TOKEN': 'gbk_" in noted.read_text()
    children = processes_of(running.pid)
    assert len(children) >= 4
    environments = {process: environment_of(process) for process in (running.pid, *children)}
    assert (
        len(
            [environment for environment in environments.values() if b"mails-secret" in environment]
        )
        >= 4
    )
    assert b"owners-secret" not in b"".join(environments.values()), (
        "only setup and migrate need the owner's role"
    )
    clock = next(
        process for process in children if b"\0beat\0" in read_process_file(process, "cmdline")
    )
    os.kill(clock, signal.SIGKILL)
    assert running.wait(60) == 1
    wait_until(lambda: not any(alive(process) for process in children))
    wait_until(lambda: any("job clock ended by itself" in line for line in served.error_lines))


def test_a_taken_port_is_reported_before_anything_starts(tmp_path: Path) -> None:
    served = Served(tmp_path)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", int(served.environment["PORT"])))
        other.listen()
        refused = served.run("-m", "config.supervisor")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"gatebook: cannot listen on 127.0.0.1 port {served.environment['PORT']}: Address already "
        "in use. "
        "Choose another with PORT=8001.\n"
    )


@pytest.mark.parametrize(("answers", "opened"), [([False, True, False], True), ([False], False)])
def test_a_server_that_answered_once_stays_ready_however_busy(
    monkeypatch: pytest.MonkeyPatch, answers: list[bool], opened: bool
) -> None:
    left = iter(answers)
    monkeypatch.setattr(config_supervisor, "is_ready", lambda url: next(left))
    monkeypatch.setattr(config_supervisor, "READY_WITHIN_S", 60.0 if opened else -1.0)
    assert config_supervisor._opened(Supervisor([]), "http://127.0.0.1:1") is opened


INVALID_PORT = "gatebook: PORT={} is no port. Choose a number from 1 to 65535, such as PORT=8001.\n"


def test_an_invalid_port_is_reported_in_a_sentence(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.environment["PORT"] = "abc"
    refused = served.run("-m", "config.supervisor")
    assert (refused.returncode, refused.stderr) == (1, INVALID_PORT.format("abc"))


@pytest.mark.parametrize("port", ["0", "65536", "-1", "8000 ", "9" * 5000])
def test_a_text_that_is_no_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        config_supervisor._port(port)
    assert (end.value.code, capsys.readouterr().err) == (1, INVALID_PORT.format(port))


@pytest.mark.parametrize("program", [["-m", "config.supervisor"], ["manage.py", "setup"]])
def test_an_invalid_database_url_is_reported_in_a_sentence(
    tmp_path: Path, program: list[str]
) -> None:
    served = Served(tmp_path)
    served.environment["DATABASE_URL"] = "mysql://elsewhere"
    refused = served.run(*program)
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        "gatebook: DATABASE_URL is not understood. Leave it unset for SQLite"
    )
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "installs"), [("embedded:", True), ("embedded:/srv/pg", True), ("", False)]
)
def test_make_installs_the_embedded_postgresql_on_request(url: str, installs: bool) -> None:
    # As after a change of the lock file, in a run that does nothing.
    command = [
        "make",
        "--dry-run",
        "--what-if=requirements-dev.lock",
        "install",
        f"DATABASE_URL={url}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("--requirement requirements-dev.lock" in done.stdout) is installs


def test_an_installation_without_its_triggers_does_not_start(served: Served) -> None:
    file = Path(served.environment["GATEBOOK_VAR"]) / "gatebook.sqlite3"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TRIGGER journal_entry_never_changes")
    refused = served.run("-m", "config.supervisor")
    assert refused.returncode == 1
    assert "refuses to start: The record is not guarded" in refused.stderr
    assert "journal_entry_never_changes" in refused.stderr
    assert "manage.py migrate" in refused.stderr
    served.setup()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'journal_entry_never_changes'"
        ).fetchone()


def test_the_documentation_is_built_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "GATEBOOK_SEAL_KEY", "GATEBOOK_SMTP", "CELERY_BROKER_URL"):
        monkeypatch.setenv(name, "redis://secret")
    child = config_supervisor.build_docs_child()
    assert not child.vital
    assert child.command[1:] == ["manage.py", "build_docs", "--if-older"]
    assert child.environment is not None
    assert child.environment["PATH"]
    assert "redis://secret" not in child.environment.values()
