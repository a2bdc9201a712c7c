"""Database triggers on both vendors, first of all for the append-only journal.

Missing ones are installed after every migration and flush: on SQLite a migration that adds a
constraint rebuilds its table, which silently drops the table's triggers. The start-up check refuses
a database where one is missing. Upper apps add triggers with `register_triggers`.
"""

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True)
class TriggerSet:
    """Triggers by name for each vendor, and the functions that they call.

    A trigger is its table and the rest of CREATE TRIGGER. Functions prefix tables with `{schema}.`,
    so that no temporary table can replace one. `needs`: other tables that the triggers use.
    `append_only`: tables that the application's role may not change (db/postgres/grants.py).
    """

    postgresql: Mapping[str, tuple[str, str]]
    functions: str
    sqlite: Mapping[str, tuple[str, str]]
    needs: tuple[str, ...] = ()
    append_only: tuple[str, ...] = ()

    def triggers(self, connection: BaseDatabaseWrapper) -> Mapping[str, tuple[str, str]]:
        """Return the triggers of the connection's vendor."""
        return self.postgresql if connection.vendor == "postgresql" else self.sqlite


APPEND_ONLY_TABLES = ("journal_entry", "journal_body", "journal_erasure")

_FUNCTIONS = """
CREATE OR REPLACE FUNCTION journal_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the journal is append-only: % on % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE FUNCTION journal_refuse_unnamed_erasure() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM {schema}.journal_erasure WHERE entry_id = OLD.entry_id) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'the journal is append-only: a body goes only after an erasure names it (% on %)',
    TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE FUNCTION journal_refuse_erased_body() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM {schema}.journal_erasure WHERE entry_id
      BETWEEN (SELECT min(entry_id) FROM added) AND (SELECT max(entry_id) FROM added)) THEN
    IF EXISTS (SELECT 1 FROM {schema}.journal_erasure JOIN added USING (entry_id)) THEN
      RAISE EXCEPTION 'the journal is append-only: the body of an erased entry never comes back'
        USING ERRCODE = 'restrict_violation';
    END IF;
  END IF;
  RETURN NULL;
END $$;
"""


def _changes(table: str) -> str:
    function = (
        "journal_refuse_unnamed_erasure" if table == "journal_body" else "journal_refuse_change"
    )
    return f"BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {function}()"


def _truncation(table: str) -> str:
    return f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION journal_refuse_change()"


_POSTGRESQL = {
    **{f"{table}_never_changes": (table, _changes(table)) for table in APPEND_ONLY_TABLES},
    **{f"{table}_is_never_truncated": (table, _truncation(table)) for table in APPEND_ONLY_TABLES},
    # Once per statement, by one range lookup: a lookup for every row would cost four times as much.
    "journal_body_stays_erased": (
        "journal_body",
        "AFTER INSERT ON journal_body REFERENCING NEW TABLE AS added"
        " FOR EACH STATEMENT EXECUTE FUNCTION journal_refuse_erased_body()",
    ),
}


def _refused(table: str, verb: str) -> str:
    return f"""BEFORE {verb} ON {table} BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: {verb} on {table} is refused'); END"""


# INSERT OR REPLACE would bypass the DELETE trigger on connections without recursive_triggers. So an
# insert of an existing row is skipped (RAISE(IGNORE)): ON CONFLICT DO NOTHING works as usual, and
# REPLACE does nothing.
def _skipped(table: str, condition: str) -> str:
    return f"BEFORE INSERT ON {table} WHEN {condition} BEGIN SELECT RAISE(IGNORE); END"


# Where somebody put a row at a position that is not used yet, the next entry is refused. If it were
# skipped, its writer would be answered that it is recorded.
def _taken(table: str, condition: str) -> str:
    return f"""BEFORE INSERT ON {table} WHEN {condition} BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: {table} has a row of this position'); END"""


_SQLITE = {
    **{
        f"{table}_never_changes": (table, _refused(table, "UPDATE")) for table in APPEND_ONLY_TABLES
    },
    **{
        f"{table}_is_never_deleted": (table, _refused(table, "DELETE"))
        for table in ("journal_entry", "journal_erasure")
    },
    "journal_body_is_never_deleted": (
        "journal_body",
        """BEFORE DELETE ON journal_body
        WHEN NOT EXISTS (SELECT 1 FROM journal_erasure WHERE entry_id = OLD.entry_id) BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: a body goes only after an erasure names it'); END""",
    ),
    "journal_body_stays_erased": (
        "journal_body",
        """AFTER INSERT ON journal_body
        WHEN EXISTS (SELECT 1 FROM journal_erasure WHERE entry_id = NEW.entry_id) BEGIN
        SELECT RAISE(ABORT, 'the journal is append-only: the body of an erased entry never comes back'); END""",
    ),
    "journal_entry_is_never_replaced": (
        "journal_entry",
        _skipped(
            "journal_entry",
            "EXISTS (SELECT 1 FROM journal_entry"
            " WHERE project = NEW.project AND source = NEW.source AND id = NEW.id)",
        ),
    ),
    "journal_entry_position_is_free": (
        "journal_entry",
        _taken(
            "journal_entry",
            "EXISTS (SELECT 1 FROM journal_entry WHERE position = NEW.position)"
            " AND NOT EXISTS (SELECT 1 FROM journal_entry"
            " WHERE project = NEW.project AND source = NEW.source AND id = NEW.id)",
        ),
    ),
    "journal_body_is_never_replaced": (
        "journal_body",
        _taken("journal_body", "EXISTS (SELECT 1 FROM journal_body WHERE entry_id = NEW.entry_id)"),
    ),
    "journal_erasure_is_never_replaced": (
        "journal_erasure",
        _skipped(
            "journal_erasure",
            "EXISTS (SELECT 1 FROM journal_erasure WHERE entry_id = NEW.entry_id)",
        ),
    ),
}

_trigger_sets = [TriggerSet(_POSTGRESQL, _FUNCTIONS, _SQLITE, append_only=APPEND_ONLY_TABLES)]


def register_triggers(trigger_set: TriggerSet) -> None:
    """Register the triggers of an upper app for installation and checks."""
    if trigger_set not in _trigger_sets:
        _trigger_sets.append(trigger_set)


def find_append_only_tables() -> list[str]:
    """Return the tables that the application's role only reads and inserts into."""
    return [table for trigger_set in _trigger_sets for table in trigger_set.append_only]


def trigger_tables(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """Return every trigger's name with its table."""
    return {
        name: table
        for trigger_set in _trigger_sets
        for name, (table, _) in trigger_set.triggers(connection).items()
    }


def find_missing_triggers(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the names of absent, disabled or modified triggers.

    PostgreSQL prints statements in its own form, which changes between versions. So a trigger's
    comment holds a digest of its source statement and of that printed form, under the pepper, which
    an owner of the tables does not know; function sources are compared directly.
    """
    if connection.vendor == "postgresql":
        return _missing_on_postgresql(connection)
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        present = dict(cursor.fetchall())
    return [
        name
        for trigger_set in _trigger_sets
        for name, (_, statement) in trigger_set.sqlite.items()
        if present.get(name) != f"CREATE TRIGGER {name} {statement}"
    ]


def _missing_on_postgresql(connection: BaseDatabaseWrapper) -> list[str]:
    with connection.cursor() as cursor:
        # 'D' is disabled, 'R' fires only for replicas. A trigger on another table protects nothing.
        cursor.execute(
            "SELECT trigger.tgname, pg_class.relname,"
            " obj_description(trigger.oid, 'pg_trigger'),"
            # A setting of a function, such as a search path with other operators, changes it too.
            " CASE WHEN called.proconfig IS NULL THEN called.prosrc ELSE '' END,"
            " pg_get_triggerdef(trigger.oid, TRUE), quote_ident(current_schema())"
            " FROM pg_trigger trigger JOIN pg_class ON pg_class.oid = trigger.tgrelid"
            " JOIN pg_proc called ON called.oid = trigger.tgfoid"
            " WHERE NOT trigger.tgisinternal AND trigger.tgenabled IN ('O', 'A')"
            " AND pg_table_is_visible(pg_class.oid)"
        )
        rows = cursor.fetchall()
    present = {(row[0], row[1]): row[2:5] for row in rows}
    schema = rows[0][5] if rows else ""
    absent: list[str] = []
    for trigger_set in _trigger_sets:
        bodies = dict(_FUNCTION.findall(trigger_set.functions.replace("{schema}", schema)))
        for name, (table, statement) in trigger_set.postgresql.items():
            called = bodies.get(_CALLED.findall(statement)[-1])
            comment, body, printed = present.get((name, table), ("", "", ""))
            if comment != _digest(statement, printed) or called not in (None, body):
                absent.append(name)
    return absent + [name for name in _find_missing_on_partitions(connection) if name not in absent]


# A trigger of rows is repeated on each partition by PostgreSQL, one of statements by
# `install_triggers`. Either can be missing or off on a partition alone.
_ON_PARTITIONS: Final = """
SELECT DISTINCT of_table.tgname
FROM pg_trigger of_table JOIN pg_inherits ON inhparent = of_table.tgrelid
WHERE NOT of_table.tgisinternal AND pg_table_is_visible(of_table.tgrelid) AND NOT EXISTS (
  SELECT 1 FROM pg_trigger trigger
  WHERE trigger.tgrelid = inhrelid AND trigger.tgenabled IN ('O', 'A')
  AND CASE WHEN of_table.tgtype & 1 = 1 THEN trigger.tgparentid = of_table.oid
    ELSE (trigger.tgname, trigger.tgfoid, trigger.tgtype, trigger.tgqual IS NULL)
      = (of_table.tgname, of_table.tgfoid, of_table.tgtype, of_table.tgqual IS NULL) END)
"""
_PARTITIONS: Final = (
    "SELECT parent.relname, quote_ident(part.relname) FROM pg_inherits"
    " JOIN pg_class part ON part.oid = inhrelid JOIN pg_class parent ON parent.oid = inhparent"
    " WHERE part.relkind = 'r' AND part.relispartition AND pg_table_is_visible(parent.oid)"
)


def _find_missing_on_partitions(connection: BaseDatabaseWrapper) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(_ON_PARTITIONS)
        return [name for (name,) in cursor.fetchall()]


def load_table_partitions(connection: BaseDatabaseWrapper) -> dict[str, list[str]]:
    """Return the partitions of each partitioned table; none on SQLite."""
    partitions: dict[str, list[str]] = {}
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_PARTITIONS)
            for table, partition in cursor.fetchall():
                partitions.setdefault(table, []).append(partition)
    return partitions


_FUNCTION: Final = re.compile(
    r"FUNCTION (\w+)\(\) RETURNS trigger LANGUAGE plpgsql AS \$\$(.*?)\$\$", re.DOTALL
)
_CALLED: Final = re.compile(r"EXECUTE FUNCTION (\w+)\(\)")


def _digest(statement: str, printed: str) -> str:
    message = f"{statement}\0{printed}".encode()
    return hmac.new(settings.GATEBOOK_PEPPER, message, hashlib.sha256).hexdigest()


def install_triggers(connection: BaseDatabaseWrapper) -> None:
    """Create missing triggers and update functions, for apps whose tables all exist."""
    absent, installable = set(find_missing_triggers(connection)), _find_installable(connection)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT quote_ident(current_schema())")
            (schema,) = cursor.fetchone()
            for trigger_set in installable:
                cursor.execute(trigger_set.functions.replace("{schema}", schema))
    # A disabled trigger, or one on another table, counts as missing.
    _drop_triggers(
        connection,
        {
            name: table
            for trigger_set in installable
            for name, (table, _) in trigger_set.triggers(connection).items()
            if name in absent
        },
    )
    _create_triggers(connection, installable, absent)


def _find_installable(connection: BaseDatabaseWrapper) -> list[TriggerSet]:
    """Return the sets of triggers whose tables all exist."""
    existing = set(connection.introspection.table_names())
    return [
        trigger_set
        for trigger_set in _trigger_sets
        if {
            *trigger_set.needs,
            *(table for table, _ in trigger_set.triggers(connection).values()),
        }
        <= existing
    ]


def _create_triggers(
    connection: BaseDatabaseWrapper, trigger_sets: Iterable[TriggerSet], names: Collection[str]
) -> None:
    """Create the triggers `names`, which do not exist, as far as they are in `trigger_sets`."""
    partitions = load_table_partitions(connection)
    with connection.cursor() as cursor:
        for trigger_set in trigger_sets:
            for name, (table, statement) in trigger_set.triggers(connection).items():
                if name not in names:
                    continue
                cursor.execute(f"CREATE TRIGGER {name} {statement}")
                if " FOR EACH STATEMENT " in statement:
                    for partition in partitions.get(table, ()):
                        own = statement.replace(f" ON {table} ", f" ON {partition} ", 1)
                        cursor.execute(f"CREATE TRIGGER {name} {own}")
                if connection.vendor == "postgresql":
                    cursor.execute(
                        "SELECT pg_get_triggerdef(oid, TRUE) FROM pg_trigger"
                        f" WHERE tgname = '{name}' AND tgrelid = '{table}'::regclass"
                    )
                    digest = _digest(statement, cursor.fetchone()[0])
                    cursor.execute(f"COMMENT ON TRIGGER {name} ON {table} IS '{digest}'")


def drop_for_test_flush(connection: BaseDatabaseWrapper) -> None:
    """Remove the triggers for a test's flush; post_migrate restores them."""
    _drop_triggers(connection, trigger_tables(connection))


@contextmanager
def suspend_triggers(connection: BaseDatabaseWrapper, tables: Iterable[str]) -> Iterator[None]:
    """Remove the triggers of `tables` for a block that restores rows from the journal.

    Must surround the block inside one transaction: if it fails, the rollback brings them back, and
    no other connection ever sees a table without them. Needs the owner of the tables.
    """
    wanted = set(tables)
    triggers = trigger_tables(connection)
    suspended = {name: table for name, table in triggers.items() if table in wanted}
    _drop_triggers(connection, suspended)
    yield
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:  # references, which a trigger may not be created before
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")
    _create_triggers(connection, _find_installable(connection), suspended)


def _drop_triggers(connection: BaseDatabaseWrapper, triggers: Mapping[str, str]) -> None:
    """Drop triggers from their tables and from the partitions of these."""
    partitions = load_table_partitions(connection)
    with connection.cursor() as cursor:
        for name, table in triggers.items():
            if connection.vendor == "sqlite":
                cursor.execute(f"DROP TRIGGER IF EXISTS {name}")
                continue
            for owner in (table, *partitions.get(table, ())):
                cursor.execute(f"DROP TRIGGER IF EXISTS {name} ON {owner}")


def install_after_migrate(using: str, **_signal: Any) -> None:
    """Handle `post_migrate`."""
    install_triggers(connections[using])
