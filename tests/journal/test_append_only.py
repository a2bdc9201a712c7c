"""The append-only rules under attack by SQL: entries, bodies and erasures never change.

Statements of only one database are in test_triggers_on_sqlite.py and
test_triggers_on_postgresql.py.
"""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from journal import entries
from journal.models import Body, Entry, Erasure
from tests.journal.attacks import attack, everything, history
from tests.journal.drafts import NOW_US, draft, new_project

pytestmark = pytest.mark.django_db

STATEMENTS = [
    "UPDATE journal_entry SET kind = 'effect.superseded'",
    "UPDATE journal_entry SET received_us = received_us + 1 WHERE position = {first}",
    "UPDATE journal_entry SET position = position + 1000",
    "UPDATE journal_entry SET kind = kind",
    "UPDATE journal_body SET text = '{{}}'",
    "UPDATE journal_body SET salt = salt WHERE entry_id = {first}",
    "UPDATE journal_body SET entry_id = {first} + 1 WHERE entry_id = {first}",
    "UPDATE journal_erasure SET reason = 'another'",
    "DELETE FROM journal_body",
    "DELETE FROM journal_body WHERE entry_id = {first}",
    "DELETE FROM journal_erasure",
    "DELETE FROM journal_entry",
    "DELETE FROM journal_entry WHERE id = 'b'",
    "INSERT INTO journal_erasure (entry_id, project, reason, actor, erased_at_us)"
    " SELECT entry_id, project, 'another', actor, erased_at_us FROM journal_erasure WHERE true"
    " ON CONFLICT (entry_id) DO UPDATE SET reason = excluded.reason",
    "INSERT INTO journal_body (entry_id, salt, text) SELECT entry_id, salt, 'forged' FROM "
    "journal_body WHERE true"
    " ON CONFLICT (entry_id) DO UPDATE SET text = excluded.text",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_statement_changes_what_was_written(statement: str) -> None:
    first = history()
    before = everything()
    refusal = attack(statement.format(first=first))
    assert everything() == before
    # SQLite ignores an insert that conflicts with an existing row; the rest is refused with an
    # error.
    passed_over = statement.startswith("INSERT") and connection.vendor == "sqlite"
    assert "the journal is append-only" in refusal or passed_over


@pytest.mark.parametrize(
    "write",
    [
        lambda: Entry.objects.update(kind="a.b"),
        lambda: Entry.objects.all().delete(),
        lambda: Body.objects.update(text=""),
        lambda: Body.objects.all().delete(),
        lambda: Erasure.objects.update(reason="another"),
        lambda: Erasure.objects.all().delete(),
        lambda: Entry.objects.all()[0].save(),
        lambda: Body.objects.all()[0].save(force_update=True),
    ],
    ids=[
        *("update entries", "delete entries", "update bodies", "delete bodies"),
        *("update erasures", "delete erasures", "save an entry", "save a body"),
    ],
)
def test_the_orm_is_refused_too(write: Any) -> None:
    history()
    before = everything()
    with pytest.raises(DatabaseError), transaction.atomic():
        write()
    assert everything() == before


def test_appending_still_works_with_all_triggers() -> None:
    first = history()
    assert entries.append_entries([draft("c", project=new_project())], NOW_US)[0].position > first
