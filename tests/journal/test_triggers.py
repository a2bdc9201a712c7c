"""The triggers of the journal: missing ones are detected, and recreated after a table rebuild."""

from collections.abc import Iterator
from itertools import zip_longest

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, migrations, models, transaction
from django.db.migrations.state import ProjectState

from db import triggers
from journal import entries
from journal.models import Entry
from tests.journal.drafts import NOW_US, draft, new_project

PROJECT = new_project()


def _every_name() -> list[str]:
    with transaction.atomic():
        triggers.drop_for_test_flush(connection)
        names = triggers.find_missing_triggers(connection)
        transaction.set_rollback(True)
    return names


@pytest.mark.django_db
def test_a_migrated_database_has_all_triggers() -> None:
    assert triggers.find_missing_triggers(connection) == []
    assert _every_name() == list(triggers.trigger_tables(connection))
    assert set(triggers.trigger_tables(connection).values()) >= {
        *triggers.APPEND_ONLY_TABLES,
        "ledger_attempt",
    }


@pytest.mark.django_db
def test_each_dropped_trigger_is_reported_by_name_and_recreated() -> None:
    names_by_table: dict[str, list[str]] = {}
    for name, table in triggers.trigger_tables(connection).items():
        names_by_table.setdefault(table, []).append(name)
    # One trigger of every table at a time.
    for names in zip_longest(*names_by_table.values()):
        dropped = [name for name in names if name is not None]
        with connection.cursor() as cursor:
            for table, name in zip(names_by_table, names, strict=True):
                if name is not None:
                    on_table = f" ON {table}" if connection.vendor == "postgresql" else ""
                    cursor.execute(f"DROP TRIGGER {name}{on_table}")
        assert sorted(triggers.find_missing_triggers(connection)) == sorted(dropped)
        triggers.install_triggers(connection)
        assert triggers.find_missing_triggers(connection) == []


@pytest.mark.django_db
@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="on PostgreSQL the function has its definition"
)
def test_an_empty_trigger_of_the_same_name_is_missing_and_is_recreated() -> None:
    name = "journal_entry_never_changes"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER {name}")
        cursor.execute(
            f"CREATE TRIGGER {name} BEFORE UPDATE ON journal_entry WHEN 0 BEGIN SELECT 1; END"
        )
    assert triggers.find_missing_triggers(connection) == [name]
    triggers.install_triggers(connection)
    assert triggers.find_missing_triggers(connection) == []


@pytest.mark.django_db
def test_nothing_is_installed_before_the_tables_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.introspection, "table_names", lambda: ["auth_user"])
    with transaction.atomic():
        triggers.drop_for_test_flush(connection)
        triggers.install_triggers(connection)
        assert triggers.find_missing_triggers(connection) == _every_name()
        transaction.set_rollback(True)


class _Later(migrations.Migration):
    """A later migration that adds a constraint, for which SQLite rebuilds the table."""

    operations = [
        migrations.AddConstraint(
            "entry",
            models.CheckConstraint(
                condition=models.Q(attempt__gte=0), name="entry_attempt_is_counted"
            ),
        )
    ]


@pytest.fixture
def later(committed: None) -> Iterator[_Later]:
    """Apply the later migration and revert it afterwards."""
    migration = _Later("0002_later", "journal")
    yield migration
    before = _state()
    after = before.clone()
    migration.mutate_state(after)
    with connection.schema_editor() as editor:
        migration.unapply(before, editor)
    call_command("migrate", verbosity=0)


def _state() -> ProjectState:
    from django.db.migrations.loader import MigrationLoader

    return MigrationLoader(connection).project_state()


def test_a_later_migration_that_rebuilds_a_table_keeps_the_triggers(later: _Later) -> None:
    with transaction.atomic():
        entries.append_entries([draft("a", project=PROJECT)], NOW_US)
    with connection.schema_editor() as editor:
        later.apply(_state(), editor)
    if connection.vendor == "sqlite":
        assert "journal_entry_never_changes" in triggers.find_missing_triggers(connection), (
            "the trap this test is about"
        )
    call_command("migrate", verbosity=0)
    assert triggers.find_missing_triggers(connection) == []
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        Entry.objects.update(kind="a.b")
    assert Entry.objects.get(project=PROJECT).kind == "fact.observed"


def test_a_flush_keeps_the_triggers(committed: None) -> None:
    triggers.drop_for_test_flush(connection)
    assert triggers.find_missing_triggers(connection) != []
    # Restored rows of other tests have positions that must not be used again.
    call_command("flush", verbosity=0, interactive=False, reset_sequences=False)
    assert triggers.find_missing_triggers(connection) == []


def test_a_flush_without_that_is_refused(committed: None) -> None:
    with transaction.atomic():
        entries.append_entries([draft("a", project=PROJECT)], NOW_US)
    with pytest.raises(Exception, match=r"append-only|couldn't be flushed"):
        call_command("flush", verbosity=0, interactive=False)
    assert Entry.objects.filter(project=PROJECT).exists()
