"""manage.py replay_erasures: repeat erasures on a database that was restored from a backup."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from erasure import erasure_journal, erasure_replay
from erasure.erasure_replay import ReplayResult


class Command(BaseCommand):
    """Erase again what the erasure journal names and the database still holds."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Repeat every erasure of the erasure journal that this database lacks."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="only list what is missing; erase nothing"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        path = erasure_journal.journal_path()
        if path.exists():
            self._repeat(path, is_dry_run=options["dry_run"])
        else:
            self.stdout.write(f"There is no erasure journal at {path}. Nothing to repeat.")
        lacking = erasure_replay.count_unjournalled_erasures()
        if lacking:
            self.stderr.write(
                f"{path} lacks {lacking} erasures of this database, so that no restore could repeat"
                " them. Find the complete file, or delete the backups that are older."
            )

    def _repeat(self, path: Path, *, is_dry_run: bool) -> None:
        missing = erasure_replay.find_missing_erasures()
        returned = erasure_replay.find_returned_bodies()
        if is_dry_run:
            for erasure in missing:
                self.stdout.write(f"Missing: request {erasure.request}.")
            for body in returned:
                self.stdout.write(f"Missing: the erasure of the body of entry {body.position}.")
        elif missing or returned:
            erasure_replay.replay_erasures(self._report)
            if left := erasure_replay.scrub_replayed_storage():
                self.stderr.write(f"The rows are erased, the files are not. {left}")
        if not missing and not returned:
            self.stdout.write(f"Every erasure of {path} is carried out here.")

    def _report(self, result: ReplayResult) -> None:
        counts = ", ".join(f"{name} {number}" for name, number in result.counts.items() if number)
        subject = f"Request {result.request}" if result.request else "Single bodies"
        self.stdout.write(f"{subject}: {counts or 'nothing left to erase'}.")
        if result.other_pepper:
            self.stderr.write(
                "  The pepper is another one than then. Only the listed bodies were erased: erase"
                " the subject again with `manage.py erase_subject`."
            )
        if result.unrecorded_hold:
            self.stderr.write(
                f"  {result.unrecorded_hold} What the stored holds keep was not erased. If the"
                " pepper was replaced, set each hold of words again, then release the former one."
                " If it was not, find who changed the row."
            )
