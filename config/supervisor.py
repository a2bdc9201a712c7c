"""Supervisor: `python -m config.supervisor` serves Gatebook until Ctrl-C.

It starts the web server (config/web), the Celery worker and the job clock (beat), each in its own
process group. SIGINT or SIGTERM becomes SIGTERM to all groups and, four seconds later, SIGKILL to
what is left. When a child ends by itself, the supervisor stops the others and exits with code 1.

With `--docs` it then builds the documentation site, if that is missing or older than its sources.

With `--demo COMMAND…` it runs COMMAND with `--url …` added, and a token in GATEBOOK_TOKEN, once
/readyz answers. The end of that command stops nothing.
"""

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

KILL_AFTER_S = 4.0
READY_WITHIN_S = 60.0
POLL_S = 0.1
PR_SET_PDEATHSIG = 1
ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Child:
    """One program in its own process group.

    When a `vital` child ends, all are stopped.

    `environment` is the program's whole environment; None passes our own on.
    """

    name: str
    command: list[str]
    vital: bool = True
    environment: dict[str, str] | None = None
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_die_with_parent(os.getpid()),
        )

    def signal(self, number: signal.Signals) -> None:
        """Send `number` to the whole group, also when only grandchildren are left."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def gone(self) -> bool:
        """Return whether the group has no process left."""
        if self.process is None:
            return True
        self.process.poll()
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    """On Linux, make a child end with a killed supervisor, or it keeps the port."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask_kernel


class Supervisor:
    """Starts children, watches them, and stops them together."""

    def __init__(self, children: list[Child]) -> None:
        self.children = children
        self.stopping = False

    def ask_to_stop(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Handle a signal: the watch ends at its next poll."""
        self.stopping = True

    def start(self) -> None:
        """Start every child. Signals stop the supervisor from now on."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.ask_to_stop)
        for child in self.children:
            child.start()

    def add(self, child: Child) -> None:
        """Start one more child and watch it with the others."""
        child.start()
        self.children.append(child)

    def fallen(self) -> Child | None:
        """Return a vital child that has ended by itself, or None."""
        for child in self.children:
            if child.process is not None and child.process.poll() is not None and child.vital:
                return child
        return None

    def watch(self, until: Callable[[], bool] = lambda: False) -> bool:
        """Watch until `until()` (True), a signal, or the end of a vital child."""
        while not self.stopping:
            if self.fallen() is not None:
                return False
            if until():
                return True
            time.sleep(POLL_S)
        return False

    def stop(self) -> int:
        """Stop children within 5 s; return 0 after a signal, 1 if a vital child ended."""
        fallen = None if self.stopping else self.fallen()
        if fallen is not None and fallen.process is not None:
            print_message(
                f"{fallen.name} ended by itself (exit code {fallen.process.returncode}); "
                "stopping everything"
            )
        for child in self.children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + KILL_AFTER_S
        while time.monotonic() < deadline and not all(child.gone() for child in self.children):
            time.sleep(POLL_S / 2)
        for child in self.children:
            if not child.gone():
                child.signal(signal.SIGKILL)
        for child in self.children:
            if child.process is not None:
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(timeout=0.5)
        return 0 if fallen is None else 1


def print_message(text: str) -> None:
    """Write a line to the terminal; the children's JSON logs go there too."""
    sys.stderr.write(f"gatebook: {text}\n")
    sys.stderr.flush()


def build_web_server(host: str, port: int, vendor: str, threads: int) -> Child:
    """Return the child that serves HTTP.

    SQLite allows one writer at a time and its queue is in one process, so one worker.
    """
    workers = 1 if vendor == "sqlite" else 2
    options = {
        "--host": host,
        "--port": str(port),
        "--workers": str(workers),
        "--blocking-threads": str(threads),
        "--workers-kill-timeout": "3",
    }
    command = [
        sys.executable,
        "-m",
        "config.http_server",
        *(part for pair in options.items() for part in pair),
    ]
    # glibc's allocator gives every thread its own arenas, and batches fragment each: under constant
    # work memory grew by half and kept growing. With two arenas it levels out. Other allocators
    # ignore the variable.
    # The key of tree heads is for the job worker only.
    environment = {
        "MALLOC_ARENA_MAX": "2",
        **{name: value for name, value in os.environ.items() if name != "GATEBOOK_SEAL_KEY"},
    }
    return Child("web server", [*command, "config.wsgi:application"], environment=environment)


def build_job_children(folder: Path) -> list[Child]:
    """Return the Celery worker and its clock.

    Two children, because a clock inside the worker could die unnoticed.
    """
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Jobs serve no pages. System checks would import all pages and double the start-up time.
    celery = [sys.executable, "-m", "celery", "-A", "config.celery", "--quiet", "--skip-checks"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    # The file broker moves each message through the temporary folder.
    environment = {**os.environ, "TMPDIR": str(temporary)}
    return [
        Child(
            "job worker",
            # One thread for sealing, which stays while entries arrive, and two for the other jobs.
            [*celery, "worker", "-P", "threads", "-c", "3", *quiet],
            environment=environment,
        ),
        Child("job clock", [*celery, "beat", "--pidfile="], environment=environment),
    ]


def build_docs_child() -> Child:
    """Return the child that builds the documentation, which needs no database and no secret."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_", "GATEBOOK_", "CELERY_"))
    }
    return Child(
        "documentation",
        [sys.executable, "manage.py", "build_docs", "--if-older"],
        vital=False,
        environment={**environment, "GATEBOOK_VAR": str(ROOT / "var" / "check")},
    )


def is_ready(url: str) -> bool:
    """Return whether /readyz answers 200."""
    # No proxy, because the address is this machine's.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/readyz", timeout=0.5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _opened(supervisor: Supervisor, url: str) -> bool | None:
    """Watch until the server is ready (True) or READY_WITHIN_S is over (False).

    Returns None when a signal or the end of a child came first.
    """
    patience = time.monotonic() + READY_WITHIN_S
    ready = False

    def settled() -> bool:
        # Checked once: waiting agents connect at this moment and may delay a second answer.
        nonlocal ready
        ready = is_ready(url)
        return ready or time.monotonic() > patience

    return ready if supervisor.watch(until=settled) else None


def _port(text: str) -> int:
    """Return the port that PORT names, or exit with a sentence."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 65535):
        print_message(
            f"PORT={text} is no port. Choose a number from 1 to 65535, such as PORT=8001."
        )
        raise SystemExit(1)
    return int(text)


def _refuse_taken_port(host: str, port: int) -> None:
    """Exit with a sentence when the port is taken.

    Another server's /readyz must not be taken for ours.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As the server does: connections of an earlier run that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as reason:
            print_message(
                f"cannot listen on {host} port {port}: {reason.strerror}. Choose another with "
                "PORT=8001."
            )
            raise SystemExit(1) from None


def _refuse_unsafe_start() -> str:
    """Exit with a sentence for each reason not to start; else return the database vendor."""
    import django

    django.setup()
    from django.db import connection

    from config import checks, installation
    from db import operator_errors

    try:
        reasons = installation.find_installation_faults() or checks.find_unsafe_start_reasons(
            connection
        )
    except Exception as reason:
        # The operator needs a sentence for any error, not a traceback.
        fault = operator_errors.describe_database_fault(reason)
        reasons = [
            fault
            or f"The database cannot be used: {reason}."
            " Check DATABASE_URL, and run `manage.py setup` first."
        ]
    finally:
        connection.close()
    if reasons:
        for sentence in reasons:
            print_message(f"refuses to start: {sentence}")
        raise SystemExit(1)
    return connection.vendor


# The demo agent uses only HTTP and must not see these.
_SECRETS = (
    "DATABASE_URL",
    "GATEBOOK_PEPPER",
    "GATEBOOK_SEAL_KEY",
    "GATEBOOK_SECRET_KEY",
    "GATEBOOK_SMTP",
    "CELERY_BROKER_URL",
)


def _forget_owner() -> None:
    """Restart without DATABASE_OWNER_URL, which only `setup` and `migrate` use.

    No serving process may have that password, and the kernel shows a process's first environment
    while it lives.
    """
    if "DATABASE_OWNER_URL" in os.environ:
        kept = {name: value for name, value in os.environ.items() if name != "DATABASE_OWNER_URL"}
        os.execve(sys.executable, [sys.executable, "-m", "config.supervisor", *sys.argv[1:]], kept)  # noqa: S606 - ourselves


def _demo_token() -> str:
    """Return a token for the demo agent, good for a day."""
    made = subprocess.run(
        [sys.executable, "manage.py", "issue_token", "--agent", "demo", "--expires", "1d"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return made.stdout.strip()


def main() -> int:
    """Run until a signal or the end of a vital child; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m config.supervisor", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--docs", action="store_true", help="build the documentation if it is missing or older"
    )
    parser.add_argument("--demo", nargs=argparse.REMAINDER, default=[], metavar="COMMAND")
    options = parser.parse_args()
    demo = options.demo
    _forget_owner()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    # Without cached modules every web worker takes seconds to import.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    host, port = (
        os.environ.get("GATEBOOK_HOST") or "127.0.0.1",
        _port(os.environ.get("PORT") or "8000"),
    )
    _refuse_taken_port(host, port)
    vendor = _refuse_unsafe_start()

    from django.conf import settings

    url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104 - compared, not bound
    token = _demo_token() if demo else ""
    supervisor = Supervisor(
        [
            build_web_server(host, port, vendor, settings.WEB_THREADS),
            *build_job_children(settings.CELERY_FOLDER),
        ]
    )
    supervisor.start()
    try:
        if (ready := _opened(supervisor, url)) is not None:
            print_message(
                f"serving {url} (Ctrl-C stops it)"
                if ready
                else f"not ready yet; ask {url}/readyz why"
            )
            if demo:
                kept = {name: value for name, value in os.environ.items() if name not in _SECRETS}
                kept["GATEBOOK_TOKEN"] = token  # arguments are readable by other users
                command = [*demo, "--url", url]
                supervisor.add(Child("demo agent", command, vital=False, environment=kept))
            if options.docs:
                supervisor.add(build_docs_child())
            supervisor.watch()
    finally:
        code = supervisor.stop()
    print_message("stopped")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
