"""Gatebook under measurement: fresh databases, the real server as `python -m config.supervisor`
starts it, and a sign-in.

The benchmark knows Gatebook by its commands, by HTTP, by the tables it fills, and by the verbs that
`deciders` calls in a child. Every child is ended by its id.
"""

import ctypes
import http.client
import os
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
from urllib.parse import quote

from evaluation.bench import procfs

ROOT = Path(__file__).resolve().parents[2]
COMMAND_WITHIN_S = 180
READY_WITHIN_S = 60
QUIET_WITHIN_S = 30
STOP_WITHIN_S = 10
PR_SET_PDEATHSIG = 1
VENDORS = ("sqlite", "postgresql")


@dataclass
class Installation:
    """A database with Gatebook's schema, an administrator and a folder for its files. Nothing runs
    yet."""

    vendor: str
    folder: Path
    url: str
    cluster: "Cluster | None"
    administrator: str = ""
    password: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    def manage(self, *arguments: str) -> str:
        """Run `manage.py` with `arguments`; return what it printed."""
        return _run([sys.executable, "manage.py", *arguments], self.environment)

    def token(self, agent: str, *options: str) -> str:
        """Issue a token for `agent`, which is made when it is new."""
        return self.manage("issue_token", "--agent", agent, *options).strip()

    @property
    def sqlite_file(self) -> Path:
        """The database file, on SQLite."""
        return self.folder / "gatebook.sqlite3"

    def database_roots(self) -> list[int]:
        """The processes whose trees are the database; none on SQLite, which lives in the server."""
        return [self.cluster.process] if self.cluster is not None else []


@dataclass
class Cluster:
    """The embedded PostgreSQL, kept running by a child that holds it."""

    folder: Path

    @property
    def process(self) -> int:
        """The id of its first process, the parent of all others."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def url(self, database: str) -> str:
        """The DATABASE_URL of one of its databases."""
        return f"postgres://postgres@{quote(str(self.folder), safe='')}/{database}"

    def address(self, database: str) -> str:
        """The same for psycopg."""
        return f"host={self.folder} user=postgres dbname={database}"

    @contextmanager
    def statements(self) -> Iterator[dict[int, list[str]]]:
        """Yield what holds, after the block, every query asked in it: process of the connection ->
        its queries.

        By connection, since the ticks of the clock may fall into the block and are no part of what
        is measured.
        """
        import psycopg

        log = self.folder / "log"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            found: dict[int, list[str]] = {}
            for value in ("all", "none"):
                connection.execute(f"ALTER SYSTEM SET log_statement = '{value}'".encode())
                connection.execute("SELECT pg_reload_conf()")
                until = time.monotonic() + READY_WITHIN_S
                while connection.execute("SHOW log_statement").fetchone() != (value,):
                    if time.monotonic() > until:
                        raise RuntimeError("the settings were not read again")
                    time.sleep(0.02)
                time.sleep(
                    1
                )  # every process of the cluster was told, and reads them before its next statement
                if value == "all":
                    start = log.stat().st_size
                    yield found
            said = log.read_bytes()[start:].decode(errors="replace")
        asked = r"\[(\d+)\] LOG:  (?:statement|execute [^:]+): ((?:SELECT|INSERT|UPDATE|DELETE|WITH)\b.*)"
        for process, query in re.findall(asked, said):
            found.setdefault(int(process), []).append(query)


@dataclass
class Server:
    """A running Gatebook: its port and the processes that answer requests."""

    installation: Installation
    port: int
    supervisor: subprocess.Popen[bytes]
    web: int

    def roots(self) -> list[int]:
        """The processes whose trees are measured: the web server and the database. The job worker
        is not among them."""
        return [self.web, *self.installation.database_roots()]

    def cpu_s(self) -> float:
        """Processor seconds of server and database so far."""
        return procfs.cpu_s(self.roots())

    def database_cpu_s(self) -> float:
        """The database's part of it; nothing on SQLite, where it cannot be told apart."""
        return procfs.cpu_s(self.installation.database_roots())

    def resident_bytes(self) -> int:
        """Resident memory of the web server, all its processes together."""
        return procfs.resident_bytes([self.web])

    def fall(self) -> None:
        """End the web server by SIGKILL, as a crash would; returns when the rest of the house has
        stopped for it."""
        os.killpg(self.web, signal.SIGKILL)
        _wait_or_kill(self.supervisor)

    def rise(self) -> None:
        """Start the house again on the same port; returns when it answers."""
        self.supervisor = _supervise(self.installation, self.port)
        self.web = _when_ready(self.supervisor, self.port)


@contextmanager
def cluster(folder: Path, var: Path) -> Iterator[Cluster]:
    """Run the embedded PostgreSQL with its data in `folder` until the block ends, and remove the
    folder."""
    # Starting Django starts the server; it stops with the last process that uses it, and this one
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
        # a signal to our group must not end it before the others have let go of the database
        process_group=0,
    )
    try:
        until = time.monotonic() + READY_WITHIN_S
        found = Cluster(folder)
        while not _accepts(found):
            if keeper.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the embedded PostgreSQL did not start")
            time.sleep(0.1)
        yield found
    finally:
        if keeper.stdin is not None:
            keeper.stdin.close()
        _wait_or_kill(keeper)
        shutil.rmtree(folder, ignore_errors=True)


def _accepts(found: Cluster) -> bool:
    import psycopg

    try:
        with psycopg.connect(found.address("gatebook"), connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


@contextmanager
def ground(vendor: str, folder: Path, cluster_folder: Path) -> Iterator[Cluster | None]:
    """What installations of `vendor` stand on: an embedded PostgreSQL, or on SQLite nothing."""
    if vendor == "sqlite":
        yield None
        return
    with cluster(cluster_folder, folder / "keeper") as found:
        yield found


def install(vendor: str, folder: Path, found: Cluster | None) -> Installation:
    """Make a fresh installation in `folder`, whose name is also that of its database."""
    folder.mkdir(parents=True)
    name = folder.name
    url = ""
    if found is not None:
        import psycopg

        with psycopg.connect(found.address("gatebook"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        url = found.url(name)
    made = Installation(vendor, folder, url, found, environment=_environment(folder, url))
    said = made.manage("setup")
    sign_in = re.search(r"Sign in as (\S+) with the password (\S+)", said)
    if sign_in is None:
        raise RuntimeError(f"setup did not print a sign-in: {said}")
    made.administrator, made.password = sign_in[1], sign_in[2]
    return made


def clone(source: Installation, name: str) -> Installation:
    """Make an exact copy of an installation that nobody is using: data, keys and sign-in."""
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
    """Serve `installation` as an operator would, with the job worker and its clock, until the block
    ends."""
    with own_port() as port:
        server = Server(installation, port, _supervise(installation, port), web=0)
        try:
            _settle(server)
            yield server
        except Exception:
            # The folder is about to be removed, and the reason mostly stands at the end of this
            # file.
            sys.stderr.write((installation.folder / "server.log").read_text()[-3000:])
            raise
        finally:
            server.supervisor.send_signal(signal.SIGTERM)
            _wait_or_kill(server.supervisor)


@contextmanager
def own_port() -> Iterator[int]:
    """A port that nobody else is given until the block ends, also between a fall of the server and
    its rise."""
    with socket.socket() as held:
        held.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as the server says too, which so may bind it
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


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


def _when_ready(supervisor: subprocess.Popen[bytes], port: int) -> int:
    """Wait until the server answers; return the id of its first process."""
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
    """Wait until the server answers and its neighbours (job worker, clock) have stopped using the
    processor."""
    server.web = _when_ready(server.supervisor, server.port)
    until = time.monotonic() + QUIET_WITHIN_S
    used = procfs.cpu_s([server.supervisor.pid])
    while time.monotonic() < until:
        time.sleep(1)
        before, used = used, procfs.cpu_s([server.supervisor.pid])
        if used - before < 0.05:
            break


def _die_with(parent: int) -> Callable[[], None]:
    """Make a child fall with a benchmark that was itself killed."""
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
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_", "GATEBOOK_"))
    }
    # Without its cached modules every worker of the server imports for seconds.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "GATEBOOK_VAR": str(folder), "DATABASE_URL": url}


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
    """Wait for the end of a child that leads a group of its own; late, the whole group is killed."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(STOP_WITHIN_S)
        return
    os.killpg(child.pid, signal.SIGKILL)
    child.wait(STOP_WITHIN_S)
