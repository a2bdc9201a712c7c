"""Django configuration of the ledger app."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """Registers the ledger's database triggers, and stops for the project status."""

    name = "ledger"
    label = "ledger"

    def ready(self) -> None:
        """Register triggers for installation, and the stop queries of the page header."""
        from journal import triggers
        from ledger import holds, laws_of_bundles
        from ledger.triggers import LAW
        from sessions import standing

        triggers.guard(LAW)
        triggers.guard(laws_of_bundles.LAW)
        standing.tell(has_stops=holds.any_in, is_stopped=holds.of_all)
