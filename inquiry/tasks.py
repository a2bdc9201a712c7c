"""Celery's doors to the chores of this room; `manage.py sweep`, `index_words` and `run_exports` do the same."""

from celery import shared_task

from inquiry import exports
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
def run_exports() -> int:
    """Make the exports that people wait for; returns how many were finished."""
    return exports.run()
