"""Sealing of the journal, tree heads and proofs."""

from django.apps import AppConfig


class ProofsConfig(AppConfig):
    name = "proofs"
    label = "proofs"

    def ready(self) -> None:
        """Register the triggers that keep the seal append-only, and the position of pages."""
        from accounts import header_counts
        from db import triggers
        from proofs.anchors.anchor_triggers import ANCHOR_TRIGGERS
        from proofs.seal_triggers import SEAL_TRIGGERS

        triggers.register_triggers(SEAL_TRIGGERS)
        triggers.register_triggers(ANCHOR_TRIGGERS)
        header_counts.register_status_columns(
            position="proofs.stable_position.stable_position_column"
        )
