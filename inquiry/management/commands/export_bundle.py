"""`manage.py export_bundle SESSION [--out FILE]`: one session as a file that people and another Gatebook can read."""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from inquiry import handles
from inquiry.bundles import exporting
from sessions import projects
from sessions.refused import RefusedError


class Command(BaseCommand):
    """Write the file whole or not at all, and record that it was taken."""

    help = (
        "Export a session as a bundle: a zip with a summary for people, all of it as JSON with its schema, diffs and "
        "artifacts by hash. People are pseudonyms in it. The journal records who exported what."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "session", metavar="SESSION", help="a handle such as s_41, an id or a key"
        )
        parser.add_argument(
            "--out", type=Path, metavar="FILE", help="default: s_41-1a2b3c4d.gatebook.zip, here"
        )
        parser.add_argument(
            "--project", default=projects.DEFAULT_NAME, metavar="NAME", help="default: %(default)s"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        project = projects.named(options["project"])
        if project is None:
            raise CommandError(f"There is no project {options['project']!r}.")
        session = handles.session(project, options["session"])
        if session is None:
            raise CommandError(
                f"{project.name} has no session {options['session']!r}: give a handle, an id or a key."
            )
        out: Path | None = options["out"]
        folder = out.parent if out is not None else Path.cwd()
        if not folder.is_dir():
            raise CommandError(f"There is no folder {folder}.")
        try:
            found = exporting.export(session, folder=folder)
        except RefusedError as refusal:
            raise CommandError(str(refusal)) from refusal
        except OSError as error:
            raise CommandError(
                f"The bundle cannot be written to {folder}: {error.strerror}."
            ) from error
        target = out if out is not None else folder / found.name(session)
        found.path.chmod(0o666 & ~_umask())
        found.path.replace(target)
        return (
            f"{session} as of position {found.cut.position}: {target}, {found.size:,} bytes.\n"
            f"SHA-256 {found.sha256}, recorded as {exporting.KIND}."
        )


def _umask() -> int:
    """The process's own; asking for it means setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
