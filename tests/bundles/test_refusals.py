"""A changed, newer or inconsistent bundle is refused with a sentence and stores nothing."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from accounts.models import Project
from importers.bundles import zip_reader
from investigation.bundles import imported_gates
from journal.models import Entry
from sessions.models import Artifact, Session
from tests.bundles.conftest import Origin, members, packed

pytestmark = pytest.mark.django_db
Files = dict[str, bytes]


def summed(files: Files) -> Files:
    """Add matching sums, as a forger of a bundle would."""
    named = {name: content for name, content in files.items() if name != "SHA256SUMS"}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in named.items()]
    return {**named, "SHA256SUMS": "".join(lines).encode()}


def change_document(change: Callable[[dict[str, Any]], None]) -> Callable[[Files], Files]:
    """Return a forgery that changes bundle.json and its sum."""

    def forge(files: Files) -> Files:
        document = orjson.loads(files["bundle.json"])
        change(document)
        return summed({**files, "bundle.json": orjson.dumps(document)})

    return forge


def entry(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(
        row for row in document["entries"] if row["kind"] == kind and "salt" in (row["body"] or {})
    )


def effect(document: dict[str, Any], key: str) -> dict[str, Any]:
    return next(row for row in document["effects"] if row["effect_key"] == key)


def _body(document: dict[str, Any]) -> None:
    body = entry(document, "gate.voted")["body"]
    body["text"] = body["text"].replace("agrees", "agreed")


def _nested(document: dict[str, Any]) -> None:
    """Set a body nested too deeply for many JSON readers, with its commitment."""
    planned = entry(document, "effect.planned")
    text = planned["body"]["text"] = '{"arguments":' + "[" * 950 + "]" * 950 + "}"
    planned["commitment"] = hashlib.sha256(
        bytes.fromhex(planned["body"]["salt"]) + text.encode()
    ).hexdigest()


def _artifact(files: Files) -> Files:
    name = next(name for name in files if name.startswith("artifacts/"))
    return summed({**files, name: b"other bytes"})


def _climbs(files: Files) -> Files:
    return summed({**files, "artifacts/../../etc/passwd": b""})


def _deep(files: Files) -> Files:
    return summed({**files, "bundle.json": b'{"format":' + b"[" * 5000 + b"]" * 5000 + b"}"})


def _long(files: Files) -> Files:
    """Add an integer of more than 64 bits to the facts of an entry, which the schema does not
    restrict."""
    document = orjson.loads(files["bundle.json"])
    entry(document, "effect.planned")["facts"]["intent"] = 7_000_000_007
    text = orjson.dumps(document).replace(b"7000000007", b"7" * 30)
    return summed({**files, "bundle.json": text})


def _large(files: Files) -> Files:
    return summed({**files, "README.md": bytes(2 << 20)})


FORGED: list[tuple[str, Callable[[Files], Files]]] = [
    (
        "README.md differs from SHA256SUMS",
        lambda files: {**files, "README.md": files["README.md"] + b"!"},
    ),
    (
        "bundle.json differs from SHA256SUMS",
        lambda files: {**files, "bundle.json": files["bundle.json"] + b" "},
    ),
    ("diffs/e_1.diff is not in SHA256SUMS", lambda files: {**files, "diffs/e_1.diff": b"x"}),
    (
        "it has 0 members named README.md",
        lambda files: {name: content for name, content in files.items() if name != "README.md"},
    ),
    ("is not the schema of version 1", lambda files: summed({**files, "schema.json": b"{}"})),
    ("is not the schema of version 1", lambda files: summed({**files, "schema.json": b"[" * 5000})),
    ("has other content than its name indicates", _artifact),
    ("has an unexpected member 'artifacts/../../etc/passwd'", _climbs),
    ("bundle.json cannot be read", _deep),
    ("contains an integer of more than 64 bits", _long),
    ("README.md unpacks to 2,097,152 bytes; at most 1,048,576 are allowed", _large),
    (
        "has format version 2; this Gatebook reads at most version 1",
        change_document(lambda document: document.update(version=2)),
    ),
    (
        "/effects/0 has the unknown member 'trusted'",
        change_document(lambda document: document["effects"][0].update(trusted=True)),
    ),
    ("has a body that differs from its commitment", change_document(_body)),
    ("has a body of more than 64 levels", change_document(_nested)),
    (
        "has no body, but is not marked as erased",
        change_document(lambda document: entry(document, "gate.voted").update(body=None)),
    ),
    (
        "claims state 'acknowledged'; its marks say",
        change_document(lambda document: effect(document, "waits").update(state="acknowledged")),
    ),
    (
        "but the bundle has no such entry",
        change_document(lambda document: document["entries"].pop(0)),
    ),
    ("is out of order", change_document(lambda document: document["entries"].reverse())),
    (
        "has an unknown status, answer or requirement",
        change_document(lambda document: document["gates"][0].update(status="trusted")),
    ),
    (
        "names task",
        change_document(
            lambda document: effect(document, "ok").update(task=document["origin"]["session"])
        ),
    ),
    (
        "effect_moves_only_with_permission",
        change_document(
            lambda document: effect(document, "ok").update(
                permission="pending", permission_basis="policy"
            )
        ),
    ),
    (
        "belongs to no artifact of the session",
        change_document(lambda document: document["artifacts"].clear()),
    ),
]


def test_a_refused_or_failed_import_stores_nothing(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = members(origin.export())
    monkeypatch.setattr(zip_reader, "MAX_TEXT_BYTES", 1 << 20)
    before = counted()
    for number, (sentence, forge) in enumerate(FORGED):
        forged = packed(forge(files), tmp_path / f"{number}.zip")
        with pytest.raises(CommandError) as refused:
            call_command("import_bundle", str(forged), administrator="archivist")
        assert sentence in str(refused.value), (sentence, str(refused.value))
        assert str(refused.value).endswith("Nothing was imported.")
        assert counted() == before, sentence
    (tmp_path / "no.zip").write_bytes(b"PK no zip")
    for name, sentence in (("no.zip", "is not a bundle"), ("absent.zip", "cannot be read")):
        with pytest.raises(CommandError, match=sentence):
            call_command("import_bundle", str(tmp_path / name), administrator="archivist")
    _breaks_off(origin, packed(files, tmp_path / "whole.zip"), monkeypatch)


def counted() -> tuple[Any, ...]:
    """Count everything that an import makes."""
    files = {path for path in Path(settings.MEDIA_ROOT).rglob("*") if path.is_file()}
    return (
        Project.objects.count(),
        Entry.objects.count(),
        Session.objects.count(),
        Artifact.objects.count(),
        files,
    )


def _breaks_off(origin: Origin, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that fails half-way stores nothing; only allowed projects accept one."""
    before = counted()

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(imported_gates, "store_import", fail)
        with pytest.raises(MemoryError):
            call_command("import_bundle", str(path), administrator="archivist")
    assert counted() == before
    with pytest.raises(CommandError, match="with --administrator"):
        call_command("import_bundle", str(path))
    with pytest.raises(CommandError, match="default is not an archive"):
        call_command("import_bundle", str(path), project="default")
    call_command("import_bundle", str(path), project="kept", administrator="archivist")
    origin.inbox.agent.plan("later", str(origin.exported.session), tool="file.read")
    later = packed(members(origin.export()), path.with_name("later.zip"))
    with pytest.raises(CommandError, match="already has a session with this key"):
        call_command("import_bundle", str(later), project="kept")
    call_command("import_bundle", str(later), project="later", administrator="archivist")
    assert Project.objects.filter(archive=True).count() == 2
