"""Celery's door to the watch over stuck sessions; `manage.py sweep` does the same."""

from celery import shared_task

from inquiry.stuck import sweeper


@shared_task
def sweep() -> int:
    """Evaluate every rule once; returns how many transitions were recorded."""
    done = sweeper.sweep()
    return done.raised + done.cleared
