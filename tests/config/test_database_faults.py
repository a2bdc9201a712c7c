"""Errors in a terminal for a database that is unavailable, refuses the password or is not migrated."""

import os
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import DatabaseError, OperationalError, ProgrammingError
from psycopg import errors as pg

from db.operator_errors import describe_database_fault
from tests.config.server import ROOT

ISSUE = ("manage.py", "issue_token", "--agent", "a")


def run(tmp_path: Path, url: str, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of Gatebook on the database at `url`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_", "GATEBOOK_"))
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**kept, "DATABASE_URL": url, "GATEBOOK_VAR": str(tmp_path / "var"), "PORT": "18997"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def is_one_sentence(done: "subprocess.CompletedProcess[str]", sentence: str) -> bool:
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("gatebook: "), done.stderr
    assert sentence in line, line
    assert "pa55word" not in done.stderr
    return done.stdout == ""


@pytest.fixture
def refusing() -> Iterator[int]:
    """Return a port whose server uses PostgreSQL's protocol and refuses every password."""
    listener = socket.create_server(("127.0.0.1", 0))
    fields = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "gatebook"\0\0'

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while True:
                    (length,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
                    (code,) = struct.unpack(
                        "!i", connection.recv(length - 4, socket.MSG_WAITALL)[:4]
                    )
                    if code == 3 << 16:
                        break
                    connection.sendall(b"N")  # neither TLS nor GSS
                connection.sendall(b"E" + struct.pack("!i", len(fields) + 4) + fields)

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.once
def test_a_database_that_is_away_is_a_sentence(tmp_path: Path) -> None:
    away = "postgres://gatebook:pa55word@127.0.0.1:1/gatebook"
    assert is_one_sentence(
        run(tmp_path, away, *ISSUE), "The database does not answer. Start the database, or correct"
    )


@pytest.mark.once
def test_a_wrong_password_is_a_sentence_without_it(tmp_path: Path, refusing: int) -> None:
    url = f"postgres://gatebook:pa55word@127.0.0.1:{refusing}/gatebook"
    assert is_one_sentence(
        run(tmp_path, url, *ISSUE), "The database refuses the password. Correct the password in"
    )
    serving = run(tmp_path, url, "-m", "config.supervisor")
    assert serving.returncode == 1
    assert "gatebook: refuses to start: The database refuses the password." in serving.stderr
    assert "Traceback" not in serving.stderr


def test_a_database_without_our_tables_is_a_sentence(tmp_path: Path) -> None:
    database = settings.DATABASES["default"]
    postgresql = f"postgres://{database.get('USER')}@{str(database.get('HOST')).replace('/', '%2F')}/postgres"
    url = "" if database["ENGINE"] == "db.sqlite" else postgresql
    done = run(tmp_path, url, *ISSUE)
    assert is_one_sentence(done, "or run `manage.py setup` to begin a new installation")
    if url:
        for wrong, sentence in (
            (
                url.removesuffix("postgres") + "no_such",
                "does not exist. Create it, or correct the name.",
            ),
            (
                url.replace(f"//{database['USER']}@", "//nobody_such@"),
                "refuses this role. Correct the role",
            ),
        ):
            assert is_one_sentence(run(tmp_path, wrong, *ISSUE), sentence)


@pytest.mark.once
def test_a_file_that_is_no_database_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "text.sqlite3"
    file.write_text("no database " * 100)
    assert is_one_sentence(
        run(tmp_path, f"sqlite:///{file}", *ISSUE), f"{file} is not an SQLite database. Correct"
    )
    assert "Traceback" in run(tmp_path, f"sqlite:///{file}", *ISSUE, "--traceback").stderr


def caused(error: type[Exception], cause: Exception) -> Exception:
    made = error(str(cause))
    made.__cause__ = cause
    return made


@pytest.mark.once
@pytest.mark.parametrize(
    ("error", "begins"),
    [
        (
            caused(ProgrammingError, pg.UndefinedColumn('column "x" does not exist')),
            "The database lacks columns",
        ),
        (
            caused(ProgrammingError, pg.InsufficientPrivilege("permission denied")),
            "The role of DATABASE_URL lacks a",
        ),
        (
            caused(DatabaseError, pg.ReadOnlySqlTransaction("cannot execute INSERT")),
            "The database is read-only.",
        ),
        (
            caused(OperationalError, pg.DiskFull("no space left on device")),
            "The disk of the database is full.",
        ),
        (
            caused(OperationalError, pg.OperationalError("too many clients already")),
            "The database has no connection",
        ),
        (
            caused(OperationalError, pg.OperationalError("server closed the connection")),
            "The database does not answer.",
        ),
        (caused(ProgrammingError, pg.SyntaxError("syntax error")), None),
        (caused(OperationalError, sqlite3.ProgrammingError("wrong number of bindings")), None),
        (ValueError("no such table"), None),
    ],
)
def test_each_fault_has_its_sentence_and_programmers_faults_keep_their_traceback(
    error: Exception, begins: str | None
) -> None:
    sentence = describe_database_fault(error)
    assert (
        sentence is None
        if begins is None
        else (sentence is not None and sentence.startswith(begins))
    )
    assert sentence is None or "\n" not in sentence
