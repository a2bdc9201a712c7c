"""Makes the wiring an app of Django, so that it may bring system checks and the command `setup`. It has no tables."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"
    label = "config"

    def ready(self) -> None:
        from config import durability

        durability.register()
