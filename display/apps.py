"""What several pages share: template tags, states, pagination, untrusted text."""

from django.apps import AppConfig


class DisplayConfig(AppConfig):
    name = "display"
    label = "display"
