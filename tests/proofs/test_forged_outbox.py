"""Nobody with the application's database role takes a notification back."""

import pytest
from django.db import connection, transaction

from journal import outbox
from journal.models import Outbox
from tests.journal.committed import committed
from tests.ledger.rows_by_hand import World
from tests.proofs.forgeries import Forgery, assert_refused

__all__ = ["committed"]


@pytest.mark.usefixtures("committed")
def test_what_is_queued_stays_queued() -> None:
    with transaction.atomic():
        world = World()
        queued, sent = world.write(Outbox), world.write(Outbox)
        another = world.write(Outbox).entry_id
    Outbox.objects.filter(pk=queued.pk).update(due_at_us=1)
    Outbox.objects.exclude(pk=queued.pk).update(sent_at_us=2, tries=1)
    update = "UPDATE journal_outbox SET {} WHERE id = %s"
    forgeries = [
        Forgery(
            "delete a queued row",
            "outbox_row_is_never_deleted",
            "DELETE FROM journal_outbox WHERE id = %s",
            (queued.pk,),
        ),
        Forgery(
            "queue another topic instead",
            "outbox_row_keeps_its_cause",
            update.format("topic = 'none'"),
            (queued.pk,),
        ),
        Forgery(
            "mark as sent without a try",
            "outbox_row_is_sent_once",
            update.format("sent_at_us = 3"),
            (queued.pk,),
        ),
        Forgery(
            "send again", "outbox_row_is_sent_once", update.format("sent_at_us = NULL"), (sent.pk,)
        ),
    ]
    assert_refused(forgeries)
    if connection.vendor == "sqlite":  # the trigger skips it, as the writer does
        columns = "project, entry_id, topic, deduplication_key, due_at_us, tries, last_error"
        values = "project, entry_id, 'none', deduplication_key, due_at_us, tries, last_error"
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA recursive_triggers = OFF")
            cursor.execute(
                f"INSERT OR REPLACE INTO journal_outbox ({columns})"
                f" SELECT {values} FROM journal_outbox"
            )
            cursor.execute("PRAGMA recursive_triggers = ON")
    delivered: list[int] = []
    assert outbox.deliver_due({queued.topic: lambda row: delivered.append(row.entry_id)}) == 1
    assert delivered == [queued.entry_id] == [another]
