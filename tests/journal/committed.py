"""Tests whose transactions really commit: several threads, several connections, a flush at the end."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from db import triggers


@pytest.fixture
def committed(transactional_db: None) -> Iterator[None]:
    """Use a database with real commits. The flush afterwards disables the append-only triggers."""
    yield
    triggers.drop_for_test_flush(connection)


def together(*work: Callable[[], Any]) -> list[Any]:
    """Run `work` in threads that start together; return each result or exception."""
    results: list[Any] = [None] * len(work)
    gate = threading.Barrier(len(work))

    def run(index: int) -> None:
        try:
            gate.wait(timeout=30)
            results[index] = work[index]()
        except Exception as error:
            results[index] = error
        finally:
            connection.close()

    threads = [
        threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(work))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "a thread is still waiting: a deadlock"
    return results
