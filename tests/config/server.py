"""The real server as a child of a test run, on a database of its own, so that nothing of it is ever
flushed."""

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
    """A running Gatebook. `url` has no slash at its end; `environment` is what its processes were
    started with.

    `manage` and `run` are done by one child that stays: to start Django anew for each takes a
    second of a processor.
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
        """End every process of the web server by SIGKILL, as a crash would; returns when none is
        left."""
        self.child.signal(signal.SIGKILL)
        until = time.monotonic() + READY_WITHIN_S
        while not self.child.gone():
            assert time.monotonic() < until, "the server outlived SIGKILL"
            time.sleep(0.01)

    def start(self) -> None:
        """Start the web server again after `kill`, on the same port and database; returns when it
        is ready."""
        self.child.start()
        _wait_until_ready(self)

    def manage(self, *arguments: str) -> str:
        """Run `manage.py` with `arguments` against the server's database; return what it printed."""
        return self.shell.do({"manage": list(arguments)})

    def run(self, code: str) -> str:
        """Run Python `code` with Django set up against the server's database; return what it
        printed."""
        return self.shell.do({"run": code})

    def token(self, agent: str = "tester", *options: str) -> str:
        """Issue a token for `agent` (made when it is new) and return it; `options` as in
        `issue_token`."""
        return self.manage("issue_token", "--agent", agent, *options).strip()


class Shell:
    """A child process with Django set up against the server's database, which does one thing after
    the other."""

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
        """Let it do `what`, as tests/config/shell.py says, and return what was printed."""
        told, answers = self._process.stdin, self._process.stdout
        assert told is not None
        assert answers is not None
        with self._lock:
            told.write(json.dumps(what) + "\n")
            told.flush()
            assert select.select([answers], [], [], COMMAND_WITHIN_S)[0], f"{what} is not done yet"
            done, said = json.loads(answers.readline() or '[false, "the child ended"]')
        assert done, f"{what} failed:\n{said}"
        return str(said)

    def close(self) -> None:
        """End the child."""
        self._process.kill()
        self._process.communicate()


class Copy:
    """A copy of a shell's process, which runs lines of Python as `python -c` would, in a tenth of
    its time.

    `stdin` and `stdout` are ours of its pipes. It may be killed, as any process.
    """

    def __init__(self, shell: Shell, code: str, *arguments: str) -> None:
        (hears, tells), (listens, says) = os.pipe(), os.pipe()
        pipes = [f"/proc/{os.getpid()}/fd/{one}" for one in (hears, says)]
        self.shell = shell
        self.pid = int(shell.do({"fork": code, "arguments": arguments, "pipes": pipes}))
        os.close(hears)
        os.close(says)
        self.stdin, self.stdout = os.fdopen(tells, "w"), os.fdopen(listens)

    def kill(self) -> None:
        """End it by SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> tuple[int, str]:
        """Wait until it has ended; return its exit code, negative for a signal, and what it said
        that nobody read."""
        self.stdin.close()
        with self.stdout:
            said = self.stdout.read()
        return int(self.shell.do({"wait": self.pid})), said


@contextmanager
def serve(folder: Path, *, database: str = "", **environment: str) -> Iterator[Server]:
    """Serve a fresh installation with its files in `folder` until the block ends.

    On SQLite its database lies in `folder`; on PostgreSQL it is made beside the one of the test
    run, and dropped, or is the empty one that `database` names by its URL.
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
            # Without its cached modules every worker of the web server imports for seconds.
            "PYTHONDONTWRITEBYTECODE": "",
            "GATEBOOK_LOG_LEVEL": "WARNING",
            "GATEBOOK_THREADS": str(THREADS),
            "GATEBOOK_SEARCH_TIMEOUT_S": "60",  # a busy machine is no fault of a page
            **environment,
        }
        shell = Shell(variables)
        _fill(shell, folder, vendor)
        said = shell.do({"manage": ["setup"]})
        found = re.search(r"Sign in as (\S+) with the password (\S+)", said)
        assert found, f"setup did not print a sign-in: {said}"
        child = build_web_server("127.0.0.1", port, vendor, int(variables["GATEBOOK_THREADS"]))
        child.environment = variables
        supervisor = Supervisor([child])
        server = Server(
            f"http://127.0.0.1:{port}", folder, vendor, variables, found[1], found[2], child, shell
        )
        try:
            child.start()
            _wait_until_ready(server)
            yield server
        finally:
            supervisor.stop()
            shell.close()


def _fill(shell: Shell, folder: Path, vendor: str) -> None:
    """Copy the schema that the first server of this run has made: to make it takes a processor a
    second and a half."""
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


def _wait_until_ready(server: Server) -> None:
    until = time.monotonic() + READY_WITHIN_S
    while not is_ready(server.url):
        assert server.child.process is not None
        assert server.child.process.poll() is None, "the server ended while it started"
        assert time.monotonic() < until, "the server did not become ready"
        time.sleep(0.05)


@contextmanager
def _database(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the vendor and the DATABASE_URL of a database of the server's own."""
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
