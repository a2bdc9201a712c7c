"""Celery's doors to the journal's own chores; each is also a management command."""

import structlog
from celery import shared_task

from journal import beating, outbox
from journal.models import Outbox

log = structlog.get_logger("gatebook.notice")


def tell_operator(row: Outbox) -> None:
    """Say a violation or conflict where an operator looks: one structured log line, ids only."""
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
    """Send whatever is due."""
    return outbox.deliver_due()
