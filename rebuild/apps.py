"""Django configuration of the rebuild app. It has no tables."""

from django.apps import AppConfig


class RebuildConfig(AppConfig):
    name = "rebuild"
    label = "rebuild"

    def ready(self) -> None:
        """Register the checks of rows."""
        from rebuild import checks

        checks.register_row_checks()
