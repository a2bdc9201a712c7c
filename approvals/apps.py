"""Policies, gates, votes and exemptions."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    name = "approvals"
    label = "approvals"

    def ready(self) -> None:
        """Register triggers and what the page header shows of approvals."""
        from accounts import header_counts as accounts_project_status
        from approvals.approval_guards import APPROVAL_GUARDS
        from approvals.triggers import APPROVAL_TRIGGERS
        from db import triggers

        triggers.register_triggers(APPROVAL_TRIGGERS)
        triggers.register_triggers(APPROVAL_GUARDS)
        accounts_project_status.register_status_columns(
            waits="approvals.pending_counts.build_pending_gates_subquery",
            mode="approvals.pending_counts.build_mode_subquery",
        )
