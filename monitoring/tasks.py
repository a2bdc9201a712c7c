"""Celery tasks of the stuck rules and of the counts; `manage.py` has a command for each."""

from celery import shared_task

from monitoring import effect_hours
from monitoring.stuck import sweeper


@shared_task
def sweep_stuck() -> int:
    """Evaluate every stuck rule once; return the number of transitions recorded."""
    done = sweeper.sweep_stuck()
    return done.raised + done.cleared


@shared_task
def count_effect_hours() -> int:
    """Count new effects by hour; return the journal position reached."""
    return effect_hours.count_effect_hours(effect_hours.RUN_LIMIT_S)
