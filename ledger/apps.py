"""Effects and attempts."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class LedgerConfig(AppConfig):
    name = "ledger"
    label = "ledger"

    def ready(self) -> None:
        """Register triggers, the stops of the page header, and SQLite's planner statistics."""
        from accounts import header_counts
        from db import triggers
        from db.sqlite import planner_statistics
        from ledger import control_guards
        from ledger import triggers as ledger_triggers
        from ledger.names.used_names import USED_NAME_TRIGGERS
        from ledger.triggers import ATTEMPT_TRIGGERS

        triggers.register_triggers(ATTEMPT_TRIGGERS)
        triggers.register_triggers(ledger_triggers.IMPORTED_EFFECT_TRIGGERS)
        triggers.register_triggers(USED_NAME_TRIGGERS)
        triggers.register_triggers(control_guards.CONTROL_GUARDS)
        header_counts.register_status_columns(
            has_stops="ledger.stops.has_stops", is_stopped="ledger.stops.is_project_stopped"
        )
        post_migrate.connect(
            planner_statistics.write_planner_statistics,
            sender=self,
            dispatch_uid="db.sqlite.planner_statistics",
        )
