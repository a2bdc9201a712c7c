"""The gate listener of one process: a ruling made beside those who wait rings for them itself, another's it
finds in time."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from uuid import UUID, uuid4

import pytest
from django.db import connection

from approvals.gates import listener
from approvals.models import Gate
from db.ids import new_uuid7
from tests.approvals.inbox_scenario import Desk
from tests.approvals.test_races import committed, desk, planned

__all__ = ["committed", "desk"]


@pytest.mark.django_db
def test_a_ruling_in_this_process_rings_though_nobody_looks_at_the_file(
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[object]],
) -> None:
    deaf = listener.GateListener()
    monkeypatch.setattr(deaf, "_run", lambda: None)
    monkeypatch.setattr(listener, "_listener", deaf)
    mine, other = new_uuid7(), uuid4()
    ruled, asked = threading.Event(), threading.Event()
    heard: list[str] = []
    reads: list[bool] = []

    def read() -> str | None:
        reads.append(ruled.is_set())
        asked.set()
        return "ruled" if ruled.is_set() else None

    waiting = threading.Thread(
        target=lambda: heard.append(deaf.watch([mine], read, 300) or "nothing"), daemon=True
    )
    waiting.start()
    asked.wait(60)
    with django_capture_on_commit_callbacks(execute=True):
        listener.announce_gates([other])
    with django_capture_on_commit_callbacks(execute=True):
        listener.announce_gates([mine])
        ruled.set()
        assert not heard, "nothing is told before it is committed"
    waiting.join(60)
    assert heard == ["ruled"]
    assert reads == [False, True], "another gate's ruling rings nobody"


class Between(listener.GateListener):
    """Lets `then` happen once between the look at who waits and the look at the file."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then: Iterator[Callable[[], None]] = iter([then])
        self.looked = threading.Event()

    def _watched_gates(self) -> list[str]:
        found = super()._watched_gates()
        next(self._then, lambda: None)()
        return found

    def _wake_outdated(self, now: Mapping[UUID, int] | None) -> None:
        super()._wake_outdated(now)
        self.looked.set()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL tells; nobody looks")
def test_a_ruling_elsewhere_while_somebody_begins_to_wait_is_heard(desk: Desk) -> None:
    """It reads how the gate stands, another process rules, the listener checks, and only then does it
    come to wait."""
    gates = [planned(desk, name)[1] for name in ("first", "second")]
    has_read, heard_again = threading.Event(), threading.Event()
    read: list[int] = []

    def wait_for(gate: Gate, look: Callable[[], str | None]) -> threading.Thread:
        versions = lambda: {gate.id: read[-1]} if gate is gates[1] and read else {}  # noqa: E731
        return threading.Thread(
            target=lambda: between.watch([gate.id], look, 120, versions), daemon=True
        )

    def second() -> str | None:
        read.append(Gate.objects.values_list("version", flat=True).get(id=gates[1].id))
        if len(read) == 1:
            has_read.set()
            assert between.looked.wait(60)
            return None
        heard_again.set()
        return "read again"

    def then() -> None:
        late.start()
        assert has_read.wait(60)
        with closing(sqlite3.connect(str(connection.settings_dict["NAME"]))) as another, another:
            another.execute(
                "UPDATE approvals_gate SET version = version + 1 WHERE id = ?", [gates[1].id.hex]
            )

    between = Between(then)
    early, late = wait_for(gates[0], lambda: None), wait_for(gates[1], second)
    early.start()
    try:
        assert heard_again.wait(30)
        assert read == [1, 2]
    finally:
        between.drain()
        between.end()
        for one in (early, late):
            one.join(60)
