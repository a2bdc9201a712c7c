"""The agents' HTTP API."""

from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "api"
    label = "api"

    def ready(self) -> None:
        """Redact secrets from recorded searches."""
        from display import access_log

        access_log.register_query_cleaner("api.redaction.redact.redact_search")
