"""The gate listener of a process is woken by its own rulings, and finds other processes' rulings in
time."""

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
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_races import committed, inbox, planned

__all__ = ["committed", "inbox"]


@pytest.mark.django_db
def test_a_ruling_in_this_process_wakes_without_a_read_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[object]],
) -> None:
    silent_listener = listener.GateListener()
    monkeypatch.setattr(silent_listener, "_run", lambda: None)
    monkeypatch.setattr(listener, "_listener", silent_listener)
    watched, other = new_uuid7(), uuid4()
    ruled, was_read = threading.Event(), threading.Event()
    delivered: list[str] = []
    reads: list[bool] = []

    def read() -> str | None:
        reads.append(ruled.is_set())
        was_read.set()
        return "ruled" if ruled.is_set() else None

    waiting = threading.Thread(
        target=lambda: delivered.append(silent_listener.watch([watched], read, 300) or "nothing"),
        daemon=True,
    )
    waiting.start()
    was_read.wait(60)
    with django_capture_on_commit_callbacks(execute=True):
        listener.announce_gates([other])
    with django_capture_on_commit_callbacks(execute=True):
        listener.announce_gates([watched])
        ruled.set()
        assert not delivered, "nothing is delivered before the commit"
    waiting.join(60)
    assert delivered == ["ruled"]
    assert reads == [False, True], "another gate's ruling wakes no waiter"


class PausedListener(listener.GateListener):
    """Runs `then` once between reading the watched gates and reading the file."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then: Iterator[Callable[[], None]] = iter([then])
        self.looked = threading.Event()

    def _watched_gates(self) -> list[str]:
        watched = super()._watched_gates()
        next(self._then, lambda: None)()
        return watched

    def _wake_outdated(self, now: Mapping[UUID, int] | None) -> None:
        super()._wake_outdated(now)
        self.looked.set()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL notifies; no file is read")
def test_a_ruling_of_another_process_while_a_wait_begins_is_delivered(inbox: InboxScenario) -> None:
    """A client reads the gate's status, another process rules, the listener checks, and only then
    the client begins to wait."""
    gates = [planned(inbox, name)[1] for name in ("first", "second")]
    has_read, heard_again = threading.Event(), threading.Event()
    read: list[int] = []

    def wait_for(gate: Gate, read_status: Callable[[], str | None]) -> threading.Thread:
        versions = lambda: {gate.id: read[-1]} if gate is gates[1] and read else {}  # noqa: E731
        return threading.Thread(
            target=lambda: paused_listener.watch([gate.id], read_status, 120, versions), daemon=True
        )

    def second() -> str | None:
        read.append(Gate.objects.values_list("version", flat=True).get(id=gates[1].id))
        if len(read) == 1:
            has_read.set()
            assert paused_listener.looked.wait(60)
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

    paused_listener = PausedListener(then)
    early, late = wait_for(gates[0], lambda: None), wait_for(gates[1], second)
    early.start()
    try:
        assert heard_again.wait(30)
        assert read == [1, 2]
    finally:
        paused_listener.drain()
        paused_listener.end()
        for thread in (early, late):
            thread.join(60)
