"""Celery tasks of this app. Each has a `manage.py` command that does the same."""

from celery import shared_task

from investigation.alerts import alert_runner
from investigation.exports import exports
from investigation.fulltext import indexer


@shared_task
def update_search_index() -> int:
    """Update the full-text index for a few seconds; return the number of effects indexed."""
    return indexer.update_index(indexer.RUN_LIMIT_S).effects


@shared_task
def run_alerts() -> int:
    """Evaluate saved-query alerts; return how many reported new matches."""
    return alert_runner.run_alerts().notified


@shared_task
def run_exports() -> int:
    """Write the waiting exports; return how many finished."""
    return exports.run_exports()
