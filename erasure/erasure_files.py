"""Erases files: bytes of artifacts, exports, and mails written to files.

Nothing here is undone by a rollback, and everything may run again.
"""

import email
import email.policy
import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final, cast
from uuid import UUID

import structlog
from django.conf import settings

from erasure.row_scan import Subject
from erasure.word_match import list_spellings
from investigation.exports import exports
from investigation.models import Export
from sessions import artifacts
from sessions.models import Artifact, Session

log = structlog.get_logger("gatebook.erasure")
_CHUNK: Final = 1024 * 1024
_OVERLAP: Final = 4096  # longer than every spelling of a word
_DEEPEST: Final = 3
MOST_UNPACKED: Final = 1 << 30  # bytes of one stored file
_IN_MEMORY: Final = 16 * 1024 * 1024
# Damaged, encrypted, or of a method that Python does not know.
_UNREADABLE: Final = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
    *(RuntimeError, NotImplementedError, ValueError),
)
ARTIFACTS_PER_WINDOW: Final = 50
_MAIL_SEPARATOR: Final = b"\n" + b"-" * 79 + b"\n"  # of Django's file backend
EXPORT_STOPPED: Final = "An erasure stopped this export. Start it again."


class ArtifactWindow:
    """Artifacts whose bytes contain the subject, and the last key that was read."""

    def __init__(self) -> None:
        self.erased: list[Artifact] = []
        self.held = 0
        self.shared = 0  # another session stores the same bytes
        self.last: UUID | None = None


def find_artifacts(subject: Subject, after: UUID | None) -> ArtifactWindow:
    """Return the next artifacts whose bytes go.

    Also those whose file no row stores: a run that was killed recorded the removal already.
    """
    recorded = Artifact.objects.order_by("id")
    if subject.project is not None:
        recorded = recorded.filter(project=subject.project)
    if subject.session is not None:
        recorded = recorded.filter(session=subject.session)
    if after is not None:
        recorded = recorded.filter(id__gt=after)
    rows = list(recorded[:ARTIFACTS_PER_WINDOW])
    window = ArtifactWindow()
    window.last = rows[-1].id if len(rows) == ARTIFACTS_PER_WINDOW else None
    for row in filter(artifacts.holds_bytes, rows):
        if subject.session is None and not _has_subject(row, subject):
            continue
        same = Artifact.objects.filter(project=row.project_id, sha256=row.sha256)
        if same.filter(session__in=subject.held_sessions).exists():
            window.held += 1
        elif subject.session is not None and same.exclude(session=subject.session).exists():
            window.shared += 1
        else:
            window.erased.append(row)
    return window


def _has_subject(row: Artifact, subject: Subject) -> bool:
    path = artifacts.artifact_path(row.project_id, row.sha256)
    if not path.exists():
        return False
    limit = UnpackLimit(MOST_UNPACKED)
    with path.open("rb") as file:
        has_subject = any(_matches_bytes(chunk, subject) for chunk in read_unpacked(file, limit))
    if limit.left <= 0 and not has_subject:
        log.warning("artifact_not_searched_to_its_end", artifact=str(row.id))
    return has_subject


@dataclass
class UnpackLimit:
    """The bytes that may still be unpacked of one stored file, over all of its members."""

    left: int


def read_unpacked(file: IO[bytes], limit: UnpackLimit, depth: int = 0) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks that overlap, then those of what it compresses.

    Zip files (also documents of that form) and gzip, three deep, until nothing is left of `limit`.
    """
    before = b""
    while chunk := file.read(_CHUNK):
        yield before + chunk
        before = chunk[-_OVERLAP:]
    if depth == _DEEPEST:
        return
    for name, member in _open_members(file):
        yield name
        # A copy: to seek in a member unpacks it again, to its end and beyond any limit.
        with SpooledTemporaryFile(_IN_MEMORY, dir=str(settings.VAR_DIR)) as copy:
            with suppress(*_UNREADABLE):
                while limit.left > 0 and (chunk := member.read1(min(_CHUNK, limit.left))):
                    limit.left -= copy.write(chunk)
            copy.seek(0)
            yield from read_unpacked(cast("IO[bytes]", copy), limit, depth + 1)


def _open_members(file: IO[bytes]) -> Iterator[tuple[bytes, gzip.GzipFile | zipfile.ZipExtFile]]:
    """Yield name and content of what a file compresses, as far as Python can read it."""
    file.seek(0)
    if file.read(2) == b"\x1f\x8b":
        file.seek(0)
        with gzip.open(file) as unpacked:
            yield b"", unpacked
    elif zipfile.is_zipfile(file):
        with suppress(*_UNREADABLE), zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                with suppress(*_UNREADABLE), archive.open(member) as unpacked:
                    yield (
                        member.filename.encode("utf-8", "replace"),
                        cast("zipfile.ZipExtFile", unpacked),
                    )


def _matches_bytes(content: bytes, subject: Subject) -> bool:
    """Return True if the bytes contain the subject, as UTF-8 or UTF-16."""
    lowered = content.lower()
    for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
        needles = [
            [spelling.lower().encode(encoding) for spelling in runs[0]]
            for runs in map(list_spellings, subject.words)
        ]
        if any(needle in lowered for choice in needles for needle in choice):
            odd = content[1:] if encoding != "utf-8" else b""
            texts = (part.decode(encoding, "replace") for part in (content, odd))
            if any(subject.matches_text(text) for text in texts):
                return True
    return False


def stop_exports(project: UUID | None) -> int:
    """Delete every file of an export, of one project or of all; return their number.

    A stored export lives for a day, so that all go instead of those that contain the subject.
    """
    rows = Export.objects.filter(state__in=("waiting", "running", "done"))
    if project is not None:
        rows = rows.filter(project=project)
    return exports.discard_exports(rows, EXPORT_STOPPED)


def count_exports(project: UUID | None) -> int:
    """Return how many exports `stop_exports` would remove."""
    rows = Export.objects.filter(state__in=("waiting", "running", "done"))
    return (rows.filter(project=project) if project is not None else rows).count()


def find_mail_files(subject: Subject) -> list[Path]:
    """Return the mails in files that contain the subject. Only trials write mails to files.

    Of a session all mails that were written since it opened: their texts do not name it.
    """
    folder = Path(str(settings.EMAIL_FILE_PATH or ""))
    if not settings.EMAIL_FILE_PATH or not folder.is_dir():
        return []
    files = sorted(path for path in folder.iterdir() if path.is_file())
    if subject.session is not None:
        opened = Session.objects.values_list("created_at_us", flat=True).get(id=subject.session)
        return [path for path in files if path.stat().st_mtime_ns // 1_000 >= opened]
    return [path for path in files if _has_mail_of(path, subject)]


def _has_mail_of(path: Path, subject: Subject) -> bool:
    for part in path.read_bytes().split(_MAIL_SEPARATOR):
        message: Any = email.message_from_bytes(part.strip(), policy=email.policy.default)
        texts = [f"{name}: {value}" for name, value in message.items()]
        texts += [
            str(piece.get_content())
            for piece in message.walk()
            if piece.get_content_maintype() == "text"
        ]
        if any(subject.matches_text(text) for text in texts):
            return True
    return False
