"""Plain SQL follows Django's transactions and errors, with equal values on both databases."""

import pytest
from django.db import IntegrityError, transaction
from django.db.transaction import TransactionManagementError

from db import raw_sql
from db.raw_sql import vendor_id
from journal import entries
from journal.models import Entry
from tests.journal.drafts import NOW_US, draft, new_project

pytestmark = pytest.mark.django_db
PROJECT = new_project()
FIND = "SELECT attempt, lease_epoch FROM journal_entry WHERE project = %s AND received_us = %s AND session IS NULL"


@pytest.mark.parametrize("number", [1, 40_000, 2**40, None])
def test_numbers_of_every_size_and_none_are_kept_and_found(number: int | None) -> None:
    entries.append_entries([draft("one", project=PROJECT, attempt=1, lease_epoch=number)], NOW_US)
    assert raw_sql.fetch_rows(FIND, [vendor_id(PROJECT), NOW_US]) == [(1, number)]


def test_an_error_is_djangos_and_spoils_the_transaction_as_djangos_does() -> None:
    entries.append_entries([draft("one", project=PROJECT)], NOW_US)
    position = Entry.objects.get(project=PROJECT).position
    body = "INSERT INTO journal_body (entry_id, salt, text) VALUES (%s, %s, %s)"
    with pytest.raises(IntegrityError), transaction.atomic():
        raw_sql.execute_write(body, [position + 1, b"short", "again"])
    assert raw_sql.fetch_rows(FIND, [vendor_id(PROJECT), NOW_US]) == [(None, None)]
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            raw_sql.execute_write(body, [position + 1, b"short", "again"])


def test_written_rows_follow_the_transaction_and_are_counted() -> None:
    with transaction.atomic():
        entries.append_entries([draft("one", project=PROJECT)], NOW_US)
        transaction.set_rollback(True)
    assert raw_sql.fetch_rows(FIND, [vendor_id(PROJECT), NOW_US]) == []
    entries.append_entries([draft("one", project=PROJECT), draft("two", project=PROJECT)], NOW_US)
    put = "INSERT INTO journal_outbox (project, entry_id, topic, deduplication_key, due_at_us, tries, last_error)"
    put += " SELECT project, position, %s, id, received_us, 0, '' FROM journal_entry WHERE project = %s"
    assert raw_sql.execute_write(put, ["integrity", vendor_id(PROJECT)]) == 2
