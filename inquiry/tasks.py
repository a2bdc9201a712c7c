"""Celery tasks of this app. Each has a `manage.py` command that does the same."""

from celery import shared_task

from inquiry import alerting, exports
from inquiry.stuck import sweeper
from inquiry.words import indexing


@shared_task
def sweep() -> int:
    """Evaluate every stuck rule once; return the number of transitions recorded."""
    done = sweeper.sweep()
    return done.raised + done.cleared


@shared_task
def index_words() -> int:
    """Update the full-text index for a few seconds; return the number of effects indexed."""
    return indexing.index(indexing.MOMENT_S).effects


@shared_task
def watch_questions() -> int:
    """Evaluate saved-query alerts; return how many reported new matches."""
    return alerting.run().told


@shared_task
def run_exports() -> int:
    """Write the waiting exports; return how many finished."""
    return exports.run()
