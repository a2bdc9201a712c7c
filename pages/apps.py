"""Session, effect, timeline, compare and journal pages."""

from django.apps import AppConfig


class PagesConfig(AppConfig):
    name = "pages"
    label = "pages"
