"""Celery's doors to the chores of this room; for each there is a command of `manage.py` that does the same."""

from celery import shared_task

from inquiry import alerting, exports
from inquiry.stuck import sweeper
from inquiry.words import indexing


@shared_task
def sweep() -> int:
    """Evaluate every rule once; returns how many transitions were recorded."""
    done = sweeper.sweep()
    return done.raised + done.cleared


@shared_task
def index_words() -> int:
    """Read on in the journal for a moment; returns how many effects' words were written."""
    return indexing.index(indexing.MOMENT_S).effects


@shared_task
def watch_questions() -> int:
    """Ask saved queries whose alerts are on; returns how many of them told of something new."""
    return alerting.run().told


@shared_task
def run_exports() -> int:
    """Make the exports that people wait for; returns how many were finished."""
    return exports.run()
