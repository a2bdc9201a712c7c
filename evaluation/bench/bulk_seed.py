"""Bulk seed: a database of a million effects, copied by SQL from a few thousand.

The seed is posted through the API, at high positions of the journal. Its sessions, effects,
attempts, words, first occurrences and the entries and bodies of its plans are then copied by SQL.
Each copy has its own ids and keys, lower positions and earlier times. Every row is thus a copy of a
row that the product wrote, and all rows are consistent. To save time the copies omit the entries
and bodies of dispatches and answers, and tasks, and the indexes are made again after the rows.
"""

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import psycopg

from evaluation.bench import clients
from evaluation.bench.installation import Installation, Server
from evaluation.bench.workload import Writer

LARGEST_SEED: Final = 5_000  # effects
SEED_SESSION: Final = 100  # effects of one session
STEP: Final = 40_000  # journal positions from one copy to the next: more than the seed needs
AGE_US: Final = 30 * 86_400_000_000  # the oldest copy was made a month ago
COPIES_AT_ONCE: Final = 20
PARTITIONS_AHEAD: Final = 4 << 20  # positions that one call of journal_make_body_partitions covers

# Table -> expressions of the columns that differ from the seed. {k} is the number of the copy.
_COPIED: Final[dict[str, dict[str, str]]] = {
    "agent_sessions_session": {
        "id": "{mapped:id}",
        "key": "key || '~' || {k}",
        "parent_id": "NULL",
    },
    "ledger_effect": {
        "id": "{mapped:id}",
        "session_id": "{mapped:session_id}",
        "task_id": "NULL",
        "external_reference": "CASE external_reference WHEN '' THEN '' ELSE external_reference || "
        "'~' || {k} END",
    },
    "ledger_attempt": {"effect_id": "{mapped:effect_id}"},
    "journal_entry": {
        "session": "{mapped:session}",
        "effect": "{mapped:effect}",
        "id": "id || '~' || {k}",
    },
    "journal_body": {},
    "investigation_effecttext": {},
    "investigation_firstoccurrence": {
        "digest": "CASE WHEN digest > 0 THEN digest - {k} ELSE digest + {k} END",
        "session_id": "{mapped:session_id}",
    },
}
# Like the product's ids (db/ids.py), ids of one session begin with the same six bytes, so that its
# rows are adjacent in an index.
_MAPPED: Final = (
    "(left(md5(left({0}::text, 13) || ':' || {{k}}), 12)"
    " || substr(md5({0}::text || ':' || {{k}}), 13))::uuid"
)
_POSITIONS: Final = frozenset(
    {
        *("position", "entry_id", "opened_position", "plan_position", "answer_position"),
        "reported_position",
    }
)
_OWN: Final = frozenset({("ledger_attempt", "id"), ("journal_entry", "txid")})
# The seed's rows of a table: those at or above its first position.
_SEED: Final = {
    "agent_sessions_session": "opened_position >= {first}",
    "ledger_effect": "opened_position >= {first}",
    "ledger_attempt": "effect_id IN (SELECT id FROM ledger_effect WHERE opened_position >= "
    "{first})",
    "journal_entry": "position >= {first} AND kind = 'effect.planned'",
    "journal_body": "entry_id IN (SELECT position FROM journal_entry"
    " WHERE position >= {first} AND kind = 'effect.planned')",
    "investigation_effecttext": "position >= {first}",
    "investigation_firstoccurrence": "position >= {first}",
}

# Indexes that keep no constraint of a table.
_INDEXES_POSTGRESQL: Final = """
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid)
FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
WHERE relname = ANY (%s) AND relkind = 'r'
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
"""
_INDEXES_SQLITE: Final = (
    "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
)


@dataclass(frozen=True)
class Filling:
    """The target size of a database."""

    effects: int
    seed: int  # effects of the seed
    first: int  # the seed is above this journal position
    spread_us: int = AGE_US  # how much older the oldest copy is

    @property
    def copies(self) -> int:
        """The number of copies of the seed."""
        return self.effects // self.seed - 1


def plan_fillings(sizes: tuple[int, ...], spread_us: int = AGE_US) -> list[Filling]:
    """Return how to fill databases of `sizes` effects from one seed."""
    seed = min(LARGEST_SEED, min(sizes) // 2)
    first = (max(sizes) // seed + 1) * STEP  # space below for all copies
    return [Filling(effects, seed, first, spread_us) for effects in sizes]


def raise_positions(installation: Installation, first: int) -> None:
    """Continue the journal at position `first`. Nothing else may be writing."""
    if installation.cluster is None:
        with closing(sqlite3.connect(installation.sqlite_file, isolation_level=None)) as file:
            file.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'journal_entry'", [first])
        return
    with psycopg.connect(installation.url) as connection:
        # The job makes the partitions of bodies as the journal grows.
        for position in (*range(1, first, PARTITIONS_AHEAD), first):
            connection.execute(
                "SELECT setval(pg_get_serial_sequence('journal_entry', 'position'), %s),"
                " journal_make_body_partitions()",
                [position],
            )


def post_seed(server: Server, token: str, effects: int) -> None:
    """Post a seed of about `effects` effects."""
    writer = Writer("seed", sessions=max(1, effects // SEED_SESSION), rich=True)
    batches = []
    while writer.effects < effects:
        batches += writer.mixed(1)
    # End the sessions: ten thousand silent ones would keep the sweeper busy while we measure.
    batches.append(writer.end_sessions())
    clients.run_together([clients.post_batches(server.port, token, batches)])


def copy_seed(installation: Installation, filling: Filling) -> None:
    """Copy the seed until the database is full. Nothing else may be writing."""
    if installation.cluster is None:
        _copy_sqlite(installation, filling)
    else:
        _copy_postgresql(installation, filling)


def _build_insert(table: str, columns: list[str], filling: Filling, *, postgresql: bool) -> str:
    age_us = filling.spread_us // max(filling.copies, 1)
    chosen = []
    for name in columns:
        if name in _COPIED[table]:
            text = _COPIED[table][name]
        elif name in _POSITIONS:
            text = f"{name} - {{k}} * {STEP}"
        elif name.endswith("_us"):
            text = f"{name} - {{k}} * {age_us}"
        else:
            text = name
        if text.startswith("{mapped:"):
            source = text[len("{mapped:") : -1]
            text = _MAPPED.format(source) if postgresql else f"mapped({source}, {{k}})"
        chosen.append(text.replace("{k}", "copies.k"))
    # The earliest copy first, so that rows are in the order of their positions, as in production.
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(chosen)} FROM copies CROSS "
        "JOIN"
        f" (SELECT * FROM {table} WHERE {_SEED[table].format(first=filling.first)}) AS seed ORDER "
        "BY copies.k DESC"
    )


def _split_copies(filling: Filling) -> list[list[int]]:
    """Return the numbers of the copies, the earliest (and so the highest) first."""
    numbers = list(range(filling.copies, 0, -1))
    return [
        numbers[start : start + COPIES_AT_ONCE] for start in range(0, len(numbers), COPIES_AT_ONCE)
    ]


def _copy_postgresql(installation: Installation, filling: Filling) -> None:
    with psycopg.connect(installation.url, autocommit=True) as connection:
        # The rows are copies of checked rows, so foreign keys are not checked again.
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET work_mem = '256MB'")
        connection.execute("SET maintenance_work_mem = '1GB'")
        indexes = connection.execute(_INDEXES_POSTGRESQL, [list(_COPIED)]).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}".encode())
        connection.execute("CREATE TEMPORARY TABLE copies (k bigint)")
        for portion in _split_copies(filling):
            connection.execute("TRUNCATE copies")
            connection.execute("INSERT INTO copies SELECT unnest(%s::bigint[])", [portion])
            for table in _COPIED:
                described = connection.execute(f"SELECT * FROM {table} LIMIT 0").description or []
                columns = [column.name for column in described if (table, column.name) not in _OWN]
                connection.execute(_build_insert(table, columns, filling, postgresql=True).encode())
        for _, definition in indexes:
            connection.execute(definition.encode())
        # Autovacuum would run within a minute; do not wait for it.
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")


def _copy_sqlite(installation: Installation, filling: Filling) -> None:
    def md5(text: str) -> str:
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

    def mapped(identity: str | None, k: int) -> str | None:
        return md5(f"{identity[:12]}:{k}")[:12] + md5(f"{identity}:{k}")[12:] if identity else None

    with closing(sqlite3.connect(installation.sqlite_file, isolation_level=None)) as file:
        file.create_function("mapped", 2, mapped, deterministic=True)
        for pragma in (
            "synchronous = OFF",
            "ignore_check_constraints = ON",
            "cache_size = -1048576",
            "temp_store = MEMORY",
            "journal_size_limit = 0",
        ):
            file.execute(f"PRAGMA {pragma}")
        indexes = [row for row in file.execute(_INDEXES_SQLITE).fetchall() if row[1] in _COPIED]
        # They come from the product (db/sqlite/planner_statistics.py) and go with an index.
        statistics = file.execute("SELECT tbl, idx, stat FROM sqlite_stat1").fetchall()
        for name, _, _ in indexes:
            file.execute(f"DROP INDEX {name}")
        file.execute("CREATE TEMPORARY TABLE copies (k integer)")
        for portion in _split_copies(filling):
            file.execute("BEGIN IMMEDIATE")
            file.execute("DELETE FROM copies")
            file.executemany("INSERT INTO copies VALUES (?)", [(k,) for k in portion])
            for table in _COPIED:
                columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
                columns = [name for name in columns if (table, name) not in _OWN]
                file.execute(_build_insert(table, columns, filling, postgresql=False))
            file.execute("COMMIT")
        for _, _, definition in indexes:
            file.execute(definition)
        # One segment, as each completed run of retention leaves it. FTS5 merges segments in steps
        # while it writes, so that a step otherwise depends on how the copies were written.
        file.execute(
            "INSERT INTO investigation_wordindex (investigation_wordindex) VALUES ('optimize')"
        )
        file.execute("DELETE FROM sqlite_stat1")
        file.executemany("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?, ?, ?)", statistics)
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
