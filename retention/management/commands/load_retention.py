"""`manage.py load_retention FILE`: load retention rules, count what goes, and activate them."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.management.project_option import add_project_option, require_project
from accounts.models import Project
from db.clock import now_us
from db.errors import ChangeRefused
from db.yaml_reader import DocumentError, read_yaml_file
from erasure.recorded_holds import HoldNotRecorded
from proofs.stable_position import load_stable_position
from retention import retention_dry_run, retention_sets
from retention.body_scan import load_project_holds
from retention.models import RetentionSet
from retention.month_rows import build_month_rows
from retention.retention_yaml import MAX_BYTES, parse_retention


class Command(BaseCommand):
    """Load the whole file or nothing, and print what would go in which month."""

    help = (
        "Load retention rules (docs/examples/retention.yaml) as the next version under their name,"
        " and count now what they would remove, also if they were loaded before. --dry-run counts"
        " only and stores nothing. --activate puts them in force after the count."
    )
    requires_system_checks: list[str] = []  # the checks take half of the start-up time

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a retention.yaml")
        add_project_option(parser)
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument("--dry-run", action="store_true", help="count, and store nothing")
        choice.add_argument(
            "--activate", action="store_true", help="put the set in force after the count"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path, project = Path(options["file"]), require_project(options["project"])
        text = read_yaml_file(path, MAX_BYTES)
        try:
            if options["dry_run"]:
                self._print_dry_run(count_without_storing(project, text))
                self.stdout.write("Nothing was stored.")
                return
            parse_retention(text)
            row = retention_sets.load_retention_set(project, text)
            retention_dry_run.repeat_count(row)  # holds and entries may have come since a count
        except DocumentError as fault:
            raise CommandError(
                f"{path}:{fault.line}: {fault.sentence} Nothing was loaded."
            ) from fault
        except HoldNotRecorded as fault:
            raise CommandError(str(fault)) from fault
        self.stdout.write(
            f"{project.name}: {row} is loaded, and counted now up to entry {row.counted_end}."
        )
        self._print_dry_run(row)
        if options["activate"]:
            try:
                retention_sets.activate_retention_set(row.pk, project, row.counted_at_us)
            except ChangeRefused as refused:
                raise CommandError(str(refused)) from None
            self.stdout.write(f"In force now: {row}. The job removes what has expired.")
            return
        active = retention_sets.load_active_set(project.pk)
        self.stdout.write(
            f"In force: {active}." if active else "No retention is in force: texts stay for ever."
        )

    def _print_dry_run(self, row: RetentionSet) -> None:
        for item in build_month_rows(row, now_us()):
            held = f", {item['held']} held" if item["held"] else ""
            self.stdout.write(
                f"  {item['when']}: class {item['class']}: {item['bodies']} bodies,"
                f" {item['bytes']} bytes, {item['searched']} of them found by words{held}"
            )


def count_without_storing(project: Project, text: str) -> RetentionSet:
    """Return an unsaved set with its dry run. Raises DocumentError."""
    row = RetentionSet(project=project, rules=parse_retention(text))
    row.counted_end = load_stable_position()
    counts, holds = row.dry_run, load_project_holds(project.pk)
    for after in range(0, row.counted_end, retention_dry_run.WINDOW):
        upto = min(after + retention_dry_run.WINDOW, row.counted_end)
        counts = retention_dry_run.count_window(row, counts, holds, after, upto)
    row.dry_run = counts
    return row
