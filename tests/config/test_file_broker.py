"""The file broker: a message is stored completely or not at all, and a torn one stops no worker."""

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
    """Return a queue name for each test, because kombu caches bindings per process."""
    return folder.name


def put(folder: str, count: int) -> None:
    with connect(Path(folder)) as connection, connection.SimpleQueue(name(Path(folder))) as queue:
        for number in range(count):
            queue.put({"number": number})


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[SimpleQueue]:
    with connect(tmp_path) as connection, connection.SimpleQueue(name(tmp_path)) as queue:
        yield queue


def test_a_reader_never_sees_half_a_message_of_a_concurrent_writer(
    jobs: SimpleQueue, tmp_path: Path
) -> None:
    writer = Process(target=put, args=(str(tmp_path), MESSAGES))
    writer.start()
    numbers: list[int] = []
    until = time.monotonic() + 60
    while len(numbers) < MESSAGES and time.monotonic() < until:
        try:
            message = jobs.get_nowait()
        except Empty:
            continue
        numbers.append(message.payload["number"])
        message.ack()
    writer.join()
    assert sorted(numbers) == list(range(MESSAGES))


@pytest.mark.parametrize("crashed", [False, True])
def test_binding_waits_for_the_writer_of_the_exchanges_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashed: bool
) -> None:
    build_broker_options(FILE_BROKER, tmp_path)
    made, complete = (
        tmp_path / "control" / f"{name(tmp_path)}.exchange",
        json.dumps([["other", "", "other"]]),
    )
    made.touch()  # empty, as kombu creates it before writing, or as a killed process left the file

    def sleep(_seconds: float) -> None:
        if not crashed and not made.stat().st_size:
            made.write_text(complete)

    monkeypatch.setattr(time, "sleep", sleep)
    put(str(tmp_path), 1)
    bound = [tuple(binding) for binding in json.loads(made.read_text())]
    assert (name(tmp_path), "", name(tmp_path)) in bound
    assert (("other", "", "other") in bound) is not crashed


def test_a_torn_message_is_passed_over(jobs: SimpleQueue, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    (folder / f"0_torn.{name(tmp_path)}.msg").write_bytes(b'{"body": "')
    (folder / f"0_void.{name(tmp_path)}.msg").touch()
    jobs.put({"number": 1})
    for _ in range(2):
        with pytest.raises(Empty):
            jobs.get_nowait()
    assert jobs.get_nowait().payload == {"number": 1}
    assert list(folder.iterdir()) == []
