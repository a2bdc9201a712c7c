"""Django app of the configuration: system checks and commands. No tables."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"
    label = "config"

    def ready(self) -> None:
        from config import checks

        checks.register_checks()
