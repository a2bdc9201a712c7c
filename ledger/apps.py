"""The room ledger: its name and label for Django."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """Adds the law of attempts to the triggers that every database of Gatebook must have."""

    name = "ledger"
    label = "ledger"

    def ready(self) -> None:
        """Tell the journal's installer, which runs after every migration, about the ledger's triggers."""
        from journal import triggers
        from ledger.triggers import LAW

        triggers.guard(LAW)
