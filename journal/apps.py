"""The ground floor of the house: knows no session and no effect."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class JournalConfig(AppConfig):
    """Keeps the triggers of the law in place after every migration and flush."""

    name = "journal"
    label = "journal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Install the triggers whenever a migration may have rebuilt (and so stripped) a table."""
        from journal import triggers

        post_migrate.connect(
            triggers.install_after_migrate, sender=self, dispatch_uid="journal.triggers"
        )
