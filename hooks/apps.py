"""Hooks that coding agents and code hosts call."""

from django.apps import AppConfig


class HooksConfig(AppConfig):
    name = "hooks"
    label = "hooks"

    def ready(self) -> None:
        """Register the triggers of deliveries, and the comparison of events."""
        from db import triggers
        from hooks.setting_guards import SETTING_GUARDS
        from hooks.triggers import DELIVERY_TRIGGERS
        from journal import outbox

        triggers.register_triggers(DELIVERY_TRIGGERS)
        triggers.register_triggers(SETTING_GUARDS)
        outbox.register_sender(
            "code_host.event", "hooks.code_hosts.host_events.compare_queued_event"
        )
