"""The room approvals: its name and label for Django."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Adds the laws of gates and votes to the triggers that every database of Gatebook must have."""

    name = "approvals"
    label = "approvals"

    def ready(self) -> None:
        """Tell the journal's installer, which runs after every migration, about this room's triggers."""
        from approvals.laws import LAW
        from journal import triggers

        triggers.guard(LAW)
