"""Celery tasks of this app. Each has a `manage.py` command that does the same."""

from celery import shared_task

from retention import expiry


@shared_task
def run_retention() -> int:
    """Count and expire for about five seconds; return how many bodies went."""
    return expiry.run_retention(expiry.RUN_LIMIT_S).bodies
