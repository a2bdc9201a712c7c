"""`manage.py build_docs`: build the documentation site."""

import logging
import os
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from config.docs_site import site_files


class Command(BaseCommand):
    """Build the site of this version."""

    help = "Build the documentation site into build/site/docs. Gatebook serves it at /docs/."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the option of a start that must not wait."""
        parser.add_argument(
            "--if-older",
            action="store_true",
            help="do nothing if no document is newer than the site; else build it, with a low"
            " priority for the processor",
        )

    def handle(self, *, if_older: bool, **_options: Any) -> str | None:
        if if_older:
            if site_files.is_site_current(site_files.DOCS_FOLDER / settings.GATEBOOK_VERSION):
                return None
            os.nice(10)
        logging.getLogger("mkdocs").setLevel(logging.WARNING)
        try:
            from config.docs_site.site_build import build_site
        except ModuleNotFoundError as missing:
            raise CommandError(f"{missing.name} is not installed. Run `make docs`.") from None
        from mkdocs.exceptions import Abort

        try:
            return f"{build_site()} is built. Gatebook serves it at /docs/."
        except Abort as failed:
            raise CommandError(f"The site was not built: {failed}") from None
