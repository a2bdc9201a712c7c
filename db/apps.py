"""Database plumbing without product tables."""

from django.apps import AppConfig


class DbConfig(AppConfig):
    name = "db"
    label = "db"
