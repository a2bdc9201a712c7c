"""Celery tasks of gates and notifications; the management commands call them too."""

from celery import shared_task

from approvals import deadlines, exemptions, notices
from journal import beating


@shared_task
def send_notices() -> int:
    """Send the notifications that are due."""
    return notices.send_due()


@shared_task
@beating.watched("gates")
def sweep_gates() -> int:
    """Record every passed deadline of gates and exemptions."""
    return deadlines.sweep() + exemptions.sweep()
