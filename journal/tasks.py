"""Celery tasks of the journal; each is also a management command."""

import structlog
from celery import shared_task

from journal import beating, outbox
from journal.models import Outbox

log = structlog.get_logger("gatebook.notice")


def tell_operator(row: Outbox) -> None:
    """Log a violation or conflict for operators: one structured line with ids only."""
    log.warning(
        row.topic,
        project=str(row.project),
        entry=row.entry_id,
        deduplication_key=row.deduplication_key,
    )


outbox.register("integrity", tell_operator)


@shared_task
@beating.watched("outbox")
def deliver_outbox() -> int:
    """Send all due rows of the outbox."""
    return outbox.deliver_due()
