"""Celery's doors to the chores of the agents' door; each is also a management command."""

from celery import shared_task

from ingest import answers


@shared_task
def prune_answers() -> int:
    """Delete stored answers that are old enough."""
    return answers.prune()
