"""Django app config."""

from django.apps import AppConfig


class IngestConfig(AppConfig):
    name = "ingest"
    label = "ingest"

    def ready(self) -> None:
        from ingest import redaction
        from inquiry import looks

        looks.clean_with(redaction.clean_search)
