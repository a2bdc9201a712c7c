"""Celery tasks of this app. Each has a `manage.py` command that does the same."""

from celery import shared_task

from erasure import erasure_runner


@shared_task
def run_erasures() -> int:
    """Continue erasures for about two seconds; return how many requests moved on."""
    return erasure_runner.run_erasures(erasure_runner.RUN_LIMIT_S)
