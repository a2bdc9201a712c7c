"""Spans of OpenTelemetry, taken as evidence."""

from django.apps import AppConfig


class TracesConfig(AppConfig):
    name = "traces"
    label = "traces"
