"""Django configuration of the rebuild app. It has no tables."""

from django.apps import AppConfig


class RebuildConfig(AppConfig):
    name = "rebuild"
    label = "rebuild"
