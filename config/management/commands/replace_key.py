"""`manage.py replace_key`: replace a lost key that the database was written with."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from accounts.audit_log import record_admin_entry
from accounts.models import Project
from config import secret_keys
from journal import fingerprints
from journal.entries import SYSTEM_SOURCE

LOSSES = {
    "secret_key": (
        "Everybody is signed out, and open forms must be sent again. Nothing else is lost."
    ),
    "pepper": (
        "Every agent token stops working: issue new ones. Webhooks sign with new secrets. "
        "Effects planned before can be neither dispatched nor planned again under their keys: "
        "supersede them and plan under new keys. "
        "Equal secrets before and after are marked differently. "
        "On PostgreSQL run `manage.py setup` as the owner of the tables. "
        "Everything recorded stays readable."
    ),
}


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Replace a lost key by the one in use, or by a new one, and list what is lost with it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", choices=fingerprints.KEY_NAMES)
        parser.add_argument(
            "--accept-loss", action="store_true", help="do it; without this the loss is only listed"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        name: str = options["key"]
        if name not in fingerprints.load_fingerprints():
            raise CommandError("Nothing is set up in this database. Run `manage.py setup`.")
        if name not in fingerprints.find_changed_keys():
            raise CommandError(
                f"The database was written with the key {name} in use; nothing to replace. "
                f"To use another key, set {secret_keys.KEY_VARIABLES[name]}, "
                f"or move {settings.VAR_DIR / 'keys' / name} away, and run this again."
            )
        if not options["accept_loss"]:
            raise CommandError(f"{LOSSES[name]} To continue, add --accept-loss.")
        if name in settings.GATEBOOK_NEW_KEYS:
            secret_keys.store_key(settings.VAR_DIR / "keys", name, settings.GATEBOOK_NEW_KEYS[name])
        with transaction.atomic(durable=True):
            fingerprints.replace_fingerprint(name)
            for project in Project.objects.order_by("created_at"):
                facts = {"key": name}
                record_admin_entry(
                    project.id,
                    "admin.key_replaced",
                    actor=SYSTEM_SOURCE,
                    subject=None,
                    facts=facts,
                    words=facts,
                )
        self.stdout.write(
            f"The key {name} is replaced. {LOSSES[name]} Restart Gatebook on every node."
        )
