"""Celery's doors to the chores of gates; `manage.py send_notices` and `manage.py sweep_gates` do the same."""

from celery import shared_task

from approvals import deadlines, exemptions, notices
from journal import beating


@shared_task
def send_notices() -> int:
    """Tell whoever is to be told by now."""
    return notices.send_due()


@shared_task
@beating.watched("gates")
def sweep_gates() -> int:
    """Write down every deadline of gates and exemptions that has passed."""
    return deadlines.sweep() + exemptions.sweep()
