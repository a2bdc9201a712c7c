"""`manage.py dry_run_policies FILE`: dry run of a draft over recent effects."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.management.project_option import add_project_option, require_project
from approvals.gates import statuses
from approvals.policies import dry_run
from approvals.policies.policies_yaml import MAX_BYTES, DocumentError
from db.yaml_reader import read_yaml_file
from web.untrusted_text import split_untrusted


class Command(BaseCommand):
    """List each effect whose outcome would change, then the counts. Writes nothing."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Replay a draft policy over recent effects and list every effect whose outcome would"
        " differ "
        "from the active policy. Nothing is written."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a policies.yaml")
        add_project_option(parser)
        parser.add_argument(
            "--days", type=int, default=14, metavar="N", help="default: %(default)s"
        )
        parser.add_argument(
            "--mode",
            choices=statuses.POLICY_MODES,
            default="enforce",
            help="mode of the draft; default: %(default)s",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path, project = Path(options["file"]), require_project(options["project"])
        if not 1 <= options["days"] <= 3660:
            raise CommandError("--days must be 1 to 3660.")
        try:
            replay = dry_run.prepare_dry_run(
                project, read_yaml_file(path, MAX_BYTES), days=options["days"], mode=options["mode"]
            )
        except DocumentError as fault:
            raise CommandError(
                f"{path}:{fault.line}: {fault.sentence} Nothing was replayed."
            ) from fault
        for rule, sentence in replay.warnings:
            self.stdout.write(f"Warning: rule {rule}: {sentence}")
        for change in replay:
            at = datetime.fromtimestamp(change.received_us / 1_000_000, UTC).strftime(
                "%Y-%m-%d %H:%M:%S"
            )
            rules = f"{change.before_rule or 'no active policy'} → {change.after_rule}"
            target = "".join(
                piece.shown or piece.raw
                for piece in split_untrusted(
                    f"{change.tool} {change.target}".strip(), one_line=True
                )
            )
            self.stdout.write(
                f"{at}  {change.handle}  {change.before} → {change.after}  {target}  ({rules})"
            )
            if change.error:
                self.stdout.write(f"    {change.error}")
        self.stdout.write(format_dry_run_summary(replay, options["days"]))


def format_dry_run_summary(replay: dry_run.DryRun, days: int) -> str:
    """Format the counts as sentences."""
    lines = [f"{replay.looked} effects of the last {days} days, replayed in mode {replay.mode}."]
    for (before, after), count in sorted(replay.outcomes.items()):
        changes = "stays" if before == after else f"→ {after}"
        lines.append(f"{before} {changes}: {count}")
    if replay.asked_otherwise:
        lines.append(
            f"Approval still needed, with different requirements: {replay.asked_otherwise}."
        )
    if replay.unplanned:
        lines.append(f"Skipped, because their plan has not arrived: {replay.unplanned}.")
    if replay.erased:
        lines.append(f"Evaluated without their erased arguments: {replay.erased}.")
    return "\n".join(lines)
