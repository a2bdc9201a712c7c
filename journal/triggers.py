"""The append-only law, kept by the database itself, on both vendors.

Installed after every migration and flush, IF NOT EXISTS: on SQLite a later migration that adds a constraint rebuilds
its table and drops the table's triggers without a word. The start check refuses a database where one is missing.
"""

from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

HISTORY = ("journal_entry", "journal_body", "journal_erasure")

# Trigger name -> (table, event). One list for the installer, the start check and the tests.
_POSTGRESQL = {
    f"{table}_{event}": (table, event) for table in HISTORY for event in ("never_changes", "is_never_truncated")
}

_FUNCTIONS = """
CREATE OR REPLACE FUNCTION journal_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the journal is append-only: % on % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE FUNCTION journal_refuse_unnamed_erasure() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM journal_erasure WHERE entry_id = OLD.entry_id) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'the journal is append-only: a body goes only after an erasure names it (% on %)',
    TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
"""


def _postgresql_statement(name: str, table: str, event: str) -> str:
    if event == "is_never_truncated":
        moment = f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT"
        return f"CREATE TRIGGER {name} {moment} EXECUTE FUNCTION journal_refuse_change()"
    function = "journal_refuse_unnamed_erasure" if table == "journal_body" else "journal_refuse_change"
    return f"CREATE TRIGGER {name} BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {function}()"


# INSERT OR REPLACE would overwrite a row past the DELETE trigger on any connection without recursive_triggers, so an
# insert that meets an existing row is skipped (RAISE(IGNORE)): ON CONFLICT DO NOTHING behaves as ever, REPLACE does
# nothing.
_SQLITE = {
    "journal_entry_never_changes": """BEFORE UPDATE ON journal_entry BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: UPDATE on journal_entry is refused'); END""",
    "journal_entry_never_goes": """BEFORE DELETE ON journal_entry BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: DELETE on journal_entry is refused'); END""",
    "journal_entry_is_never_replaced": """BEFORE INSERT ON journal_entry
        WHEN EXISTS (SELECT 1 FROM journal_entry WHERE project = NEW.project AND source = NEW.source AND id = NEW.id)
        OR EXISTS (SELECT 1 FROM journal_entry WHERE position = NEW.position)
        BEGIN SELECT RAISE(IGNORE); END""",
    "journal_body_never_changes": """BEFORE UPDATE ON journal_body BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: UPDATE on journal_body is refused'); END""",
    "journal_body_never_goes": """BEFORE DELETE ON journal_body
        WHEN NOT EXISTS (SELECT 1 FROM journal_erasure WHERE entry_id = OLD.entry_id) BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: a body goes only after an erasure names it'); END""",
    "journal_body_is_never_replaced": """BEFORE INSERT ON journal_body
        WHEN EXISTS (SELECT 1 FROM journal_body WHERE entry_id = NEW.entry_id)
        BEGIN SELECT RAISE(IGNORE); END""",
    "journal_erasure_never_changes": """BEFORE UPDATE ON journal_erasure BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: UPDATE on journal_erasure is refused'); END""",
    "journal_erasure_never_goes": """BEFORE DELETE ON journal_erasure BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: DELETE on journal_erasure is refused'); END""",
    "journal_erasure_is_never_replaced": """BEFORE INSERT ON journal_erasure
        WHEN EXISTS (SELECT 1 FROM journal_erasure WHERE entry_id = NEW.entry_id)
        BEGIN SELECT RAISE(IGNORE); END""",
}


def _names(connection: BaseDatabaseWrapper) -> list[str]:
    return list(_POSTGRESQL if connection.vendor == "postgresql" else _SQLITE)


def missing(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the names of the append-only triggers that are absent or disabled; empty when the law stands."""
    if connection.vendor == "postgresql":
        # 'D' is disabled, 'R' fires for replicas alone; a trigger of that name on another table guards nothing.
        query = (
            "SELECT trigger.tgname FROM pg_trigger trigger JOIN pg_class ON pg_class.oid = trigger.tgrelid"
            " WHERE NOT trigger.tgisinternal AND trigger.tgenabled IN ('O', 'A')"
            " AND pg_table_is_visible(pg_class.oid) AND starts_with(trigger.tgname, pg_class.relname || '_')"
        )
    else:
        query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    with connection.cursor() as cursor:
        cursor.execute(query)
        present = {row[0] for row in cursor.fetchall()}
    return [name for name in _names(connection) if name not in present]


def install(connection: BaseDatabaseWrapper) -> None:
    """Create every missing trigger; does nothing while the journal's tables do not exist."""
    if not set(HISTORY) <= set(connection.introspection.table_names()):
        return
    absent = missing(connection)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql" and absent:
            cursor.execute(_FUNCTIONS)
        for name in absent:
            if connection.vendor == "postgresql":
                table, event = _POSTGRESQL[name]
                cursor.execute(f"DROP TRIGGER IF EXISTS {name} ON {table}")  # a disabled one counts as missing
                cursor.execute(_postgresql_statement(name, table, event))
            else:
                cursor.execute(f"CREATE TRIGGER IF NOT EXISTS {name} {_SQLITE[name]}")


def drop_for_test_flush(connection: BaseDatabaseWrapper) -> None:
    """Remove the triggers so that a transactional test may flush; the flush's post_migrate brings them back."""
    with connection.cursor() as cursor:
        for name in _names(connection):
            table = f" ON {_POSTGRESQL[name][0]}" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{table}")


def install_after_migrate(using: str, **_signal: Any) -> None:
    """Receiver of `post_migrate`."""
    install(connections[using])
