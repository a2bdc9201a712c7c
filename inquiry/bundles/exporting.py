"""Gives a bundle away: writes it, and says in the book who took it, of which session, and its hash."""

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
    """A bundle that lies at `path`, which is the caller's to remove; its hash, size in bytes and cut."""

    path: Path
    sha256: str
    size: int
    cut: Cut

    def name(self, session: Session) -> str:
        """What the file is called when it is saved."""
        return f"{session}-{self.sha256[:8]}.gatebook.zip"


def export(session: Session, *, actor: str = SYSTEM_SOURCE, folder: Path | None = None) -> Exported:
    """Write the bundle of `session` into `folder` (default: that for temporary files) and record it.

    `actor` is a pseudonym. Raises RefusedError (see `writing.write`), and nothing is kept then. What cannot be recorded
    is not given away either.
    """
    brought = history.of_session(session)
    if brought is not None:
        raise RefusedError(
            f"{session} came in a bundle itself: pass on that file, SHA-256 {brought.sha256}."
        )
    handle, name = tempfile.mkstemp(prefix=".bundle-", suffix=".zip", dir=folder)
    os.close(handle)
    path = Path(name)
    try:
        cut = writing.write(session, path)
        found = Exported(path, _hash(path), path.stat().st_size, cut)
        with transaction.atomic():
            _record(session, found, actor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return found


def _record(session: Session, found: Exported, actor: str) -> None:
    facts = {
        "what": "bundle",
        "sha256": found.sha256,
        "size": found.size,
        "cut": found.cut.position,
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
