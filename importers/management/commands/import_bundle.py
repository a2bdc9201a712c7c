"""`manage.py import_bundle FILE`: import a session from another Gatebook."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from db.errors import ChangeRefused
from importers.bundles import importer


class Command(BaseCommand):
    """Import the whole file or nothing. Importing it again changes nothing."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Import a session that another Gatebook exported into an archive, a read-only project."
        " Pages show it as "
        "they did there; nothing in it can be dispatched, approved or resolved."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="a .gatebook.zip")
        parser.add_argument(
            "--project",
            metavar="NAME",
            help="the archive; default: a new one named after the session",
        )
        parser.add_argument(
            "--administrator",
            metavar="USER",
            help="administrator of a new archive, who can add members",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            result = importer.import_bundle(
                options["file"], options["project"], options["administrator"]
            )
        except ChangeRefused as refusal:
            raise CommandError(f"{refusal} Nothing was imported.") from refusal
        bundle = result.bundle
        where = f"{bundle.session} in the project {bundle.project.name}"
        if not result.is_new:
            return f"This file is already imported as {where}. Nothing was changed."
        origin = bundle.document["origin"]
        lines = (
            f"Imported as {where}: {origin['handle']} of {origin['project_name']}, up to position"
            f" {bundle.cut_position} of the source.\n"
            f"SHA-256 {bundle.sha256}: compare it with the entry access.exported in the source."
        )
        if result.password is not None:
            lines += f"\nSign in as {options['administrator']} with the password {result.password}"
        return lines
