"""How far the journal can be read, also after a dump was restored into another cluster."""

import pytest
from django.db import connection

from journal import entries
from journal.settled_position import load_settled_position
from tests.journal.drafts import draft, new_project

pytestmark = pytest.mark.django_db


def test_entries_of_this_transaction_are_settled_only_with_one_writer() -> None:
    before = load_settled_position()
    (written,) = entries.append_entries([draft("one", project=new_project())], 1)
    assert load_settled_position() == (
        written.position if connection.vendor == "sqlite" else before
    )


def test_an_entry_from_a_restored_backup_is_settled() -> None:
    if connection.vendor == "sqlite":
        return  # its entries have no transaction id
    (written,) = entries.append_entries([draft("one", project=new_project())], 1)
    same = "project, source, claimed_source, kind, actor, lane, received_us, facts, schema_version"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO journal_entry ({same}, id, txid)"
            f" SELECT {same}, 'restored', '9223372036854775807' FROM journal_entry WHERE position "
            "= %s"
            " RETURNING position",
            [written.position],
        )
        (restored,) = cursor.fetchone()
    assert load_settled_position() == restored
