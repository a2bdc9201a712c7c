"""The append-only rules on SQLite: every way of replacing a row, and other programs on the file."""

import sqlite3
from contextlib import closing

import pytest
from django.db import IntegrityError, connection, transaction

from db import triggers
from journal import entries
from tests.journal.attacks import attack, everything, history
from tests.journal.drafts import NOW_US, draft, new_project

STATEMENTS = [
    "UPDATE OR REPLACE journal_entry SET position = {first} + 1 WHERE position = {first}",
    "UPDATE OR REPLACE journal_body SET text = '{{}}'",
    "UPDATE OR IGNORE journal_entry SET kind = 'effect.superseded'",
    "UPDATE OR REPLACE journal_erasure SET reason = 'another'",
    "UPDATE journal_entry SET kind = 'a.b' WHERE rowid = {first}",
    "DELETE FROM journal_entry WHERE rowid = {first}",
]
REPLACING = ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE"]
recursive_triggers = pytest.mark.parametrize("recursive", ["ON", "OFF"])


@pytest.mark.django_db
@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_statement_changes_what_was_written(statement: str) -> None:
    first = history()
    before = everything()
    assert "the journal is append-only" in attack(statement.format(first=first))
    assert everything() == before


@pytest.mark.django_db
@pytest.mark.parametrize("table", triggers.APPEND_ONLY_TABLES)
@pytest.mark.parametrize("verb", REPLACING)
@recursive_triggers
def test_nothing_is_replaced(table: str, verb: str, recursive: str) -> None:
    history()
    before = everything()
    forged = {"kind": "'forged.kind'", "text": "'forged'", "reason": "'forged'"}
    changes = [forged]
    if (
        table == "journal_entry"
    ):  # the same key under a new position, and the same position under a new key
        changes += [{**forged, "position": "position + 1000"}, {**forged, "id": "id || '-new'"}]
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA recursive_triggers = {recursive}")
            cursor.execute(f"SELECT * FROM {table} LIMIT 0")
            columns = [column[0] for column in cursor.description]
        for change in changes:
            values = ", ".join(change.get(column, column) for column in columns)
            outcome = attack(f"{verb} INTO {table} SELECT {values} FROM {table} WHERE true")
            # An entry with a key that is stored is skipped, like an erasure; all else is refused.
            is_skipped = table == "journal_erasure" or (
                table == "journal_entry" and "id" not in change
            )
            assert ("has a row of this position" in outcome) is not is_skipped
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA recursive_triggers = ON")
    assert everything() == before


@recursive_triggers
def test_a_plain_connection_to_the_file_is_refused_too(committed: None, recursive: str) -> None:
    """The triggers are in the file: they bind every program that opens it, whatever its settings."""
    with transaction.atomic():
        position = entries.append_entries([draft("a", project=new_project())], NOW_US)[0].position
    with closing(
        sqlite3.connect(str(connection.settings_dict["NAME"]), timeout=5, isolation_level=None)
    ) as plain:
        plain.execute(f"PRAGMA recursive_triggers = {recursive}")
        plain.execute("PRAGMA foreign_keys = OFF")
        before = _rows(plain)
        for statement in (
            "UPDATE journal_entry SET kind = 'a.b'",
            "DELETE FROM journal_entry",
            "DELETE FROM journal_body",
            "UPDATE OR REPLACE journal_body SET text = 'forged'",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                plain.execute(statement)
        for verb in ("INSERT OR REPLACE", "REPLACE"):
            with pytest.raises(sqlite3.IntegrityError, match="has a row of this position"):
                plain.execute(
                    f"{verb} INTO journal_body (entry_id, salt, text)"
                    " VALUES (?, zeroblob(32), 'x')",
                    [position],
                )
            plain.execute(
                f"{verb} INTO journal_entry (position, project, source, claimed_source, id, kind, "
                "actor, lane,"
                " received_us, facts, schema_version) SELECT position, project, source, '', id, "
                "'a.b', actor, lane,"
                " received_us, facts, 1 FROM journal_entry"
            )
        assert _rows(plain) == before


def _rows(plain: sqlite3.Connection) -> list[list[tuple[object, ...]]]:
    return [
        plain.execute(f"SELECT * FROM {table}").fetchall() for table in triggers.APPEND_ONLY_TABLES
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("planted", ["body", "entry"])
def test_no_entry_is_skipped_where_somebody_put_a_row_at_its_position(planted: str) -> None:
    """The owner of the database writes ahead of the journal; the next writer learns of it."""
    history()
    project = new_project()
    with connection.cursor() as cursor, connection.constraint_checks_disabled():
        cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = 'journal_entry'")
        next_position = cursor.fetchone()[0] + 1
        if planted == "body":
            cursor.execute(
                "INSERT INTO journal_body (entry_id, salt, text) VALUES (%s, zeroblob(32), '{}')",
                [next_position],
            )
        else:
            cursor.execute(
                "INSERT INTO journal_entry (position, project, source, claimed_source, id, kind,"
                " actor, lane, received_us, facts, schema_version) SELECT %s, project, source, '',"
                " 'planted', 'a.b', actor, lane, received_us, facts, 1 FROM journal_entry LIMIT 1",
                [next_position],
            )
            cursor.execute("UPDATE sqlite_sequence SET seq = seq - 1 WHERE name = 'journal_entry'")
    before = everything()
    for drafts in ([draft("a", project=project)], [draft(name, project=project) for name in "ab"]):
        with (
            pytest.raises(IntegrityError, match="has a row of this position"),
            transaction.atomic(),
        ):
            entries.append_entries(drafts, NOW_US)
    assert everything() == before
    with triggers.suspend_triggers(connection, ["journal_body"]), connection.cursor() as cursor:
        cursor.execute("DELETE FROM journal_body WHERE entry_id = %s", [next_position])
