"""Export of a session bundle: write the file and record person, session and hash."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from django.db import transaction

from inquiry.bundles import history, writing
from inquiry.bundles.collecting import Cut
from journal import entries
from journal.clock import now_us
from journal.entries import SYSTEM_SOURCE
from journal.ids import uuid7
from sessions.models import Session
from sessions.refused import RefusedError

KIND: Final = "access.exported"
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """A written bundle: path (removed by the caller), hash, size in bytes and cut."""

    path: Path
    sha256: str
    size: int
    cut: Cut

    def name(self, session: Session) -> str:
        """Return the suggested file name."""
        return f"{session}-{self.sha256[:8]}.gatebook.zip"


def export(session: Session, *, actor: str = SYSTEM_SOURCE, folder: Path | None = None) -> Exported:
    """Write the bundle of `session` into `folder` (default: temporary files) and record the export.

    `actor` is a pseudonym. Raises RefusedError (see `writing.write`). On any error, including a
    failure to record the export, the file is removed.
    """
    imported = history.of_session(session)
    if imported is not None:
        raise RefusedError(
            f"{session} was imported from a bundle. Share that file, SHA-256 {imported.sha256}."
        )
    handle, name = tempfile.mkstemp(prefix=".bundle-", suffix=".zip", dir=folder)
    os.close(handle)
    path = Path(name)
    try:
        cut = writing.write(session, path)
        collected = Exported(path, _hash(path), path.stat().st_size, cut)
        with transaction.atomic():
            _record(session, collected, actor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return collected


def _record(session: Session, collected: Exported, actor: str) -> None:
    facts = {
        "what": "bundle",
        "sha256": collected.sha256,
        "size": collected.size,
        "cut": collected.cut.position,
    }
    entries.record(
        session.project_id,
        KIND,
        event_id=uuid7().hex,
        text=orjson.dumps({"kind": KIND, **facts}, option=orjson.OPT_SORT_KEYS).decode(),
        received_us=now_us(),
        actor=actor,
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        session=session.id,
    )


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
