"""The one writer of Artifact, and the keeper of stored bytes: named by content, written whole or not at all."""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson
from django.conf import settings

from journal import entries
from journal.entries import Status
from journal.ids import derived
from sessions.models import Artifact
from sessions.origin import Origin, Repeated

_INCOMING: Final = ".incoming-"  # begins the name of a file while its bytes come in
_ABANDONED_US: Final = 24 * 3_600 * 1_000_000


class WrongContent(Exception):
    """The bytes are not those that were announced; send the file whose SHA-256 and size the artifact names."""


def bring(rows: Sequence[Artifact]) -> None:
    """Store artifacts of a bundle, as they stood in the book of origin. Expects the archive of their session."""
    Artifact.objects.bulk_create(rows, batch_size=500)


def identity(session: UUID, origin: Origin) -> UUID:
    """The id of the artifact that this fact records."""
    return derived(session, "artifact", origin.source, origin.key)


def record(origin: Origin, session: UUID, effect: UUID | None, values: Mapping[str, Any]) -> Artifact:
    """Record an artifact by command. Raises Repeated."""
    appended = entries.append([draft(origin, session, effect, values)], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    return store(origin, session, effect, values, appended.position)


def draft(origin: Origin, session: UUID, effect: UUID | None, values: Mapping[str, Any]) -> entries.Draft:
    """The journal entry of an artifact."""
    facts = orjson.dumps({"sha256": values["sha256"], "size": values["size"]}, option=orjson.OPT_SORT_KEYS).decode()
    return origin.draft(
        "artifact.recorded", facts=facts, session=session, effect=effect, subject=identity(session, origin)
    )


def store(origin: Origin, session: UUID, effect: UUID | None, values: Mapping[str, Any], position: int) -> Artifact:
    """Write the row of an artifact whose entry is in the journal; its bytes may be here already, under another name."""
    artifact, _created = Artifact.objects.get_or_create(
        id=identity(session, origin),
        defaults={
            "project_id": origin.project,
            "session_id": session,
            "effect": effect,
            "type": values["type"],
            "name": values.get("name") or "",
            "uri": values.get("uri") or "",
            "sha256": values["sha256"],
            "size": values["size"],
            "media_type": values["media_type"],
            "retention": values.get("retention") or "standard",
            "opened_position": position,
            "created_at_us": origin.received_us,
            "stored_at_us": origin.received_us if _is_here(origin.project, values["sha256"], values["size"]) else None,
        },
    )
    return artifact


def path(project: UUID, sha256: str) -> Path:
    """Where the bytes of that hash lie; a project never shares a file with another."""
    return Path(settings.MEDIA_ROOT) / str(project) / sha256[:2] / sha256


def _is_here(project: UUID, sha256: str, size: int) -> bool:
    """True when bytes of that hash and size are stored; an artifact that names another size names other bytes."""
    try:
        return path(project, sha256).stat().st_size == size
    except FileNotFoundError:
        return False


def receive(artifact: Artifact, chunks: Iterable[bytes]) -> None:
    """Put the artifact's bytes on disk from a stream: temporary file, fsync, rename, fsync of the folder.

    Raises WrongContent, and nothing is kept, when size or SHA-256 differ from what was announced. Needs no transaction,
    and must not run in one: whoever sends slowly would keep every other writer waiting. `mark_stored` comes after it.
    """
    target = path(artifact.project_id, artifact.sha256)
    _make_folder(target.parent)
    digest, size = hashlib.sha256(), 0
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=_INCOMING)
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > artifact.size:
                    raise WrongContent
                digest.update(chunk)
                file.write(chunk)
            if size != artifact.size or digest.hexdigest() != artifact.sha256:
                raise WrongContent
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def mark_stored(artifact: Artifact, now_us: int) -> None:
    """Say that the bytes which `receive` put on disk are here: of this artifact and all of the same hash and size."""
    named = Artifact.objects.filter(project=artifact.project_id, sha256=artifact.sha256, size=artifact.size)
    named.filter(stored_at_us=None).update(stored_at_us=now_us)


def remove_abandoned(now_us: int) -> int:
    """Delete what uploads left half-way when their process was killed, a day after its last byte; return how many."""
    removed = 0
    for left in Path(settings.MEDIA_ROOT).glob(f"*/??/{_INCOMING}*"):
        with suppress(FileNotFoundError):  # somebody else was quicker
            if left.stat().st_mtime_ns // 1_000 < now_us - _ABANDONED_US:
                left.unlink()
                removed += 1
    return removed


def _make_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, so that it is still there after a loss of power."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
