"""The room ingest: its name and label for Django."""

from django.apps import AppConfig


class IngestConfig(AppConfig):
    name = "ingest"
    label = "ingest"
