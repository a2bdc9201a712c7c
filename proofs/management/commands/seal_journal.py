"""manage.py seal_journal: seal new entries, for installations without a job worker."""

import math
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from proofs import sealer, tree_heads
from proofs.signing_keys import SealKeyError
from proofs.tree_store import SealDamageError, load_tree_end


class Command(BaseCommand):
    """Seal what can be sealed now, then exit; run it every few seconds, or the job worker."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Seal new journal entries and sign a tree head that covers them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--follow", type=float, metavar="SECONDS", help="seal new entries for so long"
        )

    def handle(self, *_args: Any, follow: float | None = None, **_options: Any) -> None:
        started = load_tree_end().size
        try:
            if follow is None:
                sealer.seal_backlog()
            else:
                self.stdout.write(f"Sealing for {follow:g} s.")
                self.stdout.flush()
                sealer.run_sealer(threading.Event(), follow, math.inf)
                tree_heads.sign_due_head(grown_every_us=0)
        except (SealKeyError, sealer.SealLagError, SealDamageError) as error:
            raise CommandError(str(error)) from error
        size = load_tree_end().size
        self.stdout.write(f"{size - started} entries sealed; the tree has {size}.")
