"""Processes that write to one SQLite file take turns, however often each of them asks."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from db.sqlite import write_queue
from db.sqlite.write_queue import LockFile
from tests.config.test_writer_queue import BEGIN, connect, path, write

__all__ = ["path"]
PATIENCE_S = 60.0

# Three threads write without a pause, so the lock is free for microseconds at a time.
CROWD = """
import sys, threading, time
from pathlib import Path
from db.sqlite import write_queue
from tests.config.test_writer_queue import BEGIN, connect, write

write_queue._WAIT_FOR_PROCESS_S = float(sys.argv[2])

def crowd():
    connection = connect(Path(sys.argv[1]))
    while not done.is_set():
        connection.execute(BEGIN)
        connection.execute("INSERT INTO line VALUES (NULL)")
        time.sleep(0.01)
        connection.commit()

done = threading.Event()
threads = [threading.Thread(target=crowd) for _ in range(3)]
for thread in threads:
    thread.start()
print("writing", flush=True)
sys.stdin.read()
done.set()
"""


@pytest.fixture
def other(path: Path) -> Iterator[LockFile]:
    """Return the lock file as another process has it."""
    lock_file = LockFile(str(path))
    yield lock_file
    lock_file.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "_WAIT_FOR_PROCESS_S", -1.0)


def count_lines(connection: sqlite3.Connection) -> int:
    [count] = connection.execute("SELECT count(*) FROM line").fetchone()
    return int(count)


def is_free(lock_file: LockFile) -> bool:
    """Return whether no other process asks for SQLite's lock; takes and releases the file."""
    lock_file.take()
    is_held = lock_file._held
    lock_file.release()
    return is_held


def test_a_process_that_writes_without_a_pause_lets_another_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where a process is halted while it asks, the others wait for it and do not overtake.
    monkeypatch.setattr(write_queue, "_WAIT_FOR_PROCESS_S", PATIENCE_S)
    crowd = subprocess.Popen(
        [sys.executable, "-c", CROWD, str(path), str(PATIENCE_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert crowd.stdin
    assert crowd.stdout
    turns, before, after = [], 0, 0
    try:
        assert crowd.stdout.readline() == "writing\n"
        # A connection that asks for no turn counts, or the writer would give its turn back.
        with closing(connect(path)) as own, closing(sqlite3.connect(path)) as reader:
            assert own.place.queue.lock_file
            take = own.place.queue.lock_file.take

            def take_and_count() -> None:
                nonlocal before
                take()
                before = count_lines(reader)  # from now on it asks for SQLite's lock

            monkeypatch.setattr(own.place.queue.lock_file, "take", take_and_count)
            for _ in range(10):
                ends = time.monotonic() + PATIENCE_S
                while count_lines(reader) == after:
                    assert time.monotonic() < ends, "the other process writes nothing"
                own.execute(BEGIN)
                after = count_lines(own)
                own.commit()
                turns.append(after - before)
    finally:
        crowd.stdin.close()
        assert crowd.wait(PATIENCE_S) == 0
    # Without the lock file it waits for some 300 turns of the crowd on average.
    assert max(turns) <= 20


@pytest.mark.usefixtures("impatient")
def test_other_processes_may_ask_as_soon_as_a_transaction_has_begun(
    path: Path, other: LockFile
) -> None:
    with closing(connect(path)) as own:
        own.execute(BEGIN)
        assert is_free(other)
        write(own, 1)
        own.commit()
        assert is_free(other)
        with pytest.raises(sqlite3.IntegrityError):
            write(own, 1)
        assert is_free(other)


@pytest.mark.usefixtures("impatient")
def test_a_process_that_asks_and_stops_does_not_stop_others(path: Path, other: LockFile) -> None:
    other.take()
    with closing(connect(path)) as own:
        write(own, 1)
        assert own.execute("SELECT number FROM line").fetchall() == [(1,)]


@pytest.mark.usefixtures("impatient")
def test_a_process_that_dies_while_it_asks_is_not_waited_for(path: Path, other: LockFile) -> None:
    asks = "import sys, time; from db.sqlite.write_queue import LockFile; "
    asks += "LockFile(sys.argv[1]).take(); print('asks', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", asks, str(path)], stdout=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stdout
        assert asking.stdout.readline() == "asks\n"
        assert not is_free(other)
        asking.kill()
    assert is_free(other)


@pytest.mark.usefixtures("impatient")
def test_a_forked_child_does_not_keep_the_place_of_its_parent(path: Path) -> None:
    """The child keeps open what it inherits, so a lock would last as long as the child."""
    with closing(connect(path)) as own:
        write(own, 1)
        lock_file = own.place.queue.lock_file
        assert lock_file
        assert lock_file._file is not None
        number = os.fstat(lock_file._file).st_ino
        child = os.fork()
        if child == 0:
            files = Path("/proc/self/fd").iterdir()
            inodes = {file.stat().st_ino for file in files if file.exists()}
            os._exit(number in inodes)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.usefixtures("impatient")
def test_the_file_has_the_mode_of_the_database(path: Path) -> None:
    copy = path.with_name("copy.sqlite3")
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o640)
    queue_file = path.with_name("copy.sqlite3-queue")
    with closing(connect(copy)) as own:
        assert own.execute("SELECT count(*) FROM line").fetchone() == (0,)
        assert not queue_file.exists()  # it takes a writer
        write(own, 1)
    assert queue_file.stat().st_mode & 0o777 == 0o640


@pytest.mark.usefixtures("impatient")
def test_a_file_that_cannot_be_opened_stops_no_writer(path: Path) -> None:
    copy = path.with_name("copy.sqlite3")
    copy.write_bytes(path.read_bytes())
    path.with_name("copy.sqlite3-queue").mkdir()  # opening a folder to write fails
    with closing(connect(copy)) as own, capture_logs() as logged:
        write(own, 1)
        write(own, 2)
        assert not own.place.held
    assert [(line["event"], line["file"]) for line in logged] == [
        ("lock_file_unusable", f"{copy}-queue")
    ]
