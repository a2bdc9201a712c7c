"""Export of a session bundle: write the file and record person, session and hash."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.db import transaction

from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from investigation.bundles import imported_gates as bundles_imported
from investigation.bundles import zip_writer
from investigation.bundles.collect import ExportCut
from journal import entries
from journal.entries import SYSTEM_SOURCE
from sessions.models import Session

EXPORTED_KIND: Final = "access.exported"
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ExportedBundle:
    """A written bundle: path (removed by the caller), hash, size in bytes and cut."""

    path: Path
    sha256: str
    size: int
    cut: ExportCut

    def name(self, session: Session) -> str:
        """Return the suggested file name."""
        return f"{session}-{self.sha256[:8]}.gatebook.zip"


def export_session(
    session: Session, *, actor: str = SYSTEM_SOURCE, folder: Path | None = None
) -> ExportedBundle:
    """Write the bundle of `session` into `folder` (default: temporary files) and record the export.

    `actor` is a pseudonym. Raises ChangeRefused (see `zip_writer.write_bundle`). On any error,
    including a failure to record the export, the file is removed.
    """
    imported = bundles_imported.bundle_of_session(session)
    if imported is not None:
        raise ChangeRefused(
            f"{session} was imported from a bundle. Share that file, SHA-256 {imported.sha256}."
        )
    handle, name = tempfile.mkstemp(prefix=".bundle-", suffix=".zip", dir=folder)
    os.close(handle)
    path = Path(name)
    try:
        cut = zip_writer.write_bundle(session, path)
        collected = ExportedBundle(path, _hash_file(path), path.stat().st_size, cut)
        with transaction.atomic():
            _record_export(session, collected, actor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return collected


def _record_export(session: Session, collected: ExportedBundle, actor: str) -> None:
    facts = {
        "what": "bundle",
        "sha256": collected.sha256,
        "size": collected.size,
        "cut": collected.cut.position,
    }
    entries.record_system_entry(
        session.project_id,
        EXPORTED_KIND,
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json({"kind": EXPORTED_KIND, **facts}),
        received_us=now_us(),
        actor=actor,
        facts=entries.dump_sorted_json(facts),
        session=session.id,
    )


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
