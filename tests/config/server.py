"""The real server as a child of a test run, on its own database, which is never flushed."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from config.supervisor import Child, Supervisor, build_web_server, is_ready
from evaluation.bench.installation import own_port

ROOT = Path(__file__).resolve().parents[2]
COMMAND_WITHIN_S = 300
READY_WITHIN_S = 120
THREADS = 8


@dataclass
class Server:
    """A running Gatebook. `url` has no trailing slash; `environment` is that of its processes.

    One permanent child executes `manage` and `run`: starting Django for each takes a second of a
    processor.
    """

    url: str
    var: Path
    vendor: str
    environment: dict[str, str]
    administrator: str
    password: str
    child: Child
    shell: "Shell"

    def kill(self) -> None:
        """Kill every process of the web server with SIGKILL, like a crash; return when none is
        left."""
        self.child.signal(signal.SIGKILL)
        until = time.monotonic() + READY_WITHIN_S
        while not self.child.gone():
            assert time.monotonic() < until, "the server outlived SIGKILL"
            time.sleep(0.01)

    def start(self) -> None:
        """Start the web server after `kill`, on the same port and database; return when it is
        ready."""
        self.child.start()
        _wait_until_ready(self)

    def manage(self, *arguments: str) -> str:
        """Run `manage.py` with `arguments` on the server's database; return the output."""
        return self.shell.do({"manage": list(arguments)})

    def run(self, code: str) -> str:
        """Run Python `code` with Django on the server's database; return the output."""
        return self.shell.do({"run": code})

    def token(self, agent: str = "tester", *options: str) -> str:
        """Issue a token for `agent`, made if missing; `options` as in `issue_token`."""
        return self.manage("issue_token", "--agent", agent, *options).strip()


class Shell:
    """A child process with Django on the server's database, which executes commands in turn."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.config.shell"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, what: dict[str, object]) -> str:
        """Send the command `what` (see tests/config/shell.py) and return its output."""
        commands, answers = self._process.stdin, self._process.stdout
        assert commands is not None
        assert answers is not None
        with self._lock:
            commands.write(json.dumps(what) + "\n")
            commands.flush()
            assert select.select([answers], [], [], COMMAND_WITHIN_S)[0], f"{what} is not done yet"
            done, printed = json.loads(answers.readline() or '[false, "the child ended"]')
        assert done, f"{what} failed:\n{printed}"
        return str(printed)

    def close(self) -> None:
        """End the child."""
        self._process.kill()
        self._process.communicate()


class Copy:
    """A copy of a shell's process that runs lines of Python, ten times faster than `python -c`.

    `stdin` and `stdout` are the parent's ends of its pipes. A copy may be killed like any process.
    """

    def __init__(self, shell: Shell, code: str, *arguments: str) -> None:
        (input_end, write_end), (read_end, output_end) = os.pipe(), os.pipe()
        pipes = [f"/proc/{os.getpid()}/fd/{number}" for number in (input_end, output_end)]
        self.shell = shell
        self.pid = int(shell.do({"fork": code, "arguments": arguments, "pipes": pipes}))
        os.close(input_end)
        os.close(output_end)
        self.stdin, self.stdout = os.fdopen(write_end, "w"), os.fdopen(read_end)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> tuple[int, str]:
        """Wait for the end; return the exit code, negative for a signal, and the unread output."""
        self.stdin.close()
        with self.stdout:
            printed = self.stdout.read()
        return int(self.shell.do({"wait": self.pid})), printed


_MANAGE = """
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
for number, stream in ((1, sys.stdout), (2, sys.stderr)):
    os.dup2(log, number)
    stream.reconfigure(line_buffering=True)
sys.argv = ["manage.py", *sys.argv[2:]]
{before}
import manage
status = 0
try:
    manage.main()
except SystemExit as end:
    status = end.code if isinstance(end.code, int) else 1
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
sys.stdout.flush()
os._exit(status or 0)
"""


class Command:
    """`manage.py` with `arguments` in a copy of a shell's process, like subprocess.Popen.

    It starts ten times faster than a new process. Its output is appended to `log`. The lines
    `before` run first.
    """

    def __init__(self, shell: Shell, log: Path, *arguments: str, before: str = "") -> None:
        self._shell = shell
        self.returncode: int | None = None
        log.touch()
        self.pid = int(
            shell.do(
                {
                    "fork": _MANAGE.format(before=before),
                    "arguments": [str(log), *arguments],
                    "pipes": [os.devnull, os.devnull],
                }
            )
        )

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        if self.returncode is None:
            # A process that has ended waits for its parent, the shell, to read its exit code.
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z":
                self.returncode = int(self._shell.do({"wait": self.pid}))
        return self.returncode

    def wait(self, timeout: float = COMMAND_WITHIN_S) -> int:
        """Wait for the end at most `timeout` seconds; return the exit code."""
        until = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < until, "the command has not ended"
            time.sleep(0.02)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


@contextmanager
def serve(folder: Path, *, database: str = "", **environment: str) -> Iterator[Server]:
    """Serve a fresh installation with its files in `folder` until the block ends.

    On SQLite the database is in `folder`. On PostgreSQL it is created on the server of the test run
    and dropped, or is the empty one with the URL `database`.
    """
    own = nullcontext(("postgresql", database)) if database else _database(folder)
    with own as (vendor, url), own_port() as port:
        variables = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("DATABASE_", "GATEBOOK_"))
            },
            "DJANGO_SETTINGS_MODULE": "tests.config.settings",
            "GATEBOOK_VAR": str(folder),
            "DATABASE_URL": url,
            # Without cached modules every worker of the web server imports for seconds.
            "PYTHONDONTWRITEBYTECODE": "",
            "GATEBOOK_LOG_LEVEL": "WARNING",
            "GATEBOOK_THREADS": str(THREADS),
            "GATEBOOK_SEARCH_TIMEOUT_S": "60",  # a busy machine is no fault of a page
            **environment,
        }
        shell = Shell(variables)
        _fill(shell, folder, vendor)
        printed = shell.do({"manage": ["setup"]})
        sign_in = re.search(r"Sign in as (\S+) with the password (\S+)", printed)
        assert sign_in, f"setup did not print a sign-in: {printed}"
        child = build_web_server("127.0.0.1", port, vendor, int(variables["GATEBOOK_THREADS"]))
        child.environment = variables
        supervisor = Supervisor([child])
        server = Server(
            f"http://127.0.0.1:{port}",
            folder,
            vendor,
            variables,
            sign_in[1],
            sign_in[2],
            child,
            shell,
        )
        try:
            child.start()
            _wait_until_ready(server)
            yield server
        finally:
            supervisor.stop()
            shell.close()


def _fill(shell: Shell, folder: Path, vendor: str) -> None:
    """Copy the schema of the first server of this run, because making it takes 1.5 seconds."""
    kept = os.environ.get("TESTS_TEMPLATE")
    if vendor != "sqlite" or not kept:
        return
    template, file = Path(kept), folder / "gatebook.sqlite3"
    if template.exists():
        shutil.copy(template, file)
        return
    shell.do({"manage": ["migrate", "--verbosity", "0"]})
    made = template.with_suffix(f".{os.getpid()}")
    shutil.copy(file, made)
    made.rename(template)


def copy_schema(folder: Path) -> None:
    """Put SQLite's schema into an installation's folder, where the run made one. `setup` makes it
    otherwise, which takes eight seconds of a processor."""
    template = Path(os.environ.get("TESTS_TEMPLATE") or "none")
    if template.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(template, folder / "gatebook.sqlite3")


def _wait_until_ready(server: Server) -> None:
    until = time.monotonic() + READY_WITHIN_S
    while not is_ready(server.url):
        assert server.child.process is not None
        assert server.child.process.poll() is None, "the server ended while it started"
        assert time.monotonic() < until, "the server did not become ready"
        time.sleep(0.05)


@contextmanager
def _database(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the vendor and the DATABASE_URL of a new database for the server."""
    from django.conf import settings

    default = settings.DATABASES["default"]
    if default["ENGINE"] == "db.sqlite":
        yield "sqlite", ""
        return
    import psycopg

    name = f"live_{os.getpid()}_{folder.name}".lower()
    host, user, password, port = (
        str(default.get(key) or "") for key in ("HOST", "USER", "PASSWORD", "PORT")
    )
    with psycopg.connect(
        host=host,
        user=user,
        password=password,
        port=port or 5432,
        dbname="postgres",
        autocommit=True,
    ) as connection:
        kept = os.environ.get("TESTS_TEMPLATE")
        connection.execute(f'CREATE DATABASE "{name}"' + (f' TEMPLATE "{kept}"' if kept else ""))
        try:
            secret = f":{quote(password, safe='')}" if password else ""
            yield (
                "postgresql",
                f"postgres://{quote(user)}{secret}@{quote(host, safe='')}:{port or 5432}/{name}",
            )
        finally:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
