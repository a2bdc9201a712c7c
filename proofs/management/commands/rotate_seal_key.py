"""manage.py rotate_seal_key: replace the key that signs tree heads."""

import os
import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from db import key_files
from proofs import signing_keys, tree_heads
from proofs.models import SigningKey
from proofs.signed_note import format_verifier_key
from proofs.signing_keys import KEY_NAME, KEY_VARIABLE, NEXT_KEY_NAME, SealKeyError
from proofs.tree_store import lock_tree

LOSS: Final = (
    "Nothing recorded is lost, and heads of the lost key stay verifiable. But no key endorses the "
    "new one: everyone who verifies tree heads must get its public key from you in another way, "
    "and cannot exclude that a stranger made it."
)


class Command(BaseCommand):
    """Make a new key, let the old one sign it, and sign a tree head with both."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Replace the key that signs tree heads; heads of earlier keys stay verifiable."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--old-key-file",
            type=Path,
            help=f"where the key in use is, if {KEY_VARIABLE} or the key file has the new one",
        )
        parser.add_argument(
            "--lost", action="store_true", help="the key in use is lost: no key signs the new one"
        )
        parser.add_argument(
            "--accept-loss", action="store_true", help="with --lost: do it, not only list the loss"
        )

    def handle(
        self,
        *_args: Any,
        old_key_file: Path | None = None,
        lost: bool = False,
        accept_loss: bool = False,
        **_options: Any,
    ) -> None:
        if signing_keys.load_last_key() is None:
            raise CommandError("No key signs tree heads yet. Run `manage.py setup`.")
        if lost and not accept_loss:
            raise CommandError(f"{LOSS} To continue, add --accept-loss.")
        try:
            self._rotate(*self._choose_keys(old_key_file, lost=lost), lost=lost)
        except (SealKeyError, ValueError) as error:
            raise CommandError(str(error)) from error

    def _choose_keys(
        self, old_key_file: Path | None, *, lost: bool
    ) -> tuple[Ed25519PrivateKey, Ed25519PrivateKey | None, bool]:
        """Return the new key, the old one, and whether the new one is in its own file."""
        configured = signing_keys.load_configured_key()
        if lost and configured is not None:
            current = signing_keys.load_last_key()
            if current is not None and signing_keys.is_private_half(configured, current):
                raise CommandError("The key in use is not lost. Leave out --lost.")
            return configured, None, False
        if old_key_file is not None:
            old = signing_keys.load_key_file(old_key_file)
            if old is None or configured is None:
                missing = old_key_file if old is None else KEY_VARIABLE
                raise CommandError(f"There is no key in {missing}.")
            return configured, old, False
        if os.environ.get(KEY_VARIABLE):
            raise CommandError(
                f"The key is in {KEY_VARIABLE}. Store it in a file of this machine, set the"
                " variable to the new key on every node that seals, and name the file with"
                " --old-key-file."
            )
        last = signing_keys.load_last_key()
        old = None if lost or last is None else signing_keys.load_private_half(last)
        seed = secrets.token_bytes(signing_keys.SEED_BYTES)
        name = KEY_NAME if lost else NEXT_KEY_NAME
        # A file of an earlier try that was killed: its key was never used.
        (signing_keys.key_folder() / name).unlink(missing_ok=True)
        stored = key_files.store_key(signing_keys.key_folder(), name, seed)
        return signing_keys.build_private_key(stored), old, not lost

    def _rotate(
        self,
        private_key: Ed25519PrivateKey,
        old: Ed25519PrivateKey | None,
        in_own_file: bool,
        *,
        lost: bool,
    ) -> None:
        with transaction.atomic(durable=True):
            lock_tree(wait=True)
            key: SigningKey = signing_keys.store_next_key(private_key, old)
            others = [old] if old is not None else []
            head = tree_heads.sign_tree_head(key.name, private_key, others)
        if in_own_file:
            key_files.replace_key_file(signing_keys.key_folder(), KEY_NAME, NEXT_KEY_NAME)
        self.stdout.write(
            f"Tree heads from {head.id} on are signed with"
            f" {format_verifier_key(signing_keys.to_note_key(key))}"
        )
        if lost:
            self.stdout.write(LOSS)
        self.stdout.write("Publish this key where your auditors look for it.")
