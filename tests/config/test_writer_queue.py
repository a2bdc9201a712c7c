"""The fair queue of SQLite writers: every path releases the turn."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pytest_django import DjangoDbBlocker

from db.sqlite import base, write_queue
from db.sqlite.base import Connection, needs_turn

BEGIN = "BEGIN IMMEDIATE"


def connect(path: Path, timeout: float = 60.0) -> Connection:
    return sqlite3.connect(
        str(path),
        timeout=timeout,
        factory=Connection,
        isolation_level=None,
        check_same_thread=False,
    )


def write(connection: Connection, number: int) -> None:
    connection.execute("INSERT INTO line VALUES (?)", [number])


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "queue.sqlite3"
    connection = connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE line (number INTEGER UNIQUE)")
    connection.close()
    yield path
    assert write_queue.get_writer_queue(str(path)).holder is None, "a writer kept the turn"


def in_thread(work: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    return thread


def wait_for_waiters(path: Path, count: int) -> None:
    until = time.monotonic() + 60
    while len(write_queue.get_writer_queue(str(path)).waiting) < count:
        assert time.monotonic() < until, "the writers did not queue up"
        time.sleep(0.005)


def test_writers_go_in_the_order_of_asking(path: Path) -> None:
    first = connect(path)
    first.execute(BEGIN)
    order: list[int] = []

    def write_in_turn(number: int) -> None:
        connection = connect(path)
        connection.execute(BEGIN)
        order.append(number)
        write(connection, number)
        connection.commit()
        connection.close()

    threads = []
    for number in range(12):
        threads.append(in_thread(write_in_turn, number))
        wait_for_waiters(path, number + 1)
    first.commit()
    for thread in threads:
        thread.join(60)
    assert order == list(range(12))
    assert first.execute("SELECT count(*) FROM line").fetchone() == (12,)
    first.close()


def test_a_single_writer_is_not_starved_by_a_crowd(path: Path) -> None:
    """Eight threads write without a pause; a ninth waits for at most eight turns."""
    stop = threading.Event()
    turns: list[str] = []

    def crowd() -> None:
        connection = connect(path)
        while not stop.is_set():
            connection.execute(BEGIN)
            turns.append("crowd")
            time.sleep(0.002)
            connection.commit()
        connection.close()

    threads = [in_thread(crowd) for _ in range(8)]
    own = connect(path)
    wait_for_turn, turns_before, waits = own.place.turn.wait, [], []

    def counts(timeout: float | None = None) -> bool:
        turns_before.append(
            len(turns)
        )  # before its place in the queue the crowd may have any number of turns
        return wait_for_turn(timeout)

    own.place.turn.wait = counts  # type: ignore[method-assign]  # called once it is in the queue
    try:
        for _ in range(10):
            wait_for_waiters(path, 6)
            turns_before.clear()
            own.execute(BEGIN)
            waits += [len(turns) - before for before in turns_before]
            own.commit()
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
        own.close()
    assert waits, "it never had to wait"
    assert max(waits) <= 8


def test_a_single_statement_outside_a_transaction_queues_too(path: Path) -> None:
    holder, other = connect(path), connect(path)
    holder.execute(BEGIN)
    thread = in_thread(write, other, 1)
    wait_for_waiters(path, 1)
    holder.rollback()
    thread.join(60)
    assert holder.execute("SELECT number FROM line").fetchall() == [(1,)]
    assert not other.place.held
    holder.close()
    other.close()


def test_reading_does_not_queue(path: Path) -> None:
    holder, reader = connect(path), connect(path)
    holder.execute(BEGIN)
    assert reader.execute("SELECT count(*) FROM line").fetchone() == (0,)
    assert reader.execute("WITH a AS (SELECT 1) SELECT * FROM a").fetchone() == (1,)
    holder.rollback()
    holder.close()
    reader.close()


def test_the_same_connection_never_waits_for_itself(path: Path) -> None:
    connection = connect(path)
    connection.execute(BEGIN)
    connection.execute("SAVEPOINT inner_one")
    write(connection, 1)
    connection.executemany("INSERT INTO line VALUES (?)", [[2], [3]])
    connection.execute("RELEASE inner_one")
    assert connection.place.held
    connection.execute("COMMIT")
    assert not connection.place.held
    connection.close()


def test_a_second_connection_of_the_writing_thread_fails_at_once(path: Path) -> None:
    holder, other = connect(path), connect(path, timeout=60)
    holder.execute(BEGIN)
    started = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="this thread is already writing"):
        other.execute(BEGIN)
    assert time.monotonic() - started < 30
    holder.rollback()
    other.execute(BEGIN)
    other.rollback()
    holder.close()
    other.close()


def test_a_writer_that_waits_too_long_gets_database_is_locked(path: Path) -> None:
    holder = connect(path)
    holder.execute(BEGIN)
    errors: list[BaseException] = []

    def impatient() -> None:
        connection = connect(path, timeout=0.05)
        try:
            connection.execute(BEGIN)
        except sqlite3.OperationalError as error:
            errors.append(error)
        connection.close()

    in_thread(impatient).join(60)
    assert "database is locked: waited 0.05 s" in str(errors[0])
    assert not write_queue.get_writer_queue(str(path)).waiting
    holder.rollback()
    holder.close()


def test_a_turn_that_arrives_as_the_wait_ends_is_not_lost() -> None:
    line = write_queue.WriterQueue()
    first, second = write_queue.QueuePlace(line), write_queue.QueuePlace(line)
    first.take(0)

    def pass_turn_and_time_out(timeout: float | None = None) -> bool:
        first.leave()
        return False

    second.turn.wait = pass_turn_and_time_out  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(second.take, 5).result(60)
    assert line.holder is second
    assert not line.waiting


def test_two_spellings_of_a_path_share_one_queue(path: Path) -> None:
    assert write_queue.get_writer_queue(
        str(path.parent / "." / path.name)
    ) is write_queue.get_writer_queue(str(path))


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT 1", False),
        ("  -- a remark\n /* another */ select 1", False),
        ("PRAGMA synchronous", False),
        ("EXPLAIN INSERT INTO a VALUES (1)", False),
        ("WITH a AS (SELECT 1) SELECT * FROM a", False),
        ("WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a", True),
        ("COMMIT", False),
        ("ROLLBACK TO SAVEPOINT a", False),
        ("INSERT INTO a VALUES (1)", True),
        ("-- a remark\nUPDATE a SET b = 1", True),
        ("begin immediate", True),
        ("SAVEPOINT a", True),
        ("CREATE TABLE a (b)", True),
        ("VACUUM", True),
        ("", True),
    ],
)
def test_only_statements_that_cannot_write_skip_the_queue(statement: str, expected: bool) -> None:
    assert needs_turn(statement) is expected


def test_the_wrapper_sets_every_connection_up_and_queues(
    path: Path, django_db_blocker: DjangoDbBlocker
) -> None:
    with django_db_blocker.unblock():
        check_the_wrapper(path)


def check_the_wrapper(path: Path) -> None:
    wrapper = base.DatabaseWrapper(
        {
            "NAME": str(path),
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
            "AUTOCOMMIT": True,
            "TIME_ZONE": None,
            "CONN_MAX_AGE": None,
            "CONN_HEALTH_CHECKS": False,
            "TEST": {},
        },
        "apart",
    )
    with wrapper.cursor() as cursor:
        for pragma, expected in {
            "journal_mode": "wal",
            "synchronous": 2,
            "foreign_keys": 1,
            "recursive_triggers": 1,
            "busy_timeout": 20000,
            "cache_size": -base.CACHE_KIB,
        }.items():
            cursor.execute(f"PRAGMA {pragma}")
            assert cursor.fetchone() == (expected,), pragma
    with wrapper.cursor() as cursor:
        cursor.execute("INSERT INTO line VALUES (%s)", [1])
        cursor.executemany("INSERT INTO line VALUES (%s)", [[2], [3]])
    assert not wrapper.connection.place.held
    statements: list[str] = []
    wrapper.connection.set_trace_callback(statements.append)
    with wrapper.cursor() as cursor:
        for rows in (10, base.SHRINK_AFTER_ROWS):
            assert "PRAGMA shrink_memory" not in statements
            cursor.executemany(
                "INSERT INTO line VALUES (%s)", [[1000 * rows + number] for number in range(rows)]
            )
    assert statements.count("PRAGMA shrink_memory") == 1
    assert not wrapper.connection.place.held
    wrapper.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    assert wrapper.connection.place.held
    wrapper.rollback()
    assert not wrapper.connection.place.held
    wrapper.close()


def test_people_precede_waiting_agents_and_agents_never_starve() -> None:
    line = write_queue.WriterQueue()
    holder = write_queue.QueuePlace(line)
    holder.take(1)
    written: list[str] = []

    def ask(name: str) -> None:
        place = write_queue.QueuePlace(line)
        with write_queue.prioritize_person() if name.startswith("person") else nullcontext():
            place.take(60)
        written.append(name)
        place.leave()

    threads = []
    for name in ("agent 1", "agent 2", "person 1", "person 2", "person 3", "person 4"):
        threads.append(in_thread(ask, name))
        deadline = time.monotonic() + 60
        while len(line.waiting) + len(line.people) < len(threads):
            assert time.monotonic() < deadline, "the writers did not queue up"
            time.sleep(0.002)
    holder.leave()
    for thread in threads:
        thread.join(60)
    assert written == ["person 1", "person 2", "person 3", "agent 1", "person 4", "agent 2"]
