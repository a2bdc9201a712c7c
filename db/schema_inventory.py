"""Schema inventory: compare the database with what this version expects.

Django knows applied migrations only by name, so a rewritten migration leaves an older database
unnoticed. The expected inventory is recorded from a freshly migrated database (`make schema` writes
`db/expected/`), and compared at start-up and by /readyz. Missing triggers and changed functions of
triggers are found by their source (triggers.py). Here an owner's additions are found: triggers,
rules and row security, which make the database do or show something else than was asked, on every
table that Gatebook uses. Columns and constraints of Django's and libraries' tables are left out,
and those of partitions, which PostgreSQL itself keeps like their table.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from django.apps import apps
from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper

from db import triggers

MIGRATIONS: Final = "django_migrations"
EXPECTED_FOLDER: Final = Path(__file__).parent / "expected"
_NAMED: Final = 3  # differences that a message lists
_CASTS: Final = re.compile(r"::(?:text|charactervarying\d*)(?:\[\])?")
_agreed: set[str] = set()  # databases that this process found as expected

_COLUMNS: Final = """
SELECT 'column ' || c.relname || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
       || COALESCE(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
       || CASE a.attidentity WHEN '' THEN '' ELSE ' identity ' || a.attidentity::text END
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
     LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0
      AND NOT a.attisdropped AND NOT c.relispartition
"""
# From version 18 on NOT NULL is a constraint with a generated name; the column has it on all.
_CONSTRAINTS: Final = """
SELECT 'constraint ' || c.relname || '.' || o.conname, pg_get_constraintdef(o.oid)
FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid
WHERE c.relnamespace = current_schema()::regnamespace AND o.contype IN ('c', 'f', 'p', 'u', 'x')
      AND NOT c.relispartition
"""
_INDEXES: Final = """
SELECT 'index ' || t.relname || '.' || c.relname,
       replace(pg_get_indexdef(c.oid), current_schema() || '.', '')
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
WHERE c.relnamespace = current_schema()::regnamespace AND i.indisvalid
      AND NOT t.relispartition
      AND NOT EXISTS (SELECT 1 FROM pg_constraint o
                      WHERE o.conindid = c.oid AND o.contype IN ('p', 'u', 'x'))
"""
# Functions that triggers call are compared with their source.
_FUNCTIONS: Final = """
SELECT 'function ' || p.proname, p.prosrc FROM pg_proc p
WHERE p.pronamespace = current_schema()::regnamespace
      AND p.prorettype <> 'trigger'::regtype AND p.prokind = 'f'
"""
# Triggers of foreign keys are internal, and their functions are PostgreSQL's. Those that PostgreSQL
# repeats on a partition have a parent; triggers.py repeats those of statements under the same name.
_TRIGGERS: Final = """
SELECT c.relname, t.tgname, pg_get_triggerdef(t.oid, TRUE)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
WHERE c.relnamespace = current_schema()::regnamespace AND t.tgparentid = 0
      AND NOT (t.tgisinternal AND p.pronamespace = 'pg_catalog'::regnamespace)
      AND NOT EXISTS (
        SELECT 1 FROM pg_inherits i JOIN pg_trigger o ON o.tgrelid = i.inhparent
        WHERE i.inhrelid = c.oid AND c.relispartition AND NOT t.tgisinternal
              AND (o.tgname, o.tgfoid, o.tgtype, o.tgqual IS NULL)
                = (t.tgname, t.tgfoid, t.tgtype, t.tgqual IS NULL))
"""
# Rules rewrite statements, and a view can stand for a table. Row security and its policies hide
# rows from every role but the owner, and from the owner too where it is forced.
_RULES: Final = """
SELECT 'rule', c.relname, r.rulename, pg_get_ruledef(r.oid)
FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
UNION ALL
SELECT 'policy', c.relname, o.polname, COALESCE(pg_get_expr(o.polqual, o.polrelid), '')
FROM pg_policy o JOIN pg_class c ON c.oid = o.polrelid
WHERE c.relnamespace = current_schema()::regnamespace
UNION ALL
SELECT 'row-security', c.relname, state.name, 'on'
FROM pg_class c, LATERAL (VALUES ('enabled', c.relrowsecurity), ('forced', c.relforcerowsecurity))
     state (name, is_on)
WHERE c.relnamespace = current_schema()::regnamespace AND state.is_on
UNION ALL
SELECT 'view', c.relname, c.relname, '' FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('v', 'm', 'f')
"""
# Kinds of items that change what a table does, on any table that Gatebook uses.
_ADDED_KINDS: Final = ("trigger ", "rule ", "policy ", "row-security ", "view ")
_PARTS: Final = ("column ", "constraint ", "index ")  # of a table that is itself expected


def find_schema_differences(connection: BaseDatabaseWrapper) -> list[str]:
    """Return differences such as "the column x.y is missing"; empty if there are none.

    A database without differences is not read again by this process. Only unique indexes count:
    without any other, queries are slow but not wrong. An index that lacks rows makes them wrong,
    and may have the expected text: on SQLite `manage.py rebuild --check` compares it with its rows.
    """
    name = f"{connection.alias} {connection.settings_dict['NAME']}"
    if name in _agreed:
        return []
    differing = compare_inventories(
        load_expected_inventory(connection.vendor), read_inventory(connection)
    )
    if not differing:
        _agreed.add(name)
    return differing


def clear_schema_cache() -> None:
    """Clear the cache, so that the schema is read again."""
    _agreed.clear()


def summarize_differences(differing: list[str]) -> str:
    """Join the first differences and the number of others."""
    more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
    return f"{', '.join(differing[:_NAMED])}{more}"


def list_additions(differing: list[str]) -> list[str]:
    """Return the differences that an owner of the tables made by adding triggers or the like."""
    kinds = tuple(f"the {kind}" for kind in _ADDED_KINDS)
    return [words for words in differing if words.startswith(kinds)]


def compare_inventories(wanted: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return the differences between two inventories, tables first."""
    tables, existing = (
        {_table(item) for item in inventory if item.startswith("column ")}
        for inventory in (wanted, present)
    )
    differing = [f"the table {table} is missing" for table in sorted(tables - existing)]
    differing += [f"the table {table} is not expected" for table in sorted(existing - tables)]
    for item in sorted(wanted.keys() | present.keys()):
        if item.startswith(_PARTS) and _table(item) not in tables & existing:
            continue
        if item.startswith("index ") and not wanted.get(item, "").startswith("CREATE UNIQUE"):
            continue
        if item not in present:
            differing.append(f"the {item} is missing")
        elif item not in wanted:
            differing.append(f"the {item} is not expected")
        elif normalize_definition(wanted[item]) != normalize_definition(present[item]):
            differing.append(
                f"the {item} is another: {_brief(present[item])} instead of {_brief(wanted[item])}"
            )
    return differing


def normalize_definition(definition: str) -> str:
    """Strip what databases print differently: blanks, quotes, case, casts.

    PostgreSQL moves the casts of a list to its items when a dump is restored.
    """
    return _CASTS.sub("", re.sub(r'[\s()"]', "", definition).lower())


@lru_cache
def load_expected_inventory(vendor: str) -> Mapping[str, str]:
    """Return the recorded inventory of a database of `vendor`."""
    lines = (EXPECTED_FOLDER / f"{vendor}.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def read_inventory(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """Return the inventory of a database as it is: item -> definition."""
    is_sqlite = connection.vendor == "sqlite"
    items = _sqlite(connection) if is_sqlite else _postgresql(connection)
    prefixes = tuple(
        f"{app.label}_"
        for app in apps.get_app_configs()
        if Path(app.path).parent == settings.BASE_DIR
    )
    # A schema of PostgreSQL may hold tables of other programs, with triggers of their own.
    used = {MIGRATIONS, *connection.introspection.django_table_names(only_existing=False)}
    return {
        item: definition
        for item, definition in items
        if (not item.startswith("view ") and _table(item).startswith(prefixes))
        or (item.startswith(_ADDED_KINDS) and _table(item) in used)
        or (is_sqlite and item.startswith("trigger "))
    }


def write_expected_inventory(connection: BaseDatabaseWrapper) -> Path:
    """Record a database's inventory as the expected one; return the file."""
    path = EXPECTED_FOLDER / f"{connection.vendor}.txt"
    head = (
        f"# What the migrations make on {connection.vendor}."
        " Written by `make schema`; do not edit.\n"
    )
    lines = (
        f"{item}\t{definition}\n" for item, definition in sorted(read_inventory(connection).items())
    )
    path.write_text(head + "".join(lines), encoding="utf-8")
    return path


def _table(item: str) -> str:
    return item.split(" ", 1)[1].split(".", 1)[0]


def _brief(definition: str) -> str:
    return definition if len(definition) <= 80 else f"{definition[:77]}..."


def _postgresql(connection: BaseDatabaseWrapper) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    with connection.cursor() as cursor:
        for query in (_COLUMNS, _CONSTRAINTS, _INDEXES):
            cursor.execute(query)
            items += cursor.fetchall()
        cursor.execute(_FUNCTIONS)
        items += [
            (item, hashlib.sha256(body.encode()).hexdigest()) for item, body in cursor.fetchall()
        ]
        cursor.execute(_TRIGGERS)
        expected = triggers.trigger_tables(connection)
        items += [
            (f"trigger {table}.{name}", definition)
            for table, name, definition in cursor.fetchall()
            if expected.get(name) != table
        ]
        cursor.execute(_RULES)
        items += [
            (f"{kind} {table}.{name}", definition)
            for kind, table, name, definition in cursor.fetchall()
        ]
    return items


def _sqlite(connection: BaseDatabaseWrapper) -> list[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        rows = cursor.fetchall()
    virtual = [
        name for kind, name, _, sql in rows if kind == "table" and sql.startswith("CREATE VIRTUAL")
    ]
    # The content tables of virtual tables.
    own = tuple(f"{name}_" for name in virtual)
    expected_triggers = triggers.trigger_tables(connection)
    items: list[tuple[str, str]] = []
    for kind, name, table, sql in rows:
        definition = " ".join(sql.split())
        if table.startswith(own) and kind != "trigger":
            continue
        if name in virtual:
            items.append((f"column {name}.{name}", definition))
        elif kind == "table":
            items += _parts(name, definition)
        elif kind == "index":
            items.append((f"index {table}.{name}", definition))
        elif kind == "view" or expected_triggers.get(name) != table:
            items.append((f"{kind} {table}.{name}", definition))
    return items


def _parts(table: str, sql: str) -> Iterator[tuple[str, str]]:
    """Yield columns and constraints of an SQLite CREATE TABLE."""
    depth, quote, start = 0, "", sql.index("(") + 1
    body = sql[start : sql.rindex(")")]
    parts, part = [], ""
    for character in body:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        if character == "," and not depth and not quote:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    for text in [*parts, part.strip()]:
        named = re.match(r'CONSTRAINT "(\w+)" (.*)', text)
        column = re.match(r'"?(?!(?:CHECK|UNIQUE|FOREIGN|PRIMARY)\b)(\w+)"? (.*)', text)
        if named:
            yield f"constraint {table}.{named[1]}", named[2]
        elif column:
            yield f"column {table}.{column[1]}", column[2]
        else:
            yield f"constraint {table}.{normalize_definition(text)[:60]}", text
