"""A web server on SQLite copies its log into the database while others write."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from config import secret_keys
from db.sqlite import base, wal_checkpointer
from db.sqlite.base import DatabaseWrapper
from db.url import build_database_settings
from tests.config.server import ROOT

pytestmark = pytest.mark.once


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Return a connection that writes and never checkpoints."""
    monkeypatch.setattr(wal_checkpointer, "COPY_ABOVE_BYTES", 200_000)
    with closing(sqlite3.connect(tmp_path / "lines.sqlite3", isolation_level=None)) as own:
        own.execute("PRAGMA journal_mode = WAL")
        own.execute("PRAGMA wal_autocheckpoint = 0")
        own.execute("CREATE TABLE line (text text)")
        yield own


def frames(own: sqlite3.Connection) -> int:
    """Return the number of pages in the log."""
    return int(own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])


def test_a_long_log_is_copied_and_a_short_one_is_not(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    path = tmp_path / "lines.sqlite3"
    with closing(wal_checkpointer.WalCheckpointer(str(path))) as copying:
        database.execute("INSERT INTO line VALUES ('a short one')")
        assert not copying.checkpoint_if_due()
        for number in range(20):
            database.execute("INSERT INTO line VALUES (?)", [f"line {number} " + "x" * 20_000])
        assert b"line 19 " not in path.read_bytes()
        assert copying.checkpoint_if_due()
        assert b"line 19 " in path.read_bytes()
        assert not copying.checkpoint_if_due()  # nothing was written since
        database.execute("INSERT INTO line VALUES ('the next')")
        assert frames(database) < 5  # the log restarts at its beginning


def test_pages_written_during_a_copy_are_copied_in_their_own_turn(
    database: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines.sqlite3"
    with closing(wal_checkpointer.WalCheckpointer(str(path))) as copying:
        for number in range(20):
            database.execute("INSERT INTO line VALUES (?)", [f"line {number} " + "x" * 20_000])
        take = copying._place.take

        def comes_first(timeout_s: float) -> None:
            database.execute("INSERT INTO line VALUES ('written while it copied')")
            take(timeout_s)

        monkeypatch.setattr(copying._place, "take", comes_first)
        assert copying.checkpoint_if_due()
        assert not copying._place.held
        assert b"written while it copied" in path.read_bytes()
        database.execute("INSERT INTO line VALUES ('the next')")
        assert frames(database) < 5


def test_pages_that_a_reader_uses_are_copied_afterwards(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    path, log = tmp_path / "lines.sqlite3", tmp_path / "lines.sqlite3-wal"
    with (
        closing(wal_checkpointer.WalCheckpointer(str(path))) as copying,
        closing(sqlite3.connect(path)) as reading,
    ):
        for number in range(20):
            database.execute("INSERT INTO line VALUES (?)", [f"line {number} " + "x" * 20_000])
        rows = reading.execute("SELECT text FROM line")
        rows.fetchone()
        database.execute("INSERT INTO line VALUES (?)", ["after " + "y" * 20_000])
        assert copying.checkpoint_if_due()  # without waiting for a lock
        written = log.stat().st_mtime_ns
        text = path.read_bytes()
        assert b"line 0 " in text
        assert b"after yyy" not in text
        rows.close()
        while (
            log.stat().st_mtime_ns == written
        ):  # a file system's clock may not advance for milliseconds
            database.execute("INSERT INTO line VALUES ('one more')")
        assert copying.checkpoint_if_due()
        assert b"after yyy" in path.read_bytes()


def test_commits_copy_nothing_where_the_thread_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any
) -> None:
    def pages() -> int:
        url, folder = f"sqlite:///{tmp_path / 'other.sqlite3'}", tmp_path
        defaults = {
            "ATOMIC_REQUESTS": False,
            "AUTOCOMMIT": True,
            "CONN_HEALTH_CHECKS": False,
            "TIME_ZONE": None,
        }
        wrapper = DatabaseWrapper(
            {**defaults, **build_database_settings(url, folder, folder, 4)}, "default"
        )
        with django_db_blocker.unblock(), wrapper.cursor() as cursor:
            row = cursor.execute("PRAGMA wal_autocheckpoint").fetchone()
        wrapper.close()
        assert row is not None
        return int(row[0])

    monkeypatch.setattr(wal_checkpointer, "_begun", [])
    assert pages() == base.CHECKPOINT_PAGES
    ending = threading.Event()
    alive = threading.Thread(target=ending.wait)
    wal_checkpointer._begun.append(alive)
    alive.start()
    assert pages() == wal_checkpointer.BACKSTOP_PAGES
    ending.set()
    alive.join()
    assert pages() == base.CHECKPOINT_PAGES  # the thread has died


_WORKER = """
import multiprocessing, os, threading
multiprocessing.parent_process = lambda: multiprocessing.current_process()  # a worker of the web server
import config.wsgi
print(*(thread.name for thread in threading.enumerate()), flush=True)
os._exit(0)
"""


def test_a_worker_of_the_web_server_has_the_thread(tmp_path: Path) -> None:
    own = {
        "DATABASE_URL": f"sqlite:///{tmp_path / 'served.sqlite3'}",
        "GATEBOOK_VAR": str(tmp_path),
    }
    own |= dict.fromkeys(
        secret_keys.KEY_VARIABLES.values(), "a key of the test, of more than thirty-two bytes"
    )
    done = subprocess.run(
        [sys.executable, "-c", _WORKER],
        cwd=ROOT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "checkpoints" in done.stdout.split()
