"""Celery task of notifications; `manage.py send_notifications` does the same."""

from celery import shared_task

from notifications import notifications


@shared_task
def send_notifications() -> int:
    """Send the notifications that are due."""
    return notifications.send_due_notifications()
