"""The room ledger: its name and label for Django."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """Adds the law of attempts to the triggers that every database must have, and stops to a project's standing."""

    name = "ledger"
    label = "ledger"

    def ready(self) -> None:
        """Tell the journal's installer, which runs after every migration, and the frame of pages what it brings."""
        from journal import triggers
        from ledger import holds, laws_of_bundles
        from ledger.triggers import LAW
        from sessions import standing

        triggers.guard(LAW)
        triggers.guard(laws_of_bundles.LAW)
        standing.tell(has_stops=holds.any_in, is_stopped=holds.of_all)
