"""The real server as a child of a test run, on a database of its own, so that nothing of it is ever flushed."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from config.run import Child, Supervisor, is_ready, web_server

ROOT = Path(__file__).resolve().parents[2]
COMMAND_WITHIN_S = 120
READY_WITHIN_S = 60
THREADS = 8


@dataclass
class Server:
    """A running Gatebook. `url` has no slash at its end; `environment` is what its processes were started with."""

    url: str
    var: Path
    vendor: str
    environment: dict[str, str]
    administrator: str
    password: str
    child: Child

    def kill(self) -> None:
        """End every process of the web server by SIGKILL, as a crash would; returns when none is left."""
        self.child.signal(signal.SIGKILL)
        until = time.monotonic() + READY_WITHIN_S
        while not self.child.gone():
            assert time.monotonic() < until, "the server outlived SIGKILL"
            time.sleep(0.01)

    def start(self) -> None:
        """Start the web server again after `kill`, on the same port and database; returns when it is ready."""
        self.child.start()
        _wait_until_ready(self)

    def manage(self, *arguments: str) -> str:
        """Run `manage.py` with `arguments` against the server's database; return what it printed."""
        return _run([sys.executable, "manage.py", *arguments], self.environment)

    def run(self, code: str) -> str:
        """Run Python `code` with Django set up against the server's database; return what it printed."""
        return _run([sys.executable, "-c", f"import django\ndjango.setup()\n{code}"], self.environment)

    def token(self, agent: str = "tester", *options: str) -> str:
        """Issue a token for `agent` (made when it is new) and return it; `options` as in `issue_token`."""
        return self.manage("issue_token", "--agent", agent, *options).strip()


@contextmanager
def serve(folder: Path, *, database: str = "", **environment: str) -> Iterator[Server]:
    """Serve a fresh installation with its files in `folder` until the block ends.

    On SQLite its database lies in `folder`; on PostgreSQL it is made beside the one of the test run, and dropped, or is
    the empty one that `database` names by its URL.
    """
    with nullcontext(("postgresql", database)) if database else _database(folder) as (vendor, url):
        variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DATABASE_", "GATEBOOK_"))},
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "GATEBOOK_VAR": str(folder),
            "DATABASE_URL": url,
            # Without its cached modules every worker of granian imports for seconds.
            "PYTHONDONTWRITEBYTECODE": "",
            "GATEBOOK_LOG_LEVEL": "WARNING",
            "GATEBOOK_THREADS": str(THREADS),
            **environment,
        }
        said = _run([sys.executable, "manage.py", "setup"], variables)
        found = re.search(r"Sign in as (\S+) with the password (\S+)", said)
        assert found, f"setup did not print a sign-in: {said}"
        port = free_port()
        child = web_server("127.0.0.1", port, vendor, int(variables["GATEBOOK_THREADS"]))
        child.environment = variables
        supervisor = Supervisor([child])
        server = Server(f"http://127.0.0.1:{port}", folder, vendor, variables, found[1], found[2], child)
        try:
            child.start()
            _wait_until_ready(server)
            yield server
        finally:
            supervisor.stop()


def free_port() -> int:
    """Return a port of this machine that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(server: Server) -> None:
    until = time.monotonic() + READY_WITHIN_S
    while not is_ready(server.url):
        assert server.child.process is not None
        assert server.child.process.poll() is None, "the server ended while it started"
        assert time.monotonic() < until, "the server did not become ready"
        time.sleep(0.05)


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=COMMAND_WITHIN_S, check=False
    )
    assert done.returncode == 0, f"{command[1:]} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def _database(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the vendor and the DATABASE_URL of a database of the server's own."""
    from django.conf import settings

    default = settings.DATABASES["default"]
    if default["ENGINE"] == "config.sqlite":
        yield "sqlite", ""
        return
    import psycopg

    name = f"live_{os.getpid()}_{folder.name}".lower()
    host, user, password, port = (str(default.get(key) or "") for key in ("HOST", "USER", "PASSWORD", "PORT"))
    with psycopg.connect(
        host=host, user=user, password=password, port=port or 5432, dbname="postgres", autocommit=True
    ) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            secret = f":{quote(password, safe='')}" if password else ""
            yield "postgresql", f"postgres://{quote(user)}{secret}@{quote(host, safe='')}:{port or 5432}/{name}"
        finally:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
