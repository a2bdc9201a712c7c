"""Django configuration of the journal app."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class JournalConfig(AppConfig):
    """Keeps the database triggers installed after every migration and flush."""

    name = "journal"
    label = "journal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Reinstall triggers after migrations, which may rebuild a table without them."""
        from db import triggers
        from journal.outbox_guards import OUTBOX_GUARDS

        triggers.register_triggers(OUTBOX_GUARDS)
        post_migrate.connect(
            triggers.install_after_migrate, sender=self, dispatch_uid="db.triggers"
        )
