"""Connections of a web server on SQLite wait for the next request, whichever thread it comes to."""

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
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any) -> Iterator[Path]:
    """A file with a table, in a process that shares its connections as a web server does."""
    monkeypatch.setattr(connection_pool, "_waiting", None)
    monkeypatch.setattr(connection_pool, "_bare", deque())
    connection_pool.enable_pooling()
    path = tmp_path / "book.sqlite3"
    with sqlite3.connect(path) as made:
        # As `setup` leaves it. To make it so asks for the file alone, and of a burst that all want
        # that one is refused.
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE line (number integer PRIMARY KEY)")
    made.close()
    with django_db_blocker.unblock():  # it is no database of Django's tests
        yield path
    for one in (*(connection_pool._waiting or ()), *connection_pool._bare):
        one.close()


def wrapper(path: Path) -> DatabaseWrapper:
    """What one thread has of Django."""
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


def request(one: DatabaseWrapper, number: int = 0) -> Any:
    """Read, or write `number`, as a request does; returns the connection that it had."""
    with one.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO line VALUES ({number})" if number else "SELECT count(*) FROM line"
        )
    had = one.connection
    one.close_if_unusable_or_obsolete()  # as Django does at the end of a request
    return had


def test_the_connection_used_last_serves_the_next_request_of_any_thread(book: Path) -> None:
    first = wrapper(book)
    had = request(first, 1)
    with ThreadPoolExecutor(1) as elsewhere:
        assert elsewhere.submit(lambda: request(wrapper(book), 2)).result() is had
    assert request(first) is had
    assert had.execute("SELECT count(*) FROM line").fetchone() == (2,)
    # It is set up as a new one is.
    assert had.execute("PRAGMA synchronous").fetchone() == (2,)
    assert had.execute("PRAGMA recursive_triggers").fetchone() == (1,)


def test_of_a_burst_no_more_wait_than_are_kept(book: Path) -> None:
    together = threading.Barrier(connection_pool.MAX_IDLE_CONNECTIONS + 4)

    def one_of_many() -> Any:
        mine = wrapper(book)
        mine.ensure_connection()
        together.wait(60)
        return request(mine)

    with ThreadPoolExecutor(connection_pool.MAX_IDLE_CONNECTIONS + 4) as pool:
        had = [
            done.result()
            for done in [
                pool.submit(one_of_many) for _ in range(connection_pool.MAX_IDLE_CONNECTIONS + 4)
            ]
        ]
    assert len({id(one) for one in had}) == connection_pool.MAX_IDLE_CONNECTIONS + 4
    assert sum(one.is_open for one in had) == connection_pool.MAX_IDLE_CONNECTIONS
    assert request(wrapper(book)) in [one for one in had if one.is_open]


def test_whoever_comes_back_to_many_gives_its_pages_back_and_those_in_use_keep_theirs(
    book: Path,
) -> None:
    mine = [wrapper(book) for _ in range(connection_pool.MAX_WITH_PAGES + 1)]
    for one in mine:
        one.ensure_connection()
    *first, last = mine
    for one in first:
        request(one)
    said: list[str] = []
    last.connection.set_trace_callback(said.append)
    request(last)
    assert said[-1] == "PRAGMA shrink_memory"
    again = wrapper(book)
    again.ensure_connection()
    again.connection.set_trace_callback(said.append)
    had = request(again)
    assert said[-1] == "SELECT count(*) FROM line"
    assert request(wrapper(book)) is had


def test_what_was_not_committed_is_not_handed_on(book: Path) -> None:
    mine = wrapper(book)
    mine.set_autocommit(False)
    with mine.cursor() as cursor:
        cursor.execute("INSERT INTO line VALUES (7)")
    had = mine.connection
    mine.close()
    assert not had.is_open
    other = wrapper(book)
    with other.cursor() as cursor:
        assert cursor.execute("SELECT count(*) FROM line").fetchone() == (0,)


def test_a_database_file_that_replaced_another_is_opened_again(book: Path) -> None:
    had = request(wrapper(book), 1)
    restored = book.with_name("restored.sqlite3")
    shutil.copy(book, restored)
    restored.replace(book)
    assert request(wrapper(book)) is not had
    assert not had.is_open


def test_without_a_web_server_a_thread_keeps_its_own(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "_waiting", None)
    mine = wrapper(book)
    had = request(mine)
    assert mine.connection is had
    mine.close()
    assert not had.is_open


def test_a_child_process_uses_no_connection_of_its_parent(book: Path) -> None:
    request(wrapper(book))
    child = os.fork()
    if not child:
        os._exit(
            0
            if not connection_pool._waiting and connection_pool.take_connection(str(book)) is None
            else 1
        )
    assert os.waitpid(child, 0)[1] == 0
    assert connection_pool._waiting
