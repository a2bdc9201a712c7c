"""`manage.py import_bundle FILE [--project P]`: what another Gatebook recorded of a session, as history to read."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ingest.bundles import bringing
from sessions.refused import RefusedError


class Command(BaseCommand):
    """Import the whole file or nothing of it; a second time changes nothing."""

    help = (
        "Import a session that another Gatebook exported, into a project of its own in which nobody can act: an "
        "archive. Pages show it as they did there; nothing of it can be dispatched, approved or resolved here."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="a .gatebook.zip")
        parser.add_argument("--project", metavar="NAME", help="an archive; default: a new one, named after the session")
        parser.add_argument("--administrator", metavar="USER", help="who may look at a new archive, and let others")

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            done = bringing.bring(options["file"], options["project"], options["administrator"])
        except RefusedError as refusal:
            raise CommandError(f"{refusal} Nothing was imported.") from refusal
        bundle = done.bundle
        where = f"{bundle.session} in the project {bundle.project.name}"
        if not done.is_new:
            return f"This file was imported before, as {where}. Nothing was changed."
        origin = bundle.told["origin"]
        said = (
            f"Imported as {where}: {origin['handle']} of {origin['project_name']}, up to position"
            f" {bundle.cut_position} there.\nSHA-256 {bundle.sha256}: compare it with the entry access.exported there."
        )
        if done.password is not None:
            said += f"\nSign in as {options['administrator']} with the password {done.password}"
        return said
