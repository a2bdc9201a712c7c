"""Lets people hear of what was raised or cleared: the outbox hands it over at least once, each with its key."""

import structlog

from journal.models import Entry, Outbox

log = structlog.get_logger("gatebook.notice")


def tell(row: Outbox) -> None:
    """Say it where an operator looks: one structured log line, ids only."""
    entry = Entry.objects.only("kind", "session", "subject", "facts").get(position=row.entry_id)
    log.warning(
        entry.kind,
        project=str(row.project),
        entry=row.entry_id,
        session=str(entry.session) if entry.session else None,
        subject=str(entry.subject),
        facts=entry.facts,
        deduplication_key=row.deduplication_key,
    )
