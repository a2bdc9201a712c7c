"""Erasure of what is recorded about a person, about words, or in a session."""

from django.apps import AppConfig


class ErasureConfig(AppConfig):
    name = "erasure"
    label = "erasure"

    def ready(self) -> None:
        """Register the triggers of requests."""
        from db import triggers
        from erasure.request_guards import REQUEST_GUARDS
        from erasure.triggers import ERASURE_REQUEST_TRIGGERS

        triggers.register_triggers(ERASURE_REQUEST_TRIGGERS)
        triggers.register_triggers(REQUEST_GUARDS)
