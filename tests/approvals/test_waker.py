"""The waker of one process: a ruling made beside those who wait rings for them itself."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from uuid import uuid4

import pytest

from approvals import waker
from journal.ids import uuid7


@pytest.mark.django_db
def test_a_ruling_in_this_process_rings_though_nobody_looks_at_the_file(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[object]]
) -> None:
    deaf = waker.Waker()
    monkeypatch.setattr(deaf, "_run", lambda: None)
    monkeypatch.setattr(waker, "_waker", deaf)
    mine, other = uuid7(), uuid4()
    ruled, asked = threading.Event(), threading.Event()
    heard: list[str] = []
    reads: list[bool] = []

    def read() -> str | None:
        reads.append(ruled.is_set())
        asked.set()
        return "ruled" if ruled.is_set() else None

    waiting = threading.Thread(target=lambda: heard.append(deaf.watch([mine], read, 300) or "nothing"), daemon=True)
    waiting.start()
    asked.wait(60)
    with django_capture_on_commit_callbacks(execute=True):
        waker.announce([other])
    with django_capture_on_commit_callbacks(execute=True):
        waker.announce([mine])
        ruled.set()
        assert not heard, "nothing is told before it is committed"
    waiting.join(60)
    assert heard == ["ruled"]
    assert reads == [False, True], "another gate's ruling rings nobody"
