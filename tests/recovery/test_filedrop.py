"""Messages as files: sent once, read when the file is removed; no link is followed."""

import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts import projects
from accounts.models import Project
from importers.filedrop import safe_files
from importers.filedrop.bridge import Filedrop, RoundResult
from journal.models import Entry
from sessions import deliveries, messages
from sessions.models import Message
from tests.api.api_client import Caller


class Box:
    """A directory with the folders of two agents and the shared one."""

    def __init__(self, root: Path, project: Project) -> None:
        self.root, self.project = root, project
        for name in ("for_tester", "for_other", "shared"):
            self.folder(name).mkdir(parents=True)

    def folder(self, name: str) -> Path:
        return self.root / "messages" / name

    def drop(self, folder: str, name: str, text: str) -> Path:
        path = self.folder(folder) / name
        path.write_text(text)
        return path

    def files(self, folder: str) -> list[str]:
        return sorted(
            path.name for path in self.folder(folder).iterdir() if not path.name.startswith(".")
        )

    def round(self) -> RoundResult:
        return Filedrop(self.project, self.root).round()


@pytest.fixture
def other(call: Callable[..., Caller]) -> Caller:
    return call("other")


@pytest.fixture
def box(agent: Caller, other: Caller, tmp_path: Path) -> Box:
    return Box(tmp_path / "drop", projects.ensure_default_project())


def unread(agent: Caller) -> list[str]:
    return [item["body"] for item in agent.get("/messages").json()["items"]]


def send(agent: Caller, to: str, body: str, **fields: Any) -> dict[str, Any]:
    answer = agent.post("/messages", {"to": to, "body": body, **fields})
    assert answer.status_code == 201, answer.text
    message: dict[str, Any] = answer.json()
    return message


def test_dropped_files_are_sent_once_in_the_order_of_names(box: Box, other: Caller) -> None:
    for name in ("3-last.md", "1-first.md", "2-second.md"):
        box.drop("for_other", name, f"{name} says")
    box.drop("shared", "note.md", "to all")
    assert box.round().sent == 4
    assert unread(other) == ["1-first.md says", "2-second.md says", "3-last.md says", "to all"]
    (item, *_rest) = other.get("/messages").json()["items"]
    assert (item["from"], item["subject"]) == ({"kind": "file"}, "1-first.md")
    assert box.round() == RoundResult()
    assert Message.objects.count() == 4


def test_a_message_is_written_as_a_file_and_read_when_the_file_is_removed(
    box: Box, agent: Caller
) -> None:
    first = send(agent, "other", "Look at run 7.", subject="The build / is: RED")
    send(agent, "other", "second")
    assert box.round().written == 2
    names = box.files("for_other")
    assert [name[12:] for name in names] == ["-the-build-is-red.md", "-message.md"]
    text = (box.folder("for_other") / names[0]).read_text()
    head, _, body = text.partition("\n\n")
    assert head.splitlines()[0] == "From: the agent tester"
    assert f"Message: {first['handle']} {first['id']}" in head
    assert body == "Look at run 7.\n"
    assert box.round() == RoundResult()
    (box.folder("for_other") / names[0]).unlink()
    assert box.round().read == 1
    assert Message.objects.get(id=first["id"]).read_at_us is not None
    assert Entry.objects.filter(kind="message.read").count() == 1
    assert box.files("for_other") == names[1:]


def test_moving_a_file_to_done_marks_it_as_read_too(box: Box, other: Caller) -> None:
    dropped = box.drop("for_other", "a.md", "hello")
    box.round()
    (box.folder("for_other") / "done").mkdir()
    dropped.rename(box.folder("for_other") / "done" / "a.md")
    assert box.round().read == 1
    assert unread(other) == []
    assert box.round() == RoundResult()


def test_a_message_read_through_the_api_is_moved_to_done(
    box: Box, agent: Caller, other: Caller
) -> None:
    sent = send(agent, "other", "hello")
    box.drop("for_other", "a.md", "dropped")
    box.round()
    for item in other.get("/messages").json()["items"]:
        other.post(f"/messages/{item['id']}/read")
    assert box.round().put_away == 2
    assert box.files("for_other") == ["done"]
    assert len(list((box.folder("for_other") / "done").iterdir())) == 2
    assert Message.objects.get(id=sent["id"]).read_at_us
    assert box.round() == RoundResult()


def test_copying_a_shared_file_to_done_marks_it_as_read_by_that_agent(
    box: Box, agent: Caller, other: Caller
) -> None:
    send(agent, "shared", "to all")
    box.round()
    (name,) = box.files("shared")
    done = box.folder("for_other") / "done"
    done.mkdir()
    (done / name).write_text("")
    assert box.round().read == 1
    assert unread(other) == []
    assert unread(agent) == ["to all"]
    (box.folder("shared") / name).unlink()  # removed: no other agent has read it
    assert box.round().read == 0
    assert unread(agent) == ["to all"]
    assert box.files("shared") == []


def test_a_changed_or_repeated_file_is_a_new_message(box: Box, other: Caller) -> None:
    box.drop("for_other", "ping", "one")
    box.round()
    box.drop("for_other", "ping", "two")
    assert box.round().sent == 1
    (box.folder("for_other") / "ping").unlink()
    assert box.round().read == 2
    box.drop("for_other", "ping", "one")  # the same text again, after it was read
    assert box.round().sent == 1
    assert unread(other) == ["one"]
    assert box.round() == RoundResult()


def test_a_lost_folder_loses_no_message(box: Box, agent: Caller) -> None:
    send(agent, "other", "hello")
    box.round()
    folder = box.folder("for_other")
    for path in folder.iterdir():
        path.unlink()  # the mark of the folder too
    folder.rmdir()
    assert box.round() == RoundResult()
    folder.mkdir()
    assert box.round().written == 1
    assert Message.objects.get().read_at_us is None


def test_a_folder_that_is_replaced_during_a_round_marks_nothing(
    box: Box, agent: Caller, monkeypatch: Any
) -> None:
    send(agent, "other", "hello")
    box.round()
    folder, load_open_deliveries = box.folder("for_other"), deliveries.load_open_deliveries

    def swap(*args: Any) -> Any:
        open_deliveries = load_open_deliveries(*args)
        if folder.exists() and open_deliveries:
            folder.rename(folder.with_name("gone"))
            for path in folder.with_name("gone").iterdir():
                path.unlink()
        return open_deliveries

    monkeypatch.setattr(deliveries, "load_open_deliveries", swap)
    result = box.round()
    assert result.read == 0
    assert "replaced during the round" in result.lines[0]
    assert Message.objects.get().read_at_us is None


def test_only_small_regular_text_files_are_sent_others_are_reported(
    box: Box, tmp_path: Path
) -> None:
    folder = box.folder("for_other")
    secret = tmp_path / "secret"
    secret.write_text("the key")
    (folder / "link").symlink_to(secret)
    os.link(secret, folder / "hard")
    os.mkfifo(folder / "pipe")
    (folder / "inner").mkdir()
    (folder / "large").write_bytes(b"x" * (safe_files.MAX_FILE_BYTES + 1))
    (folder / "long").write_text("y" * (messages.MAX_BODY_CHARACTERS + 1))
    (folder / "latin").write_bytes(b"\xff\xfe")
    (folder / "empty").write_text(" \n")
    (folder / "two\nlines").write_text("forged")
    Path(os.fsdecode(os.fsencode(folder) + b"/raw\xff")).write_text("raw")
    (folder / ("n" * 201)).write_text("name")
    for name in (".hidden", "half.tmp", "half.part", "old~"):
        (folder / name).write_text("not yet")
    box.folder("for_nobody").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (box.root / "messages" / "for_linked").symlink_to(tmp_path / "elsewhere")
    result = box.round()
    assert result.sent == 0
    assert not Message.objects.exists()
    words = {
        "for_nobody: ": "no such agent",
        "for_linked: ": "no such agent",
        "for_other/link: ": "symbolic link",
        "for_other/hard: ": "hard link",
        "for_other/pipe: ": "not a regular file",
        "for_other/inner: ": "not a regular file",
        "for_other/large: ": "larger than 65,536 bytes",
        "for_other/long: ": "more than 16,384 characters",
        "for_other/latin: ": "not text in UTF-8",
        "for_other/empty: ": "is empty",
        "for_other/'two\\nlines': ": "not printable",
        "for_other/'raw\\udcff': ": "not printable",
        "for_other/nnn": "more than 200 bytes",
    }
    assert len(result.lines) == len(words)
    for prefix, message in words.items():
        (line,) = [line for line in result.lines if line.startswith(prefix)]
        assert message in line
        assert "\n" not in line


def test_a_folder_that_is_a_link_is_not_entered(box: Box, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.md").write_text("hello")
    box.folder("for_other").rmdir()
    box.folder("for_other").symlink_to(elsewhere)
    result = box.round()
    assert result.sent == 0
    assert "the folder was skipped" in result.lines[0]
    assert [path.name for path in elsewhere.iterdir()] == ["a.md"]


def test_an_existing_file_is_not_overwritten(box: Box, agent: Caller) -> None:
    position = (
        Entry.objects.latest("position").position + 2
    )  # after the message of the dropped file
    existing = box.drop("for_other", f"{position:012d}-message.md", "I was here first")
    assert box.round().sent == 1
    assert int(send(agent, "other", "hello")["handle"].removeprefix("m_")) == position
    assert box.round().written == 1
    assert existing.read_text() == "I was here first"
    assert len(box.files("for_other")) == 2
    assert box.round() == RoundResult()


def test_secrets_in_a_file_are_replaced(box: Box, other: Caller) -> None:
    box.drop("for_other", "a.md", "use ghp_" + "a1B2" * 9)
    box.round()
    assert "[redacted:" in unread(other)[0]


def test_a_directory_belongs_to_one_project_and_to_one_process(box: Box, stranger: Caller) -> None:
    box.drop("shared", "a.md", "ours")
    box.round()
    result = Filedrop(Project.objects.get(name="elsewhere"), box.root).round()
    assert any("belongs to another project" in line for line in result.lines)
    assert stranger.get("/messages").json()["items"] == []
    with (
        safe_files.open_folder(str(box.root / "messages")) as root,
        safe_files.lock_folder(root),
        pytest.raises(CommandError, match="ano"),
    ):
        call_command("filedrop", str(box.root))


def test_the_command_says_what_it_did_and_what_it_cannot_do(box: Box, tmp_path: Path) -> None:
    box.drop("for_other", "a.md", "hello")
    out, err = StringIO(), StringIO()
    call_command("filedrop", str(box.root), stdout=out, stderr=err)
    assert (
        out.getvalue() == "1 sent from files, 0 written as files, 0 marked as read, 0 put away.\n"
    )
    assert err.getvalue() == ""
    with pytest.raises(CommandError, match="cannot be opened as a folder"):
        call_command("filedrop", str(tmp_path / "nowhere"))
    with pytest.raises(CommandError, match="no project"):
        call_command("filedrop", str(box.root), "--project", "nowhere")
