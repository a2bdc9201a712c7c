"""`manage.py filedrop DIR`: bridges the inbox of agents to files in `DIR/messages/`."""

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections

from ingest.filedrop import Filedrop
from ingest.folders import Refused
from sessions import projects


class Command(BaseCommand):
    """Send what was dropped, write what is unread, mark what was put away; once, or again and again."""

    help = (
        "Send the files in DIR/messages/for_AGENT/ and DIR/messages/shared/ as messages, write unread messages there as"
        " files, and mark as read what was removed or moved to done/."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path, metavar="DIR", help="the directory that holds messages/")
        parser.add_argument("--project", default=projects.DEFAULT_NAME, metavar="NAME", help="default: %(default)s")
        parser.add_argument("--watch", action="store_true", help="go on until interrupted")
        parser.add_argument(
            "--every", type=float, default=5.0, metavar="SECONDS", help="between two rounds; default: %(default)s"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        project = projects.named(options["project"])
        if project is None:
            raise CommandError(
                f"There is no project {options['project']!r}. Run `manage.py create_project NAME` first."
            )
        if not options["every"] > 0:
            raise CommandError("--every is a number of seconds above 0.")
        bridge = Filedrop(project, options["directory"])
        said: set[str] = set()
        try:
            while True:
                told = self._round(bridge, options["directory"])
                for line in told.lines:
                    if line not in said:
                        self.stderr.write(line)
                said = set(told.lines)
                if not options["watch"] or told.sent + told.written + told.read + told.put_away:
                    self.stdout.write(told.summary)
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
        except Refused as refused:
            raise CommandError(f"{directory / 'messages'} {refused}.") from refused
