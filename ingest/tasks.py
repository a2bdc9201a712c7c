"""Celery tasks of the API. Each is also a management command."""

from celery import shared_task

from ingest import answers
from journal import beating
from journal.clock import now_us
from sessions import artifacts, beats


@shared_task
@beating.watched("pruning")
def prune_answers() -> int:
    """Delete old stored responses, files of aborted uploads and old heartbeats."""
    return answers.prune() + artifacts.remove_abandoned(now_us()) + beats.prune()
