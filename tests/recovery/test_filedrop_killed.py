"""Messages as files with a kill at every step: nothing is duplicated and nothing is lost."""

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
    """End the process; no handler catches this exception."""


STEPS = {
    safe_files: ("write_file", "move_to_done"),
    deliveries: ("record_deliveries", "end_delivery"),
    messages: ("send_file_message", "mark_file_read"),
    os: ("rename", "fsync"),
}


def kill_at_step(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """Kill the process before or after the `at`-th step that touches a file or a row.

    Return a function that counts the steps taken.
    """
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


def test_a_kill_at_any_step_duplicates_nothing_and_loses_nothing(
    agent: Caller, other: Caller, tmp_path: Path
) -> None:
    """A round that sends, writes, marks and moves files is killed at each step; the next round
    repairs it."""
    project, at, finished = projects.ensure_default_project(), 0, False
    while not finished:
        at += 1
        box = Box(tmp_path / str(at), project)
        written, away = send(agent, "other", f"read {at}"), send(agent, "other", f"put away {at}")
        box.round()
        (removed,) = [
            name for name in box.files("for_other") if name.startswith(file_prefix(written))
        ]
        (box.folder("for_other") / removed).unlink()
        other.post(f"/messages/{away['id']}/read")
        box.drop("for_other", "dropped.md", f"dropped {at}")
        waiting = send(agent, "other", f"waiting {at}")
        with pytest.MonkeyPatch.context() as patch:
            taken = kill_at_step(patch, at)
            try:
                box.round()
                finished = taken() < at
            except Killed:
                pass
        box.round()
        assert box.round() == RoundResult(), at
        round_messages = Message.objects.filter(opened_position__gte=int(written["handle"][2:]))
        assert round_messages.count() == 4, at  # the dropped one once
        assert sorted(unread(other)) == [f"dropped {at}", f"waiting {at}"], at
        assert Entry.objects.filter(kind="message.read", subject=written["id"]).count() == 1, at
        assert MessageFile.objects.filter(message__in=round_messages.values("id")).count() == 4, at
        names = box.files("for_other")
        assert names[1:] == ["done", "dropped.md"], at
        assert names[0].startswith(file_prefix(waiting)), at
        round_messages.update(read_at_us=1)
    assert at > 20


def file_prefix(sent: dict[str, Any]) -> str:
    """Return the prefix of the file name of a message."""
    return f"{int(sent['handle'].removeprefix('m_')):012d}-"
