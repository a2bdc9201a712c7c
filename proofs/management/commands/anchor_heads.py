"""`manage.py anchor_heads`: publish new tree heads now, and what receivers need to know."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from proofs.anchors.anchor_settings import load_anchor_settings
from proofs.anchors.anchors import load_anchor_states, publish_now
from proofs.anchors.published_head import AnchorFailed, AnchorTarget
from proofs.anchors.receipt_check import ReceiptCheck, check_receipts
from proofs.anchors.webhook import derive_anchor_secret
from proofs.signed_note import format_verifier_key
from proofs.signing_keys import load_signing_keys, to_note_key


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Publish new tree heads to the anchors of GATEBOOK_ANCHORS now, also to those that wait "
        "after a failure. Exit code 1 where one fails."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help="anchors; all without a name")
        shown = parser.add_mutually_exclusive_group()
        shown.add_argument(
            "--keys",
            action="store_true",
            help="print the public keys of tree heads for witnesses and verifiers, and publish "
            "nothing",
        )
        shown.add_argument(
            "--check",
            action="store_true",
            help="compare the rows about published heads with what files, git remotes and "
            "witnesses hold, and publish nothing. Exit code 1 where they differ",
        )
        shown.add_argument(
            "--secret",
            metavar="NAME",
            help="print the secret that signs this webhook, and publish nothing",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        settings = load_anchor_settings()
        if settings.faults:
            raise CommandError("\n".join(settings.faults))
        if options["keys"]:
            for key in load_signing_keys():
                self.stdout.write(format_verifier_key(to_note_key(key)))
            return
        by_name = {target.name: target for target in settings.targets}
        wanted = [options["secret"]] if options["secret"] else options["names"] or list(by_name)
        for name in wanted:
            if name not in by_name:
                names = ", ".join(by_name) or "none"
                raise CommandError(f"No anchor has the name {name}. The anchors are: {names}.")
        if options["secret"]:
            if by_name[options["secret"]].kind != "webhook":
                raise CommandError(f"{options['secret']} is no webhook. Only webhooks are signed.")
            self.stdout.write(derive_anchor_secret(options["secret"]))
            return
        targets = [by_name[name] for name in wanted]
        if options["check"]:
            self._check(targets)
        else:
            self._publish(targets)

    def _check(self, targets: list[AnchorTarget]) -> None:
        has_faults = False
        for target in targets:
            try:
                checked = check_receipts(target)
            except AnchorFailed as failure:
                checked = ReceiptCheck(0, 0, [str(failure)])
            for fault in checked.faults:
                self.stdout.write(f"{target.name}: {fault}")
            self.stdout.write(
                f"{target.name}: {checked.compared:,} rows compared, {checked.uncompared:,} cannot"
                " be: only the receiver knows, or they are of another place"
            )
            has_faults |= bool(checked.faults)
        if has_faults:
            raise CommandError("Rows about anchors differ from what the anchors hold.")

    def _publish(self, targets: list[AnchorTarget]) -> None:
        has_failed = False
        for target in targets:
            before = next(state for state in load_anchor_states() if state.target == target).last
            try:
                state = publish_now(target)
            except BlockingIOError:
                self.stdout.write(f"{target.name}: the job worker publishes to it at this moment")
                continue
            if state.failure is not None:
                has_failed = True
                self.stdout.write(f"{target.name}: failed: {state.failure.error}")
            elif state.last is None:
                self.stdout.write(f"{target.name}: no tree head yet")
            elif before is not None and before.id == state.last.id:
                # The anchor itself was not read: it may have lost the head since.
                self.stdout.write(
                    f"{target.name}: nothing to publish. Tree head {state.last.tree_head_id} was"
                    " published earlier; --check looks whether the anchor still holds it"
                )
            else:
                self.stdout.write(f"{target.name}: holds tree head {state.last.tree_head_id}")
        if not targets:
            self.stdout.write("GATEBOOK_ANCHORS is none: no tree head leaves this installation.")
        if has_failed:
            raise CommandError("Not every anchor holds the newest tree head.")
