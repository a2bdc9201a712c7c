"""A run that is killed while it deletes the bytes of an artifact is repeated, and leaves nothing.

`manage.py verify_artifacts` names no bytes as missing that an erasure removed.
"""

import hashlib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from erasure import erasure_journal, erasure_replay
from journal.models import Entry
from retention import expiry
from sessions import artifacts
from sessions.models import Artifact
from tests.api.test_api_artifacts import verify_artifacts
from tests.erasure.conftest import ADDRESS, Office, run_all
from tests.ledger.rows_by_hand import World
from tests.matrices import keep_core
from tests.retention.past_entries import RULES, activate, append_texts

CONTENT = f"invoice of {ADDRESS}".encode()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Killed(BaseException):
    """Ends a run, as a signal does."""


def store_content(world: World, **columns: Any) -> Path:
    """Store an artifact with its bytes; return its file."""
    world.write(Artifact, sha256=SHA256, size=len(CONTENT), **{"stored_at_us": 1, **columns})
    file = artifacts.artifact_path(world.project.id, SHA256)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(CONTENT)
    return file


def kill_at_unlink(patch: pytest.MonkeyPatch, file: Path, *, deletes: bool) -> None:
    """Let the deletion of a file end the run, before or after the file is gone."""
    unlink = Path.unlink

    def unlink_and_die(path: Path, missing_ok: bool = False) -> None:
        if path != file or deletes:
            unlink(path, missing_ok=missing_ok)
        if path == file:
            raise Killed

    patch.setattr(Path, "unlink", unlink_and_die)


def check_removal(file: Path) -> None:
    assert not file.exists()
    assert Artifact.objects.get().stored_at_us is None
    assert Entry.objects.filter(kind="artifact.removed").count() == 1
    assert verify_artifacts() == (0, "0 stored artifacts, 0 differ.\n")


@pytest.mark.parametrize(
    ("kind", "deletes"),
    keep_core(
        product(["words", "person", "session"], [False, True]),
        [("words", False), ("person", True), ("session", False)],
    ),
)
def test_an_erasure_that_is_killed_at_a_file_is_repeated(
    office: Office, kind: str, deletes: bool
) -> None:
    file = store_content(office.world)
    if kind == "person":
        person = User.objects.create(username="vera", email=ADDRESS)
        row = office.request(person=person)
    elif kind == "session":
        row = office.request(session=Artifact.objects.get().session)
    else:
        row = office.request(ADDRESS)
    with pytest.MonkeyPatch.context() as patch:
        kill_at_unlink(patch, file, deletes=deletes)
        with pytest.raises(Killed):
            office.confirm(row)
    run_all()
    row.refresh_from_db()
    assert row.state == "done"
    check_removal(file)


@pytest.mark.parametrize("deletes", [False, True])
def test_an_expiry_that_is_killed_at_a_file_is_repeated(office: Office, deletes: bool) -> None:
    file = store_content(office.world)
    stored = Artifact.objects.get()
    (position,) = append_texts(office.world, "artifact.recorded", ["x"], 200, subject=stored.pk)
    Artifact.objects.update(opened_position=position)
    activate(office.world, RULES + "  - {class: short, kind: artifact.*}\n")
    with pytest.MonkeyPatch.context() as patch:
        kill_at_unlink(patch, file, deletes=deletes)
        with pytest.raises(Killed):
            expiry.run_retention()
    expiry.run_retention()
    check_removal(file)


def test_a_replay_removes_the_file_that_a_killed_one_left(office: Office) -> None:
    file = store_content(office.world, stored_at_us=None)
    digest = erasure_journal.digest_artifact(office.world.project.id, SHA256)
    assert erasure_replay._erase_listed_artifacts({digest}) == 0
    assert not file.exists()


def test_bytes_that_an_erasure_removed_during_their_upload_are_not_marked(office: Office) -> None:
    store_content(office.world, stored_at_us=None)
    artifact = Artifact.objects.get()
    artifacts.delete_content(artifact.project_id, SHA256)
    with transaction.atomic(), pytest.raises(FileNotFoundError):
        artifacts.mark_content_stored(artifact, 5)
    assert Artifact.objects.get().stored_at_us is None
