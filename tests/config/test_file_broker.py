"""The broker that is a folder: a message is there whole or not at all, and a torn one kills nobody."""

import json
import time
from collections.abc import Iterator
from multiprocessing import Process
from pathlib import Path
from queue import Empty

import pytest
from kombu import Connection
from kombu.simple import SimpleQueue

from config.celery import FILE_BROKER, build_broker_options

pytestmark = pytest.mark.once
MESSAGES = 1_000


def connect(folder: Path) -> Connection:
    return Connection(FILE_BROKER, transport_options=build_broker_options(FILE_BROKER, folder))


def name(folder: Path) -> str:
    """A queue of its own for each test: kombu remembers per process which ones it has bound."""
    return folder.name


def put(folder: str, count: int) -> None:
    with connect(Path(folder)) as connection, connection.SimpleQueue(name(Path(folder))) as queue:
        for number in range(count):
            queue.put({"number": number})


@pytest.fixture
def chores(tmp_path: Path) -> Iterator[SimpleQueue]:
    with connect(tmp_path) as connection, connection.SimpleQueue(name(tmp_path)) as queue:
        yield queue


def test_who_looks_while_another_writes_never_sees_half_a_message(
    chores: SimpleQueue, tmp_path: Path
) -> None:
    writer = Process(target=put, args=(str(tmp_path), MESSAGES))
    writer.start()
    found: list[int] = []
    until = time.monotonic() + 60
    while len(found) < MESSAGES and time.monotonic() < until:
        try:
            message = chores.get_nowait()
        except Empty:
            continue
        found.append(message.payload["number"])
        message.ack()
    writer.join()
    assert sorted(found) == list(range(MESSAGES))


@pytest.mark.parametrize("fell", [False, True])
def test_who_binds_while_another_makes_the_file_of_the_exchange_waits_for_what_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fell: bool
) -> None:
    build_broker_options(FILE_BROKER, tmp_path)
    made, whole = (
        tmp_path / "control" / f"{name(tmp_path)}.exchange",
        json.dumps([["other", "", "other"]]),
    )
    made.touch()  # as kombu makes it before it writes, and as whoever was killed there left it

    def sleep(_seconds: float) -> None:
        if not fell and not made.stat().st_size:
            made.write_text(whole)

    monkeypatch.setattr(time, "sleep", sleep)
    put(str(tmp_path), 1)
    bound = [tuple(one) for one in json.loads(made.read_text())]
    assert (name(tmp_path), "", name(tmp_path)) in bound
    assert (("other", "", "other") in bound) is not fell


def test_a_torn_message_is_passed_over(chores: SimpleQueue, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    (folder / f"0_torn.{name(tmp_path)}.msg").write_bytes(b'{"body": "')
    (folder / f"0_void.{name(tmp_path)}.msg").touch()
    chores.put({"number": 1})
    for _ in range(2):
        with pytest.raises(Empty):
            chores.get_nowait()
    assert chores.get_nowait().payload == {"number": 1}
    assert list(folder.iterdir()) == []
