"""The room ledger: its name and label for Django."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "ledger"
    label = "ledger"
