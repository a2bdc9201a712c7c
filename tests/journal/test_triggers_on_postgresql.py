"""The append-only rules on PostgreSQL: its own statements, and triggers that exist but do not fire."""

import re

import pytest
from django.db import DatabaseError, connection, transaction

from db import triggers
from tests.journal.attacks import attack, everything, history

pytestmark = pytest.mark.django_db

STATEMENTS = [
    *(f"TRUNCATE {table} CASCADE" for table in triggers.APPEND_ONLY_TABLES),
    "TRUNCATE journal_outbox, journal_body, journal_erasure, journal_entry",
    "WITH gone AS (DELETE FROM journal_erasure RETURNING 1) SELECT count(*) FROM gone",
    "DELETE FROM journal_body USING journal_entry WHERE entry_id = position",
    "UPDATE ONLY journal_entry SET kind = kind",
    "UPDATE journal_entry SET txid = '1'",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_statement_changes_what_was_written(statement: str) -> None:
    history()
    before = everything()
    # The outbox, which one statement names too, refuses in its own words.
    assert re.search("the journal is append-only|its rows follow the journal", attack(statement))
    assert everything() == before


def test_merge_changes_nothing_where_the_server_knows_it() -> None:
    history()
    before = everything()
    refusal = attack(
        "MERGE INTO journal_body USING journal_entry ON entry_id = position"
        " WHEN MATCHED THEN UPDATE SET text = 'forged'"
    )
    assert refusal
    assert everything() == before


@pytest.mark.parametrize("how", ["DISABLE TRIGGER", "ENABLE REPLICA TRIGGER"])
def test_a_trigger_that_does_not_fire_counts_as_missing(how: str) -> None:
    position = history()
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE journal_body {how} journal_body_never_changes")
    assert triggers.find_missing_triggers(connection) == ["journal_body_never_changes"]
    triggers.install_triggers(connection)
    assert triggers.find_missing_triggers(connection) == []
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("DELETE FROM journal_body WHERE entry_id = %s", [position])


def test_a_trigger_of_that_name_on_another_table_does_not_pass_for_it() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER journal_entry_never_changes ON journal_entry")
        cursor.execute(
            "CREATE TRIGGER journal_entry_never_changes BEFORE UPDATE ON journal_outbox"
            " FOR EACH ROW EXECUTE FUNCTION journal_refuse_change()"
        )
    assert triggers.find_missing_triggers(connection) == ["journal_entry_never_changes"]


def test_a_temporary_table_does_not_pass_for_the_record_of_erasures() -> None:
    """PostgreSQL resolves unqualified names among the temporary tables of a connection first."""
    position = history()
    before = everything()
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE journal_erasure (entry_id bigint) ON COMMIT DROP")
        cursor.execute("INSERT INTO pg_temp.journal_erasure VALUES (%s)", [position])
        assert "a body goes only after an erasure" in attack(
            f"DELETE FROM journal_body WHERE entry_id = {position}"
        )
        cursor.execute("DROP TABLE pg_temp.journal_erasure")
    assert everything() == before
