"""The processor that long reads share on SQLite: order of turns, and release on failure."""

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from sqlite3 import ProgrammingError

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from db.sqlite import cpu_share
from db.sqlite.cpu_share import CpuShare
from display import query_slots, time_limit
from tests.journal.committed import committed
from tests.pages.counting import COUNTED, LONG, ask
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds

__all__ = ["committed"]


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="PostgreSQL works in processes of its own"
)
def test_a_lost_connection_releases_the_processor(committed: None, settings: Settings) -> None:
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 60.0

    def lost() -> None:
        with time_limit.limit_search(7):
            ask(LONG)
            assert cpu_share._current != [None]
            connection.close()

    with pytest.raises(ProgrammingError, match="closed"):
        lost()
    assert cpu_share._current == [None]


@pytest.mark.parametrize(
    ("processors", "configured", "number"),
    [(1, 0, 1), (2, 0, 1), (3, 0, 2), (64, 0, 2), (2, 5, 5)],
)
def test_searches_leave_one_processor_to_writers(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    processors: int,
    configured: int,
    number: int,
) -> None:
    settings.GATEBOOK_SEARCH_PLACES = configured
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    assert query_slots.slot_count() == (
        number if configured or connection.vendor == "postgresql" else 2
    )


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="PostgreSQL works in processes of its own"
)
def test_long_reads_share_one_processor(
    committed: None,
    organization: Organization,
    sample: SampleIds,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let a long read wait while another works; short reads continue.

    Waiting does not count against the limit, up to the same time again, unless others queue.
    """
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 60.0
    clock = _Clock()
    monkeypatch.setattr(time_limit, "time", clock)
    client, other = organization.client("viewer"), CpuShare()
    assert other.again(60.0)
    with ThreadPoolExecutor(1) as reader:

        def waiting() -> "Future[int]":
            clock.now = 0.0
            begun = reader.submit(_count_in_thread, LONG)
            until = time.monotonic() + 60
            while not cpu_share._waiting:
                assert time.monotonic() < until
                assert not begun.done()
            return begun

        long = waiting()
        for page in ("/search/?q=tool:mail.send", f"/sessions/{sample.session}/"):
            assert client.get(page).status_code == 200
        clock.now = 119.0
        other.leave()
        assert long.result() == COUNTED
        for later, wanted in ((121.0, []), (61.0, [1])):
            assert other.again(60.0)
            monkeypatch.setattr(query_slots, "_waiting", wanted)
            long = waiting()
            clock.now = later
            other.leave()
            with pytest.raises(time_limit.QueryTimeout):
                long.result()
        assert other.again(60.0)  # a stopped read has released the processor
        clock.now, settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.0, 0.05
        with pytest.raises(time_limit.QueryTimeout):
            _count_in_thread(LONG)
        other.leave()
    assert (cpu_share._waiting, cpu_share._current) == ([], [None])


@pytest.mark.matrix
@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="PostgreSQL works in processes of its own"
)
def test_a_long_read_pauses_while_others_write(
    committed: None, sample: SampleIds, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 60.0
    clock = _Clock()
    monkeypatch.setattr(time_limit, "time", clock)
    with ThreadPoolExecutor(1) as reader:
        assert reader.submit(_count_in_thread, LONG).result() == COUNTED
        assert clock.slept == 0
        with transaction.atomic():  # this thread is another writer for the reader
            assert reader.submit(_count_in_thread, LONG).result() == COUNTED
        assert clock.slept > 0
    with (
        transaction.atomic(),
        time_limit.limit_search(7),
    ):  # a read inside a write does not pause
        clock.slept = 0
        assert ask(LONG) == COUNTED
        assert clock.slept == 0


@pytest.mark.once
def test_the_read_with_the_least_work_goes_next() -> None:
    shares = {name: CpuShare() for name in ("at work", "long", "short", "shorter")}
    order: list[str] = []

    def work(name: str) -> None:
        assert shares[name].again(60.0)
        order.append(name)
        shares[name].leave()

    assert shares["at work"].again(60.0)
    shares["long"].slices, shares["short"].slices = 20, 10
    with ThreadPoolExecutor(3) as readers:
        done = [readers.submit(work, name) for name in ("long", "short", "shorter")]
        until = time.monotonic() + 60
        while len(cpu_share._waiting) < 3:
            assert time.monotonic() < until
        assert not CpuShare().again(0.0)
        shares["at work"].leave()
        for future in done:
            future.result()
    assert order == ["shorter", "short", "long"]


class _Clock:
    """A clock that advances only on request."""

    now = 0.0
    slept = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _seconds: float) -> None:
        self.slept += 1


def _count_in_thread(statement: str) -> int:
    """Return what a separate thread counts within the limit."""
    try:
        with time_limit.limit_search(7):
            return ask(statement)
    finally:
        connection.close()
