"""Artifacts: recorded by hash; bytes are streamed in, checked and streamed out."""

import hashlib
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from django.conf import settings as configured
from django.core.management import call_command
from django.db import connection
from pytest_django import Settings

from api.tasks import prune_idempotency_keys
from journal.models import Entry
from sessions import artifacts
from sessions.models import Artifact
from tests.api.api_client import Caller, code

DATA = b"\x00\x1b[31mline\r\n" * 50_000


def about(data: bytes = DATA, **fields: Any) -> dict[str, Any]:
    described = {"session": "s-1", "type": "log", "media_type": "text/plain", "name": "a log"}
    return described | {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} | fields


@pytest.fixture
def record(agent: Caller) -> Callable[..., dict[str, Any]]:
    agent.session("s-1")

    def make(**fields: Any) -> dict[str, Any]:
        answer = agent.post("/artifacts", about(**fields))
        assert answer.status_code == 201, answer.text
        artifact: dict[str, Any] = answer.json()
        return artifact

    return make


def put(agent: Caller, artifact: dict[str, Any], data: bytes) -> Any:
    return agent.client.put(artifact["upload"].removeprefix("/api/v1"), content=data)


def files() -> list[Path]:
    return [path for path in Path(configured.MEDIA_ROOT).rglob("*") if path.is_file()]


def test_an_artifact_is_recorded_stored_and_read_back_byte_for_byte(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    effect = agent.plan()
    artifact = record(effect=effect["id"], uri="s3://bucket/a", retention="long")
    assert artifact["stored"] is False
    row = Artifact.objects.get()
    assert (str(row.effect), row.uri, row.retention, row.stored_at_us) == (
        effect["id"],
        "s3://bucket/a",
        "long",
        None,
    )
    assert code(agent.get(f"/artifacts/{artifact['id']}/bytes")) == (404, "not_stored")
    stored = put(agent, artifact, DATA)
    assert (stored.status_code, stored.json()["stored"]) == (200, True)
    got = agent.get(f"/artifacts/{artifact['id']}/bytes")
    assert got.content == DATA
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"].startswith("attachment")
    assert got.headers["x-content-type-options"] == "nosniff"
    described = agent.get(f"/artifacts/{artifact['id']}").json()
    assert (described["sha256"], described["size"], described["stored"]) == (
        row.sha256,
        len(DATA),
        True,
    )
    assert Entry.objects.filter(kind="artifact.recorded").count() == 1


def test_storing_the_same_bytes_again_changes_nothing(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    artifact = record()
    assert put(agent, artifact, DATA).status_code == 200
    before = Artifact.objects.get().stored_at_us
    assert put(agent, artifact, DATA).status_code == 200
    assert Artifact.objects.get().stored_at_us == before
    # The same content is already stored under another record.
    assert record(name="once more")["stored"] is True


def test_bytes_of_another_size_are_not_those_that_are_stored(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    before = record(size=999_999)
    artifact = record()
    assert put(agent, artifact, DATA).json()["stored"] is True
    after = record(size=len(DATA) + 1)
    assert after["stored"] is False
    for wrong in (before, after):
        assert agent.get(f"/artifacts/{wrong['id']}").json()["stored"] is False
        assert code(put(agent, wrong, DATA)) == (422, "content_differs")
    assert set(Artifact.objects.exclude(stored_at_us=None).values_list("size", flat=True)) == {
        len(DATA)
    }
    assert agent.get(f"/artifacts/{artifact['id']}/bytes").content == DATA


def test_files_of_a_killed_upload_are_removed_a_day_later(
    agent: Caller, record: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = record()
    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError))
        killed.setattr(Path, "unlink", lambda *_, **__: None)  # SIGKILL leaves no time to clean up
        assert code(put(agent, artifact, DATA)) == (503, "unavailable")
    (left,) = [path for path in files() if path.name.startswith(".")]
    assert put(agent, artifact, DATA).status_code == 200
    prune_idempotency_keys()
    assert left.exists()  # the upload may still be running
    day = 24 * 3_600
    os.utime(left, (left.stat().st_atime, left.stat().st_mtime - day - 1))
    prune_idempotency_keys()
    assert not left.exists()
    assert agent.get(f"/artifacts/{artifact['id']}/bytes").content == DATA


@pytest.mark.parametrize(
    "data", [b"", DATA[:-1], DATA + b"x", DATA.replace(b"l", b"L", 1)], ids=["0", "-1", "+1", "L"]
)
def test_other_bytes_than_those_announced_are_not_stored(
    agent: Caller, record: Callable[..., dict[str, Any]], data: bytes
) -> None:
    artifact = record()
    files_before = set(files())
    assert code(put(agent, artifact, data)) == (422, "content_differs")
    assert Artifact.objects.get().stored_at_us is None
    assert set(files()) == files_before
    assert put(agent, artifact, DATA).status_code == 200


def test_an_empty_artifact_is_stored_and_read_back(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    artifact = record(data=b"")
    assert put(agent, artifact, b"").status_code == 200
    assert agent.get(f"/artifacts/{artifact['id']}/bytes").content == b""


def test_bytes_are_never_unpacked_and_need_a_length(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    artifact = record()
    packed = agent.client.put(
        artifact["upload"].removeprefix("/api/v1"),
        content=DATA,
        headers={"Content-Encoding": "gzip"},
    )
    assert code(packed) == (415, "unsupported_encoding")
    # The in-process client sets no `wsgi.input_terminated`; test_hostile sends to the real server.
    chunked = agent.client.put(artifact["upload"].removeprefix("/api/v1"), content=iter([DATA]))
    assert code(chunked) == (411, "length_required")


def test_stored_bytes_have_a_limit_that_is_named(
    agent: Caller, record: Callable[..., dict[str, Any]], settings: Settings
) -> None:
    assert code(put(agent, record(data=b"x", size=64 * 1024 * 1024 + 1), b"x")) == (
        413,
        "artifact_too_large",
    )
    settings.GATEBOOK_ARTIFACT_BYTES = 1000
    assert agent.get("/limits").json()["artifact_bytes"] == 1000
    assert put(agent, record(data=b"x" * 1000), b"x" * 1000).status_code == 200
    refused = put(agent, record(data=b"x" * 1001), b"x" * 1001)
    assert code(refused) == (413, "artifact_too_large")
    assert "1000" in refused.json()["detail"]
    assert code(put(agent, record(data=b"y" * 900), b"y" * 2000)) == (413, "artifact_too_large")


def test_lost_bytes_are_reported_as_not_stored(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    artifact = record()
    put(agent, artifact, DATA)
    for path in files():
        path.unlink()
    assert code(agent.get(f"/artifacts/{artifact['id']}/bytes")) == (404, "not_stored")
    assert put(agent, artifact, DATA).status_code == 200
    assert agent.get(f"/artifacts/{artifact['id']}/bytes").content == DATA


def test_changed_bytes_are_named_and_never_sent(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    artifact = record()
    put(agent, artifact, DATA)
    assert verify_artifacts() == (0, "1 stored artifacts, 0 differ.\n")
    (file,) = files()
    file.write_bytes(DATA.replace(b"line", b"lies"))  # the same size
    answer = agent.get(f"/artifacts/{artifact['id']}/bytes")
    assert code(answer) == (404, "not_stored")
    assert "changed after they were recorded" in answer.json()["detail"]
    exit_code, text = verify_artifacts()
    assert exit_code == 1
    assert text == f"modified: {Artifact.objects.get()}: {file}\n1 stored artifacts, 1 differ.\n"
    assert put(agent, artifact, DATA).status_code == 200
    assert agent.get(f"/artifacts/{artifact['id']}/bytes").content == DATA
    file.unlink()
    assert verify_artifacts("--json")[1].startswith('{"finding":"missing","artifact":"a_')


def test_bytes_that_came_are_named_when_the_owner_denies_them(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    """The owner marks an artifact as not stored and deletes its file: pages say it was not sent."""
    artifact, never_sent = record(), record(sha256="0" * 64)
    assert put(agent, artifact, DATA).status_code == 200
    assert put(agent, artifact, DATA).status_code == 200  # no second entry
    entry = Entry.objects.get(kind="artifact.stored")
    row = Artifact.objects.get(id=artifact["id"])
    assert (entry.subject, entry.lane, entry.source) == (row.id, "system", "gatebook")
    assert orjson.loads(entry.facts) == {"sha256": row.sha256, "size": row.size}
    again = record(name="again")  # of the same bytes, which are stored already
    assert Artifact.objects.get(id=again["id"]).stored_at_us is not None
    assert verify_artifacts() == (0, "2 stored artifacts, 0 differ.\n")
    Artifact.objects.update(stored_at_us=None)
    exit_code, text = verify_artifacts()
    assert (exit_code, text.count("unmarked: "), never_sent["handle"] in text) == (1, 2, False)
    (file,) = files()
    file.unlink()
    exit_code, text = verify_artifacts()
    assert (exit_code, text.count("missing: "), never_sent["handle"] in text) == (1, 2, False)


def test_removed_bytes_are_not_expected_until_they_come_again(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    artifact = record()
    assert put(agent, artifact, DATA).status_code == 200
    row = Artifact.objects.get()
    artifacts.delete_content(row.project_id, row.sha256)
    artifacts.delete_content(row.project_id, row.sha256)  # repeated after a kill
    assert Entry.objects.filter(kind="artifact.removed").count() == 1
    assert verify_artifacts() == (0, "0 stored artifacts, 0 differ.\n")
    assert put(agent, artifact, DATA).status_code == 200
    assert verify_artifacts() == (0, "1 stored artifacts, 0 differ.\n")
    Artifact.objects.update(stored_at_us=None)
    assert verify_artifacts()[0] == 1


def verify_artifacts(*options: str) -> tuple[int, str]:
    """Run the command; return its exit code and output."""
    out = StringIO()
    try:
        call_command("verify_artifacts", *options, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.mark.parametrize(
    "fields",
    [
        {"sha256": "x" * 64},
        {"sha256": "A" * 64},
        {"size": -1},
        {"size": 1.5},
        {"size": 2**53},
        {"type": ""},
        {"media_type": "text/plain\n"},
        {"uri": "u" * 2001},
        {"effect": "no id"},
        {"stored": True},
    ],
    ids=str,
)
def test_an_invalid_artifact_is_refused(
    agent: Caller, record: Callable[..., dict[str, Any]], fields: dict[str, Any]
) -> None:
    refused = agent.post("/artifacts", about(**fields))
    assert refused.status_code == 422, refused.text
    assert Artifact.objects.count() == 0
    assert Entry.objects.filter(kind="artifact.recorded").count() == 0


def test_the_objects_an_artifact_names_must_exist(
    agent: Caller, record: Callable[..., dict[str, Any]]
) -> None:
    assert code(agent.post("/artifacts", about(session="absent"))) == (404, "not_found")
    assert code(agent.post("/artifacts", about(effect=str(uuid4())))) == (404, "not_found")
    assert code(agent.get(f"/artifacts/{uuid4()}")) == (404, "not_found")
    assert code(agent.client.put(f"/artifacts/{uuid4()}/bytes", content=b"x")) == (404, "not_found")


def test_an_artifact_reported_in_a_batch_takes_bytes_too(agent: Caller) -> None:
    item = about() | {"id": "a-1", "kind": "artifact.recorded", "effect_key": "e-1"}
    assert agent.report([item, item]).json()["accepted"] == 2
    row = Artifact.objects.get()
    assert row.effect is not None
    assert put(agent, {"upload": f"/artifacts/{row.id}/bytes"}, DATA).status_code == 200
    assert agent.get(f"/artifacts/{row.id}/bytes").content == DATA


def test_a_slow_upload_keeps_no_writer_waiting(
    agent: Caller, record: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_blocks = []

    receive = artifacts.receive_content

    def watched(*values: Any) -> None:
        open_blocks.append(len(connection.savepoint_ids))
        receive(*values)

    artifact, before = record(), len(connection.savepoint_ids)
    monkeypatch.setattr(artifacts, "receive_content", watched)
    assert put(agent, artifact, DATA).status_code == 200
    assert open_blocks == [before]


def test_a_full_disk_is_503(
    agent: Caller, record: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = record()

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sessions.artifacts.os.fsync", full)
    refused = put(agent, artifact, DATA)
    assert code(refused) == (503, "unavailable")
    assert refused.headers["retry-after"]
    monkeypatch.undo()
    assert not [path for path in files() if path.name.startswith(".")]
    assert Artifact.objects.get().stored_at_us is None
    assert put(agent, artifact, DATA).status_code == 200
