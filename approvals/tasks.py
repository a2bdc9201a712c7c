"""Celery's door to the notices; `manage.py send_notices` does the same."""

from celery import shared_task

from approvals import notices


@shared_task
def send_notices() -> int:
    """Tell whoever is to be told by now."""
    return notices.send_due()
