"""Celery tasks of the journal; each is also a management command."""

import structlog
from celery import shared_task

from db import jobs
from journal import outbox
from journal.models import Outbox

log = structlog.get_logger("gatebook.notifications")


def log_for_operator(row: Outbox) -> None:
    """Log a violation or conflict for operators: one structured line with ids only."""
    log.warning(
        row.topic,
        project=str(row.project),
        entry=row.entry_id,
        deduplication_key=row.deduplication_key,
    )


outbox.register_sender("integrity", log_for_operator)


@shared_task
@jobs.record_run("outbox")
def deliver_outbox() -> int:
    """Send all due rows of the outbox."""
    return outbox.deliver_due()
