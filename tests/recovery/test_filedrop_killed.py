"""Messages as files, and the bridge killed at every step: nothing doubles and nothing is lost."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accounts import projects
from importers.filedrop import safe_files
from importers.filedrop.bridge import RoundResult
from journal.models import Entry
from sessions import deliveries, messages
from sessions.models import Message, MessageFile
from tests.api.api_client import Caller
from tests.recovery.test_filedrop import Box, box, other, send, unread

__all__ = ["box", "other"]


class Killed(BaseException):
    """The process ends here: nothing catches it."""


STEPS = {
    safe_files: ("write_file", "move_to_done"),
    deliveries: ("record_deliveries", "end_delivery"),
    messages: ("send_file_message", "mark_file_read"),
    os: ("rename", "fsync"),
}


def killing(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """Let the process die before or after the `at`-th step that touches a file or a row; tells how
    many it took."""
    taken = 0

    def step(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken == at:
                raise Killed
            answer = call(*args, **kwargs)
            taken += 1
            if taken == at:
                raise Killed
            return answer

        return run

    for module, names in STEPS.items():
        for name in names:
            monkeypatch.setattr(module, name, step(getattr(module, name)))
    return lambda: taken


def test_wherever_it_is_killed_nothing_doubles_and_nothing_is_lost(
    agent: Caller, other: Caller, tmp_path: Path
) -> None:
    """A round that sends, writes, marks and puts away dies at each of its steps; the next round
    mends it."""
    project, at, finished = projects.ensure_default_project(), 0, False
    while not finished:
        at += 1
        box = Box(tmp_path / str(at), project)
        written, away = send(agent, "other", f"read {at}"), send(agent, "other", f"door {at}")
        box.round()
        (removed,) = [one for one in box.files("for_other") if one.startswith(begins(written))]
        (box.folder("for_other") / removed).unlink()
        other.post(f"/messages/{away['id']}/read")
        box.drop("for_other", "dropped.md", f"dropped {at}")
        waiting = send(agent, "other", f"waiting {at}")
        with pytest.MonkeyPatch.context() as patch:
            taken = killing(patch, at)
            try:
                box.round()
                finished = taken() < at
            except Killed:
                pass
        box.round()
        assert box.round() == RoundResult(), at
        mine = Message.objects.filter(opened_position__gte=int(written["handle"][2:]))
        assert mine.count() == 4, at  # the dropped one once
        assert sorted(unread(other)) == [f"dropped {at}", f"waiting {at}"], at
        assert Entry.objects.filter(kind="message.read", subject=written["id"]).count() == 1, at
        assert MessageFile.objects.filter(message__in=mine.values("id")).count() == 4, at
        names = box.files("for_other")
        assert names[1:] == ["done", "dropped.md"], at
        assert names[0].startswith(begins(waiting)), at
        mine.update(read_at_us=1)
    assert at > 20


def begins(sent: dict[str, Any]) -> str:
    """How the file of a message begins."""
    return f"{int(sent['handle'].removeprefix('m_')):012d}-"
