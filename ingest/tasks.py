"""Celery's doors to the chores of the agents' door; each is also a management command."""

from celery import shared_task

from ingest import answers
from journal import beating
from journal.clock import now_us
from sessions import artifacts, beats


@shared_task
@beating.watched("pruning")
def prune_answers() -> int:
    """Delete stored answers that are old enough, what uploads that broke off left on the disk, and counted beats."""
    return answers.prune() + artifacts.remove_abandoned(now_us()) + beats.prune()
