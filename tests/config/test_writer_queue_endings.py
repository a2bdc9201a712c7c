"""Every end of a write releases the turn, also an unexpected one."""

import gc
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from db.sqlite import write_queue
from tests.config.test_writer_queue import BEGIN, connect, path, write

__all__ = ["path"]


@pytest.mark.parametrize("ending", ["commit", "rollback", "close", "COMMIT", "ROLLBACK"])
def test_every_end_releases_the_turn(path: Path, ending: str) -> None:
    connection = connect(path)
    connection.execute(BEGIN)
    write(connection, 1)
    assert connection.place.held
    if ending.isupper():
        connection.execute(ending)
    else:
        getattr(connection, ending)()
    assert not connection.place.held
    connection.close()


def test_a_failing_statement_outside_a_transaction_releases_the_turn(path: Path) -> None:
    connection = connect(path)
    write(connection, 1)
    for statement in ("INSERT INTO line VALUES (1)", "INSERT INTO nowhere VALUES (1)", "nonsense"):
        with pytest.raises(sqlite3.Error):
            connection.execute(statement)
        assert not connection.place.held
    connection.close()


def test_a_failing_statement_inside_a_transaction_keeps_the_turn_until_its_end(path: Path) -> None:
    connection = connect(path)
    connection.execute(BEGIN)
    write(connection, 1)
    with pytest.raises(sqlite3.IntegrityError):
        write(connection, 1)
    assert connection.place.held
    connection.rollback()
    assert not connection.place.held
    connection.close()


def test_a_rollback_by_sqlite_itself_releases_the_turn(path: Path) -> None:
    connection = connect(path)
    write(connection, 1)
    connection.execute(BEGIN)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT OR ROLLBACK INTO line VALUES (1)")
    assert not connection.in_transaction
    assert not connection.place.held
    connection.close()


def test_a_begin_that_conflicts_with_another_process_releases_the_turn(path: Path) -> None:
    # A plain connection has no queue, like another process.
    foreign = sqlite3.connect(str(path), isolation_level=None)
    foreign.execute(BEGIN)
    connection = connect(path, timeout=0.05)
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        connection.execute(BEGIN)
    assert not connection.place.held
    foreign.rollback()
    foreign.close()
    connection.execute(BEGIN)
    connection.rollback()
    connection.close()


def test_another_process_is_waited_for(path: Path) -> None:
    foreign = sqlite3.connect(str(path), isolation_level=None, check_same_thread=False)
    foreign.execute(BEGIN)
    timer = threading.Timer(0.2, foreign.commit)
    timer.start()
    connection = connect(path)
    write(connection, 1)
    timer.join()
    foreign.close()
    connection.close()


def test_a_connection_lost_without_a_close_releases_the_turn(path: Path) -> None:
    connection = connect(path)
    connection.execute(BEGIN)
    del connection
    gc.collect()
    assert write_queue.get_writer_queue(str(path)).holder is None


@pytest.mark.parametrize("has_turn", [True, False], ids=["with the turn", "without"])
def test_a_connection_may_be_garbage_collected_inside_the_queue(path: Path, has_turn: bool) -> None:
    line = write_queue.get_writer_queue(str(path))

    def collect_within() -> None:
        connection = connect(path)
        if has_turn:
            connection.execute(BEGIN)
        cycle: list[Any] = [connection]
        cycle.append(cycle)
        del connection, cycle
        with line.mutex:  # as when the garbage collector starts inside the queue
            gc.collect()

    thread = threading.Thread(
        target=collect_within, daemon=True
    )  # a deadlocked thread must not block the test
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the collector waits for a mutex that its own thread has"
    assert line.holder is None
    following = connect(path)
    write(following, 1)
    following.close()


def test_a_script_takes_and_releases_the_turn(path: Path) -> None:
    connection = connect(path)
    connection.executescript("INSERT INTO line VALUES (1); INSERT INTO line VALUES (2);")
    assert not connection.place.held
    connection.executescript("BEGIN; INSERT INTO line VALUES (3);")
    assert connection.place.held
    connection.rollback()
    connection.close()
