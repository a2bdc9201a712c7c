"""The verbs of artifacts: named by content, stored completely or not at all."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts import agents, projects
from accounts.models import Agent
from journal.entries import RepeatedKey
from journal.models import Entry
from sessions import artifacts
from sessions.artifacts import WrongContent
from sessions.models import Artifact, Session
from tests.sessions.command_factories import NOW_US, opened, origin

pytestmark = pytest.mark.django_db
CONTENT = b"a log\0with bytes\xff" * 1_000


def values(content: bytes = CONTENT) -> dict[str, Any]:
    return {
        "type": "log",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "media_type": "text/plain",
    }


@pytest.fixture
def session(tester: Agent) -> Session:
    return opened(tester)


@pytest.fixture
def artifact(tester: Agent, session: Session) -> Artifact:
    return artifacts.add_artifact(origin(tester, "k"), session.id, None, values())


def files(project: UUID) -> list[Path]:
    folder = artifacts.artifact_path(project, "0" * 64).parent.parent
    return [path for path in folder.rglob("*") if path.is_file()]


def receive(artifact: Artifact, content: bytes = CONTENT) -> None:
    artifacts.receive_content(
        artifact, (content[start : start + 999] for start in range(0, len(content), 999))
    )
    artifacts.mark_content_stored(artifact, NOW_US)


def test_an_artifact_is_recorded_once_under_its_key(
    tester: Agent, session: Session, artifact: Artifact
) -> None:
    entry = Entry.objects.get(kind="artifact.recorded")
    assert (entry.subject, entry.position) == (artifact.id, artifact.opened_position)
    assert entry.facts == f'{{"sha256":"{artifact.sha256}","size":{artifact.size}}}'
    assert (artifact.retention, artifact.stored_at_us) == ("standard", None)
    with pytest.raises(RepeatedKey):
        artifacts.add_artifact(origin(tester, "k"), session.id, None, values())
    assert Artifact.objects.count() == 1


def test_bytes_are_stored_under_their_hash(artifact: Artifact) -> None:
    receive(artifact)
    (stored,) = files(artifact.project_id)
    assert stored.read_bytes() == CONTENT
    assert stored.name == artifact.sha256
    assert Artifact.objects.get().stored_at_us == NOW_US


@pytest.mark.parametrize(
    "content",
    [b"", CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x", CONTENT * 2],
    ids=["nothing", "too short", "too long", "one byte differs", "twice"],
)
def test_other_bytes_than_those_announced_are_not_stored(
    artifact: Artifact, content: bytes
) -> None:
    with pytest.raises(WrongContent):
        receive(artifact, content)
    assert files(artifact.project_id) == []
    assert Artifact.objects.get().stored_at_us is None


def test_a_broken_stream_stores_nothing(artifact: Artifact) -> None:
    def broken() -> Iterator[bytes]:
        yield CONTENT[:100]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        artifacts.receive_content(artifact, broken())
    assert files(artifact.project_id) == []


def test_too_many_bytes_are_refused_before_they_are_read(artifact: Artifact) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 10_000

    with pytest.raises(WrongContent):
        artifacts.receive_content(artifact, endless())
    assert taken <= artifact.size // 10_000 + 1


def test_bytes_are_on_the_disk_before_they_have_their_name(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(handle: int) -> None:
        steps.append("folder" if Path(f"/proc/self/fd/{handle}").resolve().is_dir() else "file")
        fsync(handle)

    def note_replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    receive(artifact)
    assert steps[steps.index("file") :] == ["file", "rename", "folder"]


def test_equal_bytes_of_a_project_are_stored_once(
    tester: Agent, session: Session, artifact: Artifact
) -> None:
    receive(artifact)
    second = artifacts.add_artifact(origin(tester), session.id, None, {**values(), "name": "again"})
    assert second.id != artifact.id
    assert second.stored_at_us is not None
    assert len(files(artifact.project_id)) == 1


def test_another_project_cannot_detect_stored_bytes(artifact: Artifact) -> None:
    receive(artifact)
    stranger = agents.ensure_agent(projects.create_project("elsewhere"), "tester")
    other = artifacts.add_artifact(origin(stranger), opened(stranger).id, None, values())
    assert other.stored_at_us is None
    receive(other)
    assert artifacts.artifact_path(other.project_id, other.sha256) != artifacts.artifact_path(
        artifact.project_id, artifact.sha256
    )


def test_storing_marks_every_artifact_of_that_content(
    tester: Agent, session: Session, artifact: Artifact
) -> None:
    other = artifacts.add_artifact(origin(tester), session.id, None, values())
    different = artifacts.add_artifact(origin(tester), session.id, None, values(b"something else"))
    receive(artifact)
    stored = set(Artifact.objects.filter(stored_at_us=NOW_US).values_list("id", flat=True))
    assert stored == {artifact.id, other.id}
    assert different.id not in stored


def test_equal_artifacts_are_marked_with_as_many_queries_as_one(
    tester: Agent, session: Session, artifact: Artifact
) -> None:
    with CaptureQueriesContext(connection) as alone:
        receive(artifact)
    content = b"recorded often, sent once"
    equal = [
        artifacts.add_artifact(origin(tester), session.id, None, values(content)) for _ in range(9)
    ]
    with CaptureQueriesContext(connection) as together:
        receive(equal[0], content)
    assert len(together) == len(alone)
    named = Entry.objects.filter(kind="artifact.stored").values_list("subject", flat=True)
    assert set(named) == {row.id for row in (artifact, *equal)}
    assert not Artifact.objects.filter(stored_at_us=None).exists()
