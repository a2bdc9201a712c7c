"""A database of a million effects in minutes: what Gatebook wrote itself for a few thousand, copied
by the database.

The seed goes in through the API, high up in the journal's numbers; its sessions, effects, attempts,
words and the entries and bodies of its plans are then copied again and again by SQL, each copy with
ids and keys of its own, at lower positions and earlier times. So every row is one that the product
once wrote, and all of them agree with each other. What is left out of the copies, to save time: the
entries and bodies of dispatches and answers, and tasks.
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

# Table -> what stands in a column of a copy, where it is not the same as in the seed. {k} numbers
# the copy.
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
}
_POSITIONS: Final = frozenset(
    {"position", "entry_id", "opened_position", "plan_position", "answer_position"}
)
_OWN: Final = frozenset({("ledger_attempt", "id"), ("journal_entry", "txid")})
# What of a table is the seed's: rows at or above the position where it begins.
_SEED: Final = {
    "agent_sessions_session": "opened_position >= {first}",
    "ledger_effect": "opened_position >= {first}",
    "ledger_attempt": "effect_id IN (SELECT id FROM ledger_effect WHERE opened_position >= "
    "{first})",
    "journal_entry": "position >= {first} AND kind = 'effect.planned'",
    "journal_body": "entry_id IN (SELECT position FROM journal_entry"
    " WHERE position >= {first} AND kind = 'effect.planned')",
    "investigation_effecttext": "position >= {first}",
}


@dataclass(frozen=True)
class Filling:
    """How large a database is to become."""

    effects: int
    seed: int  # effects of the seed
    first: int  # the journal position above which the seed stands

    @property
    def copies(self) -> int:
        """How often the seed is copied."""
        return self.effects // self.seed - 1


def plan(sizes: tuple[int, ...]) -> list[Filling]:
    """Return how to fill databases of those sizes (effects) from one seed."""
    seed = min(LARGEST_SEED, min(sizes) // 2)
    first = (max(sizes) // seed + 1) * STEP  # room below for all copies
    return [Filling(effects, seed, first) for effects in sizes]


def raise_positions(installation: Installation, first: int) -> None:
    """Make the journal go on at `first`, far above where it is. Nobody may be writing."""
    if installation.cluster is None:
        with closing(sqlite3.connect(installation.sqlite_file, isolation_level=None)) as file:
            file.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'journal_entry'", [first])
        return
    with psycopg.connect(installation.url) as connection:
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('journal_entry', 'position'), %s)", [first]
        )


def sow(server: Server, token: str, effects: int) -> None:
    """Post a seed of about so many effects."""
    writer = Writer("seed", sessions=max(1, effects // SEED_SESSION), rich=True)
    batches = []
    while writer.effects < effects:
        batches += writer.mixed(1)
    # Ten thousand sessions that fell silent at once would keep the sweeper busy beside whoever is
    # measured.
    batches.append(writer.ends())
    clients.together([clients.post_batches(server.port, token, batches)])


def copy(installation: Installation, filling: Filling) -> None:
    """Copy the seed until the database has about as many effects as was asked for. Nobody may be
    writing."""
    if installation.cluster is None:
        _copy_sqlite(installation, filling)
    else:
        _copy_postgresql(installation, filling)


def _statement(table: str, columns: list[str], filling: Filling, *, postgresql: bool) -> str:
    age_us = AGE_US // max(filling.copies, 1)
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
            text = (
                f"md5({source}::text || ':' || {{k}})::uuid"
                if postgresql
                else f"mapped({source}, {{k}})"
            )
        chosen.append(text.replace("{k}", "copies.k"))
    # The earliest copy first: rows then stand in the tables in the order of their positions, as
    # they do in life.
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(chosen)} FROM copies CROSS "
        "JOIN"
        f" (SELECT * FROM {table} WHERE {_SEED[table].format(first=filling.first)}) AS seed ORDER "
        "BY copies.k DESC"
    )


def _portions(filling: Filling) -> list[list[int]]:
    """The numbers of the copies, the earliest (and so the highest) first."""
    numbers = list(range(filling.copies, 0, -1))
    return [
        numbers[start : start + COPIES_AT_ONCE] for start in range(0, len(numbers), COPIES_AT_ONCE)
    ]


def _copy_postgresql(installation: Installation, filling: Filling) -> None:
    with psycopg.connect(installation.url, autocommit=True) as connection:
        # The rows are copies of rows that were checked; foreign keys need not be looked up a
        # million times.
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET work_mem = '256MB'")
        connection.execute("CREATE TEMPORARY TABLE copies (k bigint)")
        for portion in _portions(filling):
            connection.execute("TRUNCATE copies")
            connection.execute("INSERT INTO copies SELECT unnest(%s::bigint[])", [portion])
            for table in _COPIED:
                described = connection.execute(f"SELECT * FROM {table} LIMIT 0").description or []
                columns = [column.name for column in described if (table, column.name) not in _OWN]
                connection.execute(_statement(table, columns, filling, postgresql=True).encode())
        # Autovacuum would come to it within a minute; we do not wait.
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")


def _copy_sqlite(installation: Installation, filling: Filling) -> None:
    def mapped(identity: str | None, k: int) -> str | None:
        return (
            hashlib.md5(f"{identity}:{k}".encode(), usedforsecurity=False).hexdigest()
            if identity
            else None
        )

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
        file.execute("CREATE TEMPORARY TABLE copies (k integer)")
        for portion in _portions(filling):
            file.execute("BEGIN IMMEDIATE")
            file.execute("DELETE FROM copies")
            file.executemany("INSERT INTO copies VALUES (?)", [(k,) for k in portion])
            for table in _COPIED:
                columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
                columns = [name for name in columns if (table, name) not in _OWN]
                file.execute(_statement(table, columns, filling, postgresql=False))
            file.execute("COMMIT")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
