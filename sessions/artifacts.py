"""The one writer of Artifact and of stored bytes.

Files are named by their content and written atomically.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from db import clock
from db.ids import derive_uuid, new_uuid7
from db.row_changes import RowChange, write_row_changes
from journal import entries
from journal.entries import AppendStatus, Origin, RepeatedKey
from sessions.models import Artifact

log = structlog.get_logger("gatebook.sessions")
_INCOMING: Final = ".incoming-"  # prefix of temporary files during an upload
_IDS_PER_UPDATE: Final = 5_000  # SQLite limits the parameters of a statement
_ABANDONED_US: Final = 24 * 3_600 * 1_000_000


class WrongContent(Exception):
    """The content differs from the announced size or SHA-256."""


class ChangedContent(Exception):
    """The stored bytes no longer have the SHA-256 that was recorded: somebody changed the file."""


def import_artifacts(rows: Sequence[Artifact]) -> None:
    """Store artifacts of a bundle as their source had them, in their archive."""
    Artifact.objects.bulk_create(rows, batch_size=500)


def restore_artifacts(changes: Sequence[RowChange]) -> None:
    """Restore artifacts to what the journal gives (manage.py rebuild)."""
    write_row_changes(Artifact, changes)


def derive_artifact_id(session: UUID, origin: Origin) -> UUID:
    """Derive the id of the artifact that a fact records."""
    return derive_uuid(session, "artifact", origin.source, origin.key)


def add_artifact(
    origin: Origin, session: UUID, effect: UUID | None, values: Mapping[str, Any]
) -> Artifact:
    """Record an artifact by command. Raises RepeatedKey."""
    appended = entries.append_entries(
        [build_artifact_entry(origin, session, effect, values)], origin.received_us
    )[0]
    if appended.status is not AppendStatus.CREATED:
        raise RepeatedKey
    return apply_artifact_fact(origin, session, effect, values, appended.position)


def build_artifact_entry(
    origin: Origin, session: UUID, effect: UUID | None, values: Mapping[str, Any]
) -> entries.Draft:
    """Build the journal entry of an artifact."""
    facts = entries.dump_sorted_json({"sha256": values["sha256"], "size": values["size"]})
    return origin.draft(
        "artifact.recorded",
        facts=facts,
        session=session,
        effect=effect,
        subject=derive_artifact_id(session, origin),
    )


def apply_artifact_fact(
    origin: Origin, session: UUID, effect: UUID | None, values: Mapping[str, Any], position: int
) -> Artifact:
    """Store an artifact of a journal entry; its bytes may be stored already."""
    artifact, _created = Artifact.objects.get_or_create(
        id=derive_artifact_id(session, origin),
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
            "stored_at_us": origin.received_us
            if _has_content(origin.project, values["sha256"], values["size"])
            else None,
        },
    )
    return artifact


def artifact_path(project: UUID, sha256: str) -> Path:
    """Return the path of the bytes with that hash. Projects never share a file."""
    return Path(settings.MEDIA_ROOT) / str(project) / sha256[:2] / sha256


def open_content(project: UUID, sha256: str) -> BinaryIO:
    """Open stored bytes, after a comparison with their hash. Raises OSError, ChangedContent.

    Who can write to the folder can replace a file. It is never shown as what an agent recorded.
    """
    file = artifact_path(project, sha256).open("rb")
    try:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            log.error("artifact_changed", project=str(project), sha256=sha256)
            raise ChangedContent(f"The stored bytes of {sha256} were changed.")
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def has_recorded_content(artifact: Artifact) -> bool:
    """Return True when the bytes of an artifact are stored, and are those that were recorded."""
    if artifact.stored_at_us is None:
        return False
    try:
        open_content(artifact.project_id, artifact.sha256).close()
    except (OSError, ChangedContent):
        return False
    return True


def holds_bytes(artifact: Artifact) -> bool:
    """Return True if bytes of an artifact are stored, or came without being marked as stored."""
    if artifact.stored_at_us is not None:
        return True
    return artifact_path(artifact.project_id, artifact.sha256).exists()


def _has_content(project: UUID, sha256: str, size: int) -> bool:
    """Return True when bytes of that hash and size are stored."""
    try:
        return artifact_path(project, sha256).stat().st_size == size
    except FileNotFoundError:
        return False


def receive_content(artifact: Artifact, chunks: Iterable[bytes]) -> None:
    """Write an artifact's bytes to disk.

    Uses a temporary file, fsync, rename, and fsync of the folder.

    Raises WrongContent, and stores nothing, when size or SHA-256 differ from those announced. Call
    it outside a transaction: a slow sender would block every other writer. Call
    `mark_content_stored` after it.
    """
    target = artifact_path(artifact.project_id, artifact.sha256)
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


def mark_content_stored(artifact: Artifact, now_us: int) -> None:
    """Mark the bytes as stored, for all artifacts with the same hash and size, each with an entry.

    Without an entry, who owns the database could delete the file and say that it never came. Must
    run inside a transaction. Raises FileNotFoundError if an erasure deleted the bytes since.
    """
    rows = Artifact.objects.filter(
        project=artifact.project_id,
        sha256=artifact.sha256,
        size=artifact.size,
        stored_at_us=None,
    )
    arrived = list(rows.select_for_update(no_key=True).order_by("id").values_list("id", flat=True))
    if arrived and not _has_content(artifact.project_id, artifact.sha256, artifact.size):
        raise FileNotFoundError(f"The bytes of {artifact.sha256} are gone again.")
    # One call, because an agent may record thousands of artifacts with the same bytes.
    entries.append_entries(
        [_draft_content_entry("artifact.stored", artifact, identity) for identity in arrived],
        now_us,
    )
    # Not `rows`: what is recorded since would be marked without an entry.
    for start in range(0, len(arrived), _IDS_PER_UPDATE):
        batch = arrived[start : start + _IDS_PER_UPDATE]
        Artifact.objects.filter(id__in=batch).update(stored_at_us=now_us)


def _draft_content_entry(kind: str, artifact: Artifact, subject: UUID | None) -> entries.Draft:
    facts = {"sha256": artifact.sha256, "size": artifact.size}
    return entries.Draft(
        project=artifact.project_id,
        source=entries.SYSTEM_SOURCE,
        event_id=new_uuid7().hex,
        kind=kind,
        lane="system",
        actor=entries.SYSTEM_SOURCE,
        text=entries.dump_sorted_json({"kind": kind, **facts}),
        facts=entries.dump_sorted_json(facts),
        subject=subject,
    )


def delete_content(project: UUID, sha256: str) -> bool:
    """Delete the bytes with that hash, which an erasure named; their rows stay without bytes.

    Returns whether a row stored them.

    The entry comes before the deletion: a run that is killed in between leaves a file that no row
    stores, which its repetition deletes. A file that went without an entry would be missed for
    ever, because the bytes that name the subject are gone.
    """
    with transaction.atomic():
        rows = Artifact.objects.filter(project=project, sha256=sha256, stored_at_us__isnull=False)
        artifact = rows.select_for_update(no_key=True).order_by("id").first()
        if artifact is not None:
            draft = _draft_content_entry("artifact.removed", artifact, None)
            entries.append_entries([draft], clock.now_us())
            rows.update(stored_at_us=None)
    with transaction.atomic():
        same = Artifact.objects.filter(project=project, sha256=sha256).order_by("id")
        # Under the locks with which an upload marks them: what is sent again since then stays.
        stored = list(same.select_for_update(no_key=True).values_list("stored_at_us", flat=True))
        if not any(moment is not None for moment in stored):
            _unlink_content(artifact_path(project, sha256))
    return artifact is not None


def _unlink_content(path: Path) -> None:
    """Delete a file, if it exists, so that it does not return after a power failure."""
    with suppress(FileNotFoundError):
        path.unlink()
        _sync_folder(path.parent)


def remove_abandoned_uploads(now_us: int) -> int:
    """Delete files of killed uploads 24 hours after the last write; return how many."""
    removed = 0
    for file in Path(settings.MEDIA_ROOT).glob(f"*/??/{_INCOMING}*"):
        with suppress(FileNotFoundError):  # another process deleted the file
            if file.stat().st_mtime_ns // 1_000 < now_us - _ABANDONED_US:
                file.unlink()
                removed += 1
    return removed


def _make_folder(folder: Path) -> None:
    """Create `folder` and its missing parents so that they survive a power failure."""
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
