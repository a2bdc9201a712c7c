"""Import of recorded trajectories, bundles and message files."""

from django.apps import AppConfig


class ImportersConfig(AppConfig):
    name = "importers"
    label = "importers"
