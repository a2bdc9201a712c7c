"""Celery tasks of the journal; each is also a management command."""

from celery import shared_task

from db import jobs
from journal import outbox


@shared_task
@jobs.record_run("outbox")
def deliver_outbox() -> int:
    """Send all due rows of the outbox."""
    return outbox.deliver_due()
