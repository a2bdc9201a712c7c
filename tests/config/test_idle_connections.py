"""Idle SQLite connections of a web server serve the next request of any thread."""

import os
import shutil
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from db.sqlite import connection_pool
from db.sqlite.base import DatabaseWrapper
from db.url import build_database_settings

pytestmark = pytest.mark.once


@pytest.fixture
def database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any
) -> Iterator[Path]:
    """Return a file with a table, in a process with connection pooling like a web server."""
    monkeypatch.setattr(connection_pool, "_waiting", None)
    monkeypatch.setattr(connection_pool, "_bare", deque())
    connection_pool.enable_pooling()
    path = tmp_path / "lines.sqlite3"
    with sqlite3.connect(path) as made:
        # WAL as after `setup`: switching needs exclusive access, which a burst of connections would
        # refuse.
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE line (number integer PRIMARY KEY)")
    made.close()
    with django_db_blocker.unblock():  # the file is no database of Django's tests
        yield path
    for idle in (*(connection_pool._waiting or ()), *connection_pool._bare):
        idle.close()


def wrapper(path: Path) -> DatabaseWrapper:
    """Return a connection as a thread of Django has it."""
    defaults = {
        "ATOMIC_REQUESTS": False,
        "AUTOCOMMIT": True,
        "CONN_HEALTH_CHECKS": False,
        "TIME_ZONE": None,
    }
    settings = {
        **defaults,
        **build_database_settings(f"sqlite:///{path}", path.parent, path.parent, 4),
    }
    return DatabaseWrapper(settings, "default")


def request(connection: DatabaseWrapper, number: int = 0) -> Any:
    """Read, or write `number`, as a request does; return its SQLite connection."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO line VALUES ({number})" if number else "SELECT count(*) FROM line"
        )
    sqlite_connection = connection.connection
    connection.close_if_unusable_or_obsolete()  # as Django does at the end of a request
    return sqlite_connection


def test_the_connection_used_last_serves_the_next_request_of_any_thread(database: Path) -> None:
    first = wrapper(database)
    sqlite_connection = request(first, 1)
    with ThreadPoolExecutor(1) as elsewhere:
        assert elsewhere.submit(lambda: request(wrapper(database), 2)).result() is sqlite_connection
    assert request(first) is sqlite_connection
    assert sqlite_connection.execute("SELECT count(*) FROM line").fetchone() == (2,)
    # The connection is set up like a new one.
    assert sqlite_connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert sqlite_connection.execute("PRAGMA recursive_triggers").fetchone() == (1,)


def test_after_a_burst_only_the_limit_of_connections_stays_open(database: Path) -> None:
    together = threading.Barrier(connection_pool.MAX_IDLE_CONNECTIONS + 4)

    def one_of_many() -> Any:
        own = wrapper(database)
        own.ensure_connection()
        together.wait(60)
        return request(own)

    with ThreadPoolExecutor(connection_pool.MAX_IDLE_CONNECTIONS + 4) as pool:
        sqlite_connection = [
            done.result()
            for done in [
                pool.submit(one_of_many) for _ in range(connection_pool.MAX_IDLE_CONNECTIONS + 4)
            ]
        ]
    assert (
        len({id(connection) for connection in sqlite_connection})
        == connection_pool.MAX_IDLE_CONNECTIONS + 4
    )
    assert (
        sum(connection.is_open for connection in sqlite_connection)
        == connection_pool.MAX_IDLE_CONNECTIONS
    )
    assert request(wrapper(database)) in [
        connection for connection in sqlite_connection if connection.is_open
    ]


def test_a_returned_connection_frees_its_pages_when_many_are_idle(
    database: Path,
) -> None:
    wrappers = [wrapper(database) for _ in range(connection_pool.MAX_WITH_PAGES + 1)]
    for other in wrappers:
        other.ensure_connection()
    *first, last = wrappers
    for other in first:
        request(other)
    statements: list[str] = []
    last.connection.set_trace_callback(statements.append)
    request(last)
    assert statements[-1] == "PRAGMA shrink_memory"
    again = wrapper(database)
    again.ensure_connection()
    again.connection.set_trace_callback(statements.append)
    sqlite_connection = request(again)
    assert statements[-1] == "SELECT count(*) FROM line"
    assert request(wrapper(database)) is sqlite_connection


def test_a_connection_with_uncommitted_changes_is_not_reused(database: Path) -> None:
    own = wrapper(database)
    own.set_autocommit(False)
    with own.cursor() as cursor:
        cursor.execute("INSERT INTO line VALUES (7)")
    sqlite_connection = own.connection
    own.close()
    assert not sqlite_connection.is_open
    other = wrapper(database)
    with other.cursor() as cursor:
        assert cursor.execute("SELECT count(*) FROM line").fetchone() == (0,)


def test_a_database_file_that_replaced_another_is_opened_again(database: Path) -> None:
    sqlite_connection = request(wrapper(database), 1)
    restored = database.with_name("restored.sqlite3")
    shutil.copy(database, restored)
    restored.replace(database)
    assert request(wrapper(database)) is not sqlite_connection
    assert not sqlite_connection.is_open


def test_without_a_web_server_a_thread_keeps_its_own(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "_waiting", None)
    own = wrapper(database)
    sqlite_connection = request(own)
    assert own.connection is sqlite_connection
    own.close()
    assert not sqlite_connection.is_open


def test_a_child_process_uses_no_connection_of_its_parent(database: Path) -> None:
    request(wrapper(database))
    child = os.fork()
    if not child:
        os._exit(
            0
            if not connection_pool._waiting
            and connection_pool.take_connection(str(database)) is None
            else 1
        )
    assert os.waitpid(child, 0)[1] == 0
    assert connection_pool._waiting
