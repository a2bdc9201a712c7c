"""Celery tasks of this app. Each has a `manage.py` command that does the same."""

from celery import shared_task

from ledger.names import name_index


@shared_task
def update_name_index() -> int:
    """Read the names of new plans for a few seconds; return the number of plans read."""
    return name_index.index_names(name_index.RUN_LIMIT_S)
