"""`manage.py rehearse_policies FILE`: what a draft would have changed among the effects of the last days."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from approvals import rehearsal, states
from approvals.document import DocumentError
from approvals.management.commands.load_policies import project_named, text_of
from journal.untrusted import pieces
from sessions import projects


class Command(BaseCommand):
    """One line for each effect whose outcome would change, then the counts. Writes nothing."""

    help = (
        "Replay a draft of policies over the recorded effects of the last days and list every effect whose outcome "
        "would be another than by what is in force. Nothing is written."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a policies.yaml")
        parser.add_argument(
            "--project", default=projects.DEFAULT_NAME, metavar="NAME", help="default: %(default)s"
        )
        parser.add_argument(
            "--days", type=int, default=14, metavar="N", help="default: %(default)s"
        )
        parser.add_argument(
            "--mode",
            choices=states.MODES,
            default="enforce",
            help="in which the draft is tried; default: %(default)s",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path, project = Path(options["file"]), project_named(options["project"])
        if not 1 <= options["days"] <= 3660:
            raise CommandError("--days is 1 to 3660.")
        try:
            replay = rehearsal.rehearse(
                project, text_of(path), days=options["days"], mode=options["mode"]
            )
        except DocumentError as fault:
            raise CommandError(
                f"{path}:{fault.line}: {fault.sentence} Nothing was rehearsed."
            ) from fault
        for rule, sentence in replay.warnings:
            self.stdout.write(f"Warning: rule {rule}: {sentence}")
        for change in replay:
            at = datetime.fromtimestamp(change.received_us / 1_000_000, UTC).strftime(
                "%Y-%m-%d %H:%M:%S"
            )
            rules = f"{change.before_rule or 'nothing in force'} → {change.after_rule}"
            what = "".join(
                piece.shown or piece.raw
                for piece in pieces(f"{change.tool} {change.target}".strip(), one_line=True)
            )
            self.stdout.write(
                f"{at}  {change.handle}  {change.before} → {change.after}  {what}  ({rules})"
            )
            if change.error:
                self.stdout.write(f"    {change.error}")
        self.stdout.write(summary(replay, options["days"]))


def summary(replay: rehearsal.Rehearsal, days: int) -> str:
    """The counts in sentences."""
    lines = [f"{replay.looked} effects of the last {days} days, tried in mode {replay.mode}."]
    for (before, after), count in sorted(replay.outcomes.items()):
        changes = "stays" if before == after else f"→ {after}"
        lines.append(f"{before} {changes}: {count}")
    if replay.asked_otherwise:
        lines.append(
            f"Asked as before, but of other people or otherwise: {replay.asked_otherwise}."
        )
    if replay.unplanned:
        lines.append(f"Left out, since their plan has not arrived: {replay.unplanned}.")
    if replay.erased:
        lines.append(f"Judged without their arguments, which were erased: {replay.erased}.")
    return "\n".join(lines)
