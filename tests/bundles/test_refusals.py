"""A bundle that was changed, is newer or does not hold together is refused with a sentence, and
nothing is left."""

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
Held = dict[str, bytes]


def summed(held: Held) -> Held:
    """With sums that fit, as whoever forges a bundle would make them."""
    named = {name: content for name, content in held.items() if name != "SHA256SUMS"}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in named.items()]
    return {**named, "SHA256SUMS": "".join(lines).encode()}


def told(change: Callable[[dict[str, Any]], None]) -> Callable[[Held], Held]:
    """A forger's change of the document."""

    def forge(held: Held) -> Held:
        document = orjson.loads(held["bundle.json"])
        change(document)
        return summed({**held, "bundle.json": orjson.dumps(document)})

    return forge


def entry(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(
        one for one in document["entries"] if one["kind"] == kind and "salt" in (one["body"] or {})
    )


def effect(document: dict[str, Any], key: str) -> dict[str, Any]:
    return next(one for one in document["effects"] if one["effect_key"] == key)


def _body(document: dict[str, Any]) -> None:
    body = entry(document, "gate.voted")["body"]
    body["text"] = body["text"].replace("agrees", "agreed")


def _nested(document: dict[str, Any]) -> None:
    """A body that few readers of JSON can read, and its commitment."""
    one = entry(document, "effect.planned")
    text = one["body"]["text"] = '{"arguments":' + "[" * 950 + "]" * 950 + "}"
    one["commitment"] = hashlib.sha256(
        bytes.fromhex(one["body"]["salt"]) + text.encode()
    ).hexdigest()


def _artifact(held: Held) -> Held:
    name = next(name for name in held if name.startswith("artifacts/"))
    return summed({**held, name: b"other bytes"})


def _climbs(held: Held) -> Held:
    return summed({**held, "artifacts/../../etc/passwd": b""})


def _deep(held: Held) -> Held:
    return summed({**held, "bundle.json": b'{"format":' + b"[" * 5000 + b"]" * 5000 + b"}"})


def _long(held: Held) -> Held:
    """A number past 64 bits among the facts of an entry, where the schema of the format asks for no
    type."""
    document = orjson.loads(held["bundle.json"])
    entry(document, "effect.planned")["facts"]["intent"] = 7_000_000_007
    text = orjson.dumps(document).replace(b"7000000007", b"7" * 30)
    return summed({**held, "bundle.json": text})


def _large(held: Held) -> Held:
    return summed({**held, "README.md": bytes(2 << 20)})


FORGED: list[tuple[str, Callable[[Held], Held]]] = [
    (
        "README.md differs from SHA256SUMS",
        lambda held: {**held, "README.md": held["README.md"] + b"!"},
    ),
    (
        "bundle.json differs from SHA256SUMS",
        lambda held: {**held, "bundle.json": held["bundle.json"] + b" "},
    ),
    ("diffs/e_1.diff is not in SHA256SUMS", lambda held: {**held, "diffs/e_1.diff": b"x"}),
    (
        "it has 0 members named README.md",
        lambda held: {name: one for name, one in held.items() if name != "README.md"},
    ),
    ("is not the schema of version 1", lambda held: summed({**held, "schema.json": b"{}"})),
    ("is not the schema of version 1", lambda held: summed({**held, "schema.json": b"[" * 5000})),
    ("has other content than its name indicates", _artifact),
    ("has an unexpected member 'artifacts/../../etc/passwd'", _climbs),
    ("bundle.json cannot be read", _deep),
    ("contains an integer of more than 64 bits", _long),
    ("README.md unpacks to 2,097,152 bytes; at most 1,048,576 are allowed", _large),
    (
        "has format version 2; this Gatebook reads at most version 1",
        told(lambda one: one.update(version=2)),
    ),
    (
        "/effects/0 has the unknown member 'trusted'",
        told(lambda one: one["effects"][0].update(trusted=True)),
    ),
    ("has a body that differs from its commitment", told(_body)),
    ("has a body of more than 64 levels", told(_nested)),
    (
        "has no body, but is not marked as erased",
        told(lambda one: entry(one, "gate.voted").update(body=None)),
    ),
    (
        "claims state 'acknowledged'; its marks say",
        told(lambda one: effect(one, "waits").update(state="acknowledged")),
    ),
    ("but the bundle has no such entry", told(lambda one: one["entries"].pop(0))),
    ("is out of order", told(lambda one: one["entries"].reverse())),
    (
        "has an unknown status, answer or requirement",
        told(lambda one: one["gates"][0].update(status="trusted")),
    ),
    ("names task", told(lambda one: effect(one, "ok").update(task=one["origin"]["session"]))),
    (
        "effect_moves_only_with_permission",
        told(lambda one: effect(one, "ok").update(permission="pending", permission_basis="policy")),
    ),
    ("belongs to no artifact of the session", told(lambda one: one["artifacts"].clear())),
]


def test_what_is_refused_or_breaks_off_leaves_nothing(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = members(origin.export())
    monkeypatch.setattr(zip_reader, "MAX_TEXT_BYTES", 1 << 20)
    before = counted()
    for number, (sentence, forge) in enumerate(FORGED):
        forged = packed(forge(held), tmp_path / f"{number}.zip")
        with pytest.raises(CommandError) as refused:
            call_command("import_bundle", str(forged), administrator="archivist")
        assert sentence in str(refused.value), (sentence, str(refused.value))
        assert str(refused.value).endswith("Nothing was imported.")
        assert counted() == before, sentence
    (tmp_path / "no.zip").write_bytes(b"PK no zip")
    for name, sentence in (("no.zip", "is not a bundle"), ("absent.zip", "cannot be read")):
        with pytest.raises(CommandError, match=sentence):
            call_command("import_bundle", str(tmp_path / name), administrator="archivist")
    _breaks_off(origin, packed(held, tmp_path / "whole.zip"), monkeypatch)


def counted() -> tuple[Any, ...]:
    """Everything that an import would have made."""
    files = {path for path in Path(settings.MEDIA_ROOT).rglob("*") if path.is_file()}
    return (
        Project.objects.count(),
        Entry.objects.count(),
        Session.objects.count(),
        Artifact.objects.count(),
        files,
    )


def _breaks_off(origin: Origin, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-way through, nothing is left; and where it may go, and where not."""
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
    origin.desk.agent.plan("later", str(origin.book.session), tool="file.read")
    later = packed(members(origin.export()), path.with_name("later.zip"))
    with pytest.raises(CommandError, match="already has a session with this key"):
        call_command("import_bundle", str(later), project="kept")
    call_command("import_bundle", str(later), project="later", administrator="archivist")
    assert Project.objects.filter(archive=True).count() == 2
