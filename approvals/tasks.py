"""Celery tasks of gates and notifications; the management commands call them too."""

from celery import shared_task

from approvals import exemptions
from approvals.gates import gates
from db import jobs


@shared_task
@jobs.record_run("gates")
def expire_gates() -> int:
    """Record every passed deadline of gates and exemptions."""
    return gates.expire_due_gates() + exemptions.expire_exemptions()
