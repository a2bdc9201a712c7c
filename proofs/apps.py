"""Sealing of the journal, tree heads and proofs."""

from django.apps import AppConfig


class ProofsConfig(AppConfig):
    name = "proofs"
    label = "proofs"

    def ready(self) -> None:
        """Register the triggers that keep the seal append-only."""
        from db import triggers
        from proofs.anchors.anchor_triggers import ANCHOR_TRIGGERS
        from proofs.seal_triggers import SEAL_TRIGGERS

        triggers.register_triggers(SEAL_TRIGGERS)
        triggers.register_triggers(ANCHOR_TRIGGERS)
