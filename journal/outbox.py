"""The one writer of Outbox: queues consequences of entries, sent at least once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils.module_loading import import_string

from db import raw_sql
from db.clock import now_us
from db.jobs import CLOCK_STEP_US
from db.row_changes import RowChange, write_row_changes
from db.text import to_column_text
from journal.models import Outbox

Sender = Callable[[Outbox], None]
BACKOFF_US = 30_000_000  # doubled with each attempt
MAX_DELAY_US = 3_600_000_000


_senders: dict[str, list[str]] = {}


def register_sender(topic: str, sender: str) -> None:
    """Register a Sender for `topic` by its path; upper apps call it when they are ready.

    Only a process that sends loads the module, so that other commands start faster.
    """
    senders = _senders.setdefault(topic, [])
    if sender not in senders:
        senders.append(sender)


def _to_all(row: Outbox) -> None:
    for sender in _senders[row.topic]:
        import_string(sender)(row)


def queue_delivery(
    project: UUID, *, entry: int, topic: str, deduplication_key: str, due_at_us: int
) -> None:
    """Queue `topic` for the entry at position `entry`, once per deduplication key."""
    raw_sql.execute_write(
        _PUT, [raw_sql.vendor_id(project), entry, topic, deduplication_key, due_at_us]
    )


_PUT: Final = (
    "INSERT INTO journal_outbox"
    " (project, entry_id, topic, deduplication_key, due_at_us, tries, last_error)"
    " VALUES (%s, %s, %s, %s, %s, 0, '') ON CONFLICT (project, deduplication_key) DO NOTHING"
)


def restore_deliveries(changes: Sequence[RowChange]) -> None:
    """Restore queued rows to what the journal gives (manage.py rebuild)."""
    write_row_changes(Outbox, changes)


def deliver_due(senders: Mapping[str, Sender] | None = None, *, most: int = 100) -> int:
    """Send up to `most` due rows and return how many were sent.

    A row counts as sent only after every sender of its topic returned. A crash in between sends it
    again: at least once, and receivers deduplicate by `deduplication_key`. A failed row is retried
    later, with a doubled delay each time.
    """
    sent = 0
    due = Outbox.objects.filter(due_condition(now_us()), sent_at_us__isnull=True)
    for row in list(due.order_by("due_at_us")[:most]):
        try:
            send = _to_all if senders is None else senders[row.topic]
            send(row)
        except Exception as error:  # a failing receiver must not stop the others
            due_at_us = now_us() + delivery_delay_us(row.tries + 1)
            _update(row, sent_at_us=None, due_at_us=due_at_us, last_error=_words(error))
        else:
            sent += _update(row, sent_at_us=now_us(), due_at_us=row.due_at_us, last_error="")
    return sent


def delivery_delay_us(tries: int) -> int:
    """Return the delay of a delivery after `tries` failures."""
    return min(BACKOFF_US << min(tries - 1, 10), MAX_DELAY_US) if tries else 0


def due_condition(now: int, *, claim_us: int = 0, first: Q | None = None) -> Q:
    """Return the condition of due rows, which tolerates a clock set back.

    Without the second part deliveries would pause for as long as the clock was set back.
    `claim_us` is how far a claim postpones a row. `first` limits the condition on first deliveries
    to rows that wait for nothing else.
    """
    condition = Q(due_at_us__lte=now) | Q(
        tries__gt=0, due_at_us__gt=now + max(MAX_DELAY_US, claim_us) + CLOCK_STEP_US
    )
    condition |= Q(first or Q(), tries=0, due_at_us__gt=now + CLOCK_STEP_US)
    tries = 1
    while delivery_delay_us(tries) < MAX_DELAY_US:
        condition |= Q(
            tries=tries, due_at_us__gt=now + max(delivery_delay_us(tries), claim_us) + CLOCK_STEP_US
        )
        tries += 1
    return condition


def _words(error: Exception) -> str:
    """Format an error for the column, whatever a remote put into its message."""
    return to_column_text(f"{type(error).__name__}: {error}".encode(errors="replace").decode())[
        :200
    ]


def _update(row: Outbox, **values: int | str | None) -> int:
    """Update a row unless another worker changed it first."""
    with transaction.atomic():
        return Outbox.objects.filter(pk=row.pk, sent_at_us__isnull=True, tries=row.tries).update(
            tries=row.tries + 1, **values
        )
