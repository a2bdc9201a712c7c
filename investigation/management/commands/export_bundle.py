"""manage.py export_bundle SESSION [--out FILE]: export one session as a bundle."""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.management.project_option import add_project_option, require_project
from db.errors import ChangeRefused
from display import handles
from investigation.bundles import export as bundles_export
from proofs import sealer
from proofs.signing_keys import SealKeyError
from proofs.tree_store import SealDamageError


class Command(BaseCommand):
    """Write the file atomically and record the export."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Export a session as a bundle: a zip with a summary, the data as JSON with schema, diffs,"
        " and artifacts by hash. People are pseudonyms. The journal records the export."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("session", metavar="SESSION", help="handle such as s_41, id or key")
        parser.add_argument(
            "--out",
            type=Path,
            metavar="FILE",
            help="default: s_41-1a2b3c4d.gatebook.zip in the current folder",
        )
        add_project_option(parser)

    def _seal_entries(self) -> None:
        """Seal what waits, so that the bundle proves its newest entries and erasures."""
        try:
            sealer.seal_backlog()
        except (SealKeyError, sealer.SealLagError, SealDamageError) as error:
            self.stderr.write(f"Entries that are not sealed yet have no proof: {error}")

    def handle(self, *args: Any, **options: Any) -> str:
        project = require_project(options["project"])
        session = handles.find_session(project, options["session"])
        if session is None:
            raise CommandError(
                f"{project.name} has no session {options['session']!r}. Use a handle, id or key."
            )
        out: Path | None = options["out"]
        folder = out.parent if out is not None else Path.cwd()
        if not folder.is_dir():
            raise CommandError(f"The folder {folder} does not exist. Create it first.")
        self._seal_entries()
        try:
            export = bundles_export.export_session(session, folder=folder)
        except ChangeRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        except OSError as error:
            raise CommandError(
                f"The bundle cannot be written to {folder}: {error.strerror}."
            ) from error
        target = out if out is not None else folder / export.name(session)
        export.path.chmod(0o666 & ~_umask())
        export.path.replace(target)
        return (
            f"{session} as of position {export.cut.position}: {target}, {export.size:,} bytes.\n"
            f"SHA-256 {export.sha256}, recorded as {bundles_export.EXPORTED_KIND}."
        )


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
