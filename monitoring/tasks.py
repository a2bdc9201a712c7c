"""Celery task of the stuck rules; `manage.py sweep_stuck` does the same."""

from celery import shared_task

from monitoring.stuck import sweeper


@shared_task
def sweep_stuck() -> int:
    """Evaluate every stuck rule once; return the number of transitions recorded."""
    done = sweeper.sweep_stuck()
    return done.raised + done.cleared
