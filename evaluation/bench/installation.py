"""Installations under measurement: fresh databases, a sign-in, and the real server.

The benchmark uses Gatebook's commands, HTTP, the tables that it fills, and the functions that
`reviewer_process` calls in a child process. Every child is ended by its id.
"""

import ctypes
import datetime
import http.client
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evaluation.bench import procfs

ROOT = Path(__file__).resolve().parents[2]
COMMAND_WITHIN_S = 1_800  # a dry run reads ten million entries
READY_WITHIN_S = 180
QUIET_WITHIN_S = 30
STOP_WITHIN_S = 10
PR_SET_PDEATHSIG = 1
VENDORS = ("sqlite", "postgresql")


def describe_run() -> dict[str, Any]:
    """Return what readers of the figures need to know about the run."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": len(os.sched_getaffinity(0)),
    }


@dataclass
class Installation:
    """A database with Gatebook's schema, an administrator and a folder. No process runs yet."""

    vendor: str
    folder: Path
    url: str
    cluster: "Cluster | None"
    administrator: str = ""
    password: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    def manage(self, *arguments: str) -> str:
        """Run `manage.py` with `arguments`; return its output."""
        return _run([sys.executable, "manage.py", *arguments], self.environment)

    def issue_token(self, agent: str, *options: str) -> str:
        """Issue a token for `agent`, which is created if it is new."""
        return self.manage("issue_token", "--agent", agent, *options).strip()

    @property
    def sqlite_file(self) -> Path:
        """The database file, on SQLite."""
        return self.folder / "gatebook.sqlite3"

    def database_roots(self) -> list[int]:
        """Return the root processes of the database; none on SQLite, which runs in the server."""
        return [self.cluster.process] if self.cluster is not None else []


@dataclass
class Cluster:
    """The embedded PostgreSQL, which runs as long as a child process uses it."""

    folder: Path

    @property
    def process(self) -> int:
        """The id of the postmaster."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def url(self, database: str) -> str:
        """Return the DATABASE_URL of a database."""
        return f"postgres://postgres@{quote(str(self.folder), safe='')}/{database}"

    def address(self, database: str) -> str:
        """Return the psycopg address of a database."""
        return f"host={self.folder} user=postgres dbname={database}"

    @contextmanager
    def record_statements(self) -> Iterator[dict[int, list[str]]]:
        """Yield a dictionary that has, after the block, its queries by process of the connection.

        By connection, because periodic jobs may run during the block and are not measured.
        """
        import psycopg

        log = self.folder / "log"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            queries: dict[int, list[str]] = {}
            for value in ("all", "none"):
                connection.execute(f"ALTER SYSTEM SET log_statement = '{value}'".encode())
                connection.execute("SELECT pg_reload_conf()")
                until = time.monotonic() + READY_WITHIN_S
                while connection.execute("SHOW log_statement").fetchone() != (value,):
                    if time.monotonic() > until:
                        raise RuntimeError("the settings were not reloaded")
                    time.sleep(0.02)
                time.sleep(
                    1
                )  # all processes were signalled, and reload before their next statement
                if value == "all":
                    start = log.stat().st_size
                    yield queries
            output = log.read_bytes()[start:].decode(errors="replace")
        pattern = r"\[(\d+)\] LOG:  (?:statement|execute [^:]+): ((?:SELECT|INSERT|UPDATE|DELETE|WITH)\b.*)"
        for process, query in re.findall(pattern, output):
            queries.setdefault(int(process), []).append(query)


@dataclass
class Server:
    """A running Gatebook: its port and the processes that answer requests."""

    installation: Installation
    port: int
    supervisor: subprocess.Popen[bytes]
    web: int

    def roots(self) -> list[int]:
        """Return the root processes that are measured: web server and database, not the job worker."""
        return [self.web, *self.installation.database_roots()]

    def cpu_s(self) -> float:
        """Return the CPU seconds of server and database so far."""
        return procfs.cpu_s(self.roots())

    def database_cpu_s(self) -> float:
        """Return the CPU seconds of the database; 0 on SQLite, where it runs in the server."""
        return procfs.cpu_s(self.installation.database_roots())

    def resident_bytes(self) -> int:
        """Return the resident memory of all processes of the web server."""
        return procfs.resident_bytes([self.web])

    def crash(self) -> None:
        """End the web server by SIGKILL; return when the supervisor has stopped the rest."""
        os.killpg(self.web, signal.SIGKILL)
        _wait_or_kill(self.supervisor)

    def restart(self) -> None:
        """Start the installation again on the same port; return when it answers."""
        self.supervisor = _supervise(self.installation, self.port)
        self.web = _wait_until_ready(self.supervisor, self.port)


@contextmanager
def run_cluster(folder: Path, var: Path) -> Iterator[Cluster]:
    """Run the embedded PostgreSQL with its data in `folder` until the block ends; remove `folder`."""
    # Django starts the server, which stops with the last process that uses it: this one, which
    # waits for its stdin.
    keeper = subprocess.Popen(
        [
            sys.executable,
            "manage.py",
            "shell",
            "--no-imports",
            "-c",
            "import sys; sys.stdin.read()",
        ],
        cwd=ROOT,
        env=_environment(var, f"embedded:{folder}"),
        stdin=subprocess.PIPE,
        # a signal to our group must not end it before the others have released the database
        process_group=0,
    )
    try:
        until = time.monotonic() + READY_WITHIN_S
        running = Cluster(folder)
        while not _accepts_connections(running):
            if keeper.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the embedded PostgreSQL did not start")
            time.sleep(0.1)
        yield running
    finally:
        if keeper.stdin is not None:
            keeper.stdin.close()
        _wait_or_kill(keeper)
        shutil.rmtree(folder, ignore_errors=True)


def _accepts_connections(running: Cluster) -> bool:
    import psycopg

    try:
        with psycopg.connect(running.address("gatebook"), connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


@contextmanager
def provide_cluster(vendor: str, folder: Path, cluster_folder: Path) -> Iterator[Cluster | None]:
    """Yield the cluster for installations of `vendor`: an embedded PostgreSQL, or None on SQLite."""
    if vendor == "sqlite":
        yield None
        return
    with run_cluster(cluster_folder, folder / "keeper") as running:
        yield running


def install(vendor: str, folder: Path, cluster_at: Cluster | None) -> Installation:
    """Make a fresh installation in `folder`; its database has the same name."""
    folder.mkdir(parents=True)
    name = folder.name
    url = ""
    if cluster_at is not None:
        import psycopg

        with psycopg.connect(cluster_at.address("gatebook"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        url = cluster_at.url(name)
    installation = Installation(
        vendor, folder, url, cluster_at, environment=_environment(folder, url)
    )
    output = installation.manage("setup")
    sign_in = re.search(r"Sign in as (\S+) with the password (\S+)", output)
    if sign_in is None:
        raise RuntimeError(f"setup did not print a sign-in: {output}")
    installation.administrator, installation.password = sign_in[1], sign_in[2]
    return installation


def clone(source: Installation, name: str) -> Installation:
    """Copy an installation that is not running: data, keys and sign-in."""
    folder = source.folder.parent / name
    shutil.copytree(source.folder, folder, ignore=shutil.ignore_patterns("celery", "server.log"))
    url = ""
    if source.cluster is not None:
        import psycopg
        from psycopg import sql

        with psycopg.connect(source.cluster.address("postgres"), autocommit=True) as connection:
            copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(
                copy.format(sql.Identifier(name), sql.Identifier(source.folder.name))
            )
        url = source.cluster.url(name)
    return replace(source, folder=folder, url=url, environment=_environment(folder, url))


@contextmanager
def serve(installation: Installation) -> Iterator[Server]:
    """Serve `installation` with job worker and scheduler until the block ends."""
    with own_port() as port:
        server = Server(installation, port, _supervise(installation, port), web=0)
        try:
            _settle(server)
            yield server
        except Exception:
            # The folder is about to be removed; the end of the log usually has the reason.
            sys.stderr.write((installation.folder / "server.log").read_text()[-3000:])
            raise
        finally:
            server.supervisor.send_signal(signal.SIGTERM)
            _wait_or_kill(server.supervisor)


@contextmanager
def own_port() -> Iterator[int]:
    """Reserve a free port until the block ends, also between a server crash and its restart."""
    with socket.socket() as reserved:
        reserved.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # the server sets it too, so it may bind the port
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def _supervise(installation: Installation, port: int) -> subprocess.Popen[bytes]:
    with (installation.folder / "server.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "config.supervisor"],
            cwd=ROOT,
            env={**installation.environment, "PORT": str(port), "GATEBOOK_HOST": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=_die_with(os.getpid()),
        )


def _wait_until_ready(supervisor: subprocess.Popen[bytes], port: int) -> int:
    """Wait until the server answers; return the id of the web server's first process."""
    until = time.monotonic() + READY_WITHIN_S
    while not _ready(port):
        if supervisor.poll() is not None or time.monotonic() > until:
            raise RuntimeError("the server did not start")
        time.sleep(0.1)
    return next(
        process
        for process in procfs.tree(supervisor.pid)
        if "config.http_server" in procfs.command_line(process)
    )


def _settle(server: Server) -> None:
    """Wait until the server answers, and job worker and scheduler are idle."""
    server.web = _wait_until_ready(server.supervisor, server.port)
    until = time.monotonic() + QUIET_WITHIN_S
    used = procfs.cpu_s([server.supervisor.pid])
    while time.monotonic() < until:
        time.sleep(1)
        before, used = used, procfs.cpu_s([server.supervisor.pid])
        if used - before < 0.05:
            break


def _die_with(parent: int) -> Callable[[], None]:
    """Make a child end when the benchmark is killed."""
    prctl = ctypes.CDLL(None).prctl

    def ask_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask_kernel


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _environment(folder: Path, url: str) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_", "GATEBOOK_"))
    }
    # Without cached modules every worker of the server imports for seconds.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**inherited, "GATEBOOK_VAR": str(folder), "DATABASE_URL": url}


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_WITHIN_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[1:]} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _wait_or_kill(child: subprocess.Popen[bytes]) -> None:
    """Wait for a child that leads a process group; after a timeout kill the group."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(STOP_WITHIN_S)
        return
    os.killpg(child.pid, signal.SIGKILL)
    child.wait(STOP_WITHIN_S)
