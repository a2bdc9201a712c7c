"""`manage.py filedrop DIR`: exchange messages with files in `DIR/messages/`."""

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections

from accounts.management.project_option import add_project_option, require_project
from importers.filedrop.bridge import Filedrop
from importers.filedrop.safe_files import FileRefused


class Command(BaseCommand):
    """Send dropped files, write unread messages, mark removed ones as read."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Send the files in DIR/messages/for_AGENT/ and DIR/messages/shared/ as messages, write"
        " unread messages there"
        " as files, and mark messages as read whose files were removed or moved to done/."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "directory", type=Path, metavar="DIR", help="the directory that contains messages/"
        )
        add_project_option(parser)
        parser.add_argument("--watch", action="store_true", help="repeat until interrupted")
        parser.add_argument(
            "--every",
            type=float,
            default=5.0,
            metavar="SECONDS",
            help="seconds between two rounds; default: %(default)s",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        project = require_project(options["project"])
        if not options["every"] > 0:
            raise CommandError("--every is not positive. Give a number of seconds above 0.")
        bridge = Filedrop(project, options["directory"])
        reported: set[str] = set()
        try:
            while True:
                result = self._round(bridge, options["directory"])
                for line in result.lines:
                    if line not in reported:
                        self.stderr.write(line)
                reported = set(result.lines)
                if (
                    not options["watch"]
                    or result.sent + result.written + result.read + result.put_away
                ):
                    self.stdout.write(result.summary)
                if not options["watch"]:
                    return
                close_old_connections()
                time.sleep(options["every"])
        except KeyboardInterrupt:
            self.stdout.write("Interrupted.")

    @staticmethod
    def _round(bridge: Filedrop, directory: Path) -> Any:
        try:
            return bridge.round()
        except FileRefused as refused:
            raise CommandError(f"{directory / 'messages'} {refused}.") from refused
