"""The one writer of EffectText: rows, erasure trigger and index queries.

PostgreSQL has a GIN index on the rows; SQLite has an FTS5 table that triggers keep up to date.
"""

import json
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    OperationalError,
    connection,
    connections,
    transaction,
)

from db import raw_sql
from db.row_changes import RowChange, write_row_changes
from db.triggers import TriggerSet
from investigation.fulltext.extract import EffectText as Words
from investigation.fulltext.sql import (
    AS_TSVECTOR,
    TOKEN_DIGITS,
    ProjectTerms,
    join_words,
    project_token,
)
from investigation.models import EffectText

# PostgreSQL's advisory locks are numbers; this number spells "words".
WORDS_LOCK: Final = 512_970_878_067
_LAST: Final = 2**63 - 1
_MERGED: Final = 500  # Pages of the FTS5 index that one transaction rewrites.

_CHANGED: Final = (
    "ON CONFLICT (position) DO UPDATE SET words = excluded.words, cut_short = excluded.cut_short"
)
_WRITE_POSTGRESQL: Final = (
    "INSERT INTO investigation_effecttext (position, project_id, words, cut_short)"
    f" SELECT position, project, {AS_TSVECTOR.format('words')}, cut_short"
    " FROM unnest(%s::bigint[], %s::uuid[], string_to_array(%s, E'\\n'), %s::boolean[])"
    " AS given(position, project, words, cut_short)"
    f" ORDER BY position {_CHANGED} WHERE investigation_effecttext.words <> excluded.words"
)
# A single statement: FTS5 writes out its buffer whenever another statement changes its table, which
# took five times as long for each row.
_WRITE_SQLITE: Final = (
    "INSERT INTO investigation_effecttext (position, project_id, words, cut_short)"
    " SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),"
    " json_extract(value, '$[3]') FROM json_each(%s) WHERE TRUE"
    f" {_CHANGED} WHERE investigation_effecttext.words <> excluded.words"
)


def lock_words() -> None:
    """Lock, until the transaction ends, the writing of words and the erasure of bodies.

    An erasure takes the same lock in its trigger. It finds the words written before it, and a later
    writer finds the erasure. SQLite has only one writer.
    """
    if connection.vendor == "postgresql":
        raw_sql.fetch_rows("SELECT pg_advisory_xact_lock(%s)", [WORDS_LOCK])


def store_words(rows: Sequence[Words]) -> None:
    """Replace the stored words of each effect. Needs the lock of `lock_words`."""
    ordered = sorted(rows, key=lambda row: row.position)
    empty = [row.position for row in ordered if not row.words]
    if empty:
        EffectText.objects.filter(position__in=empty).delete()
    values = [
        (row.position, row.project, join_words(row.project, row.words), row.cut_short)
        for row in ordered
        if row.words
    ]
    if not values:
        return
    if connection.vendor == "postgresql":
        positions, projects, words, are_cut = zip(*values, strict=True)
        raw_sql.execute_write(
            _WRITE_POSTGRESQL,
            [
                raw_sql.to_array_parameter(positions),
                raw_sql.to_array_parameter(projects),
                "\n".join(words),
                raw_sql.to_array_parameter(are_cut),
            ],
        )
    else:
        raw_sql.execute_write(_WRITE_SQLITE, [json.dumps(values)])


def find_newest_positions(
    terms: ProjectTerms, most: int, low: int | None = None, high: int | None = None
) -> tuple[list[int], int]:
    """Return the positions of the newest effects with all terms, at most `most`, newest first.

    The second value is the position down to which the list is complete, or 0 if there are no more.
    Positions outside of `low` to `high`, or of projects whose ids end alike, may be included. A
    PostgreSQL function makes its planner use only the index.
    """
    if connection.vendor == "postgresql":
        text = (
            "SELECT investigation_newest_of_words(%s, %s, %s,"
            " greatest(min(position), %s), least(max(position), %s), %s)"
            " FROM investigation_effecttext"
        )
        ((result,),) = raw_sql.fetch_rows(
            text, [*terms.tsqueries(), terms.project, low, high, most]
        )
        return result[1:], result[0]
    text = (
        "SELECT rowid FROM investigation_wordindex"
        " WHERE investigation_wordindex MATCH %s AND rowid BETWEEN %s AND %s"
    )
    ends = [0 if low is None else low, _LAST if high is None else high]
    rows = raw_sql.fetch_rows(f"{text} ORDER BY rowid DESC LIMIT %s", [terms.match(), *ends, most])
    positions = [row[0] for row in rows]
    return positions, positions[-1] if len(positions) == most else 0


def has_unique_token(project: UUID) -> bool:
    """Return True if `find_newest_positions` without limits only returns effects of `project`.

    SQLite's index knows only the end of the project's id.
    """
    if connection.vendor == "postgresql":
        return True
    text = "SELECT 1 FROM accounts_project WHERE substr(id, %s) = %s"
    return len(raw_sql.fetch_rows(text, [-TOKEN_DIGITS, project_token(project)])) == 1


def purge_erased_words() -> None:
    """Rewrite SQLite's index in small steps until it has no text of deleted rows.

    FTS5 only marks a row as deleted and keeps its words until index pages are merged. Other writers
    run between the steps.
    """
    if connection.vendor != "sqlite":
        return
    pages = -_MERGED  # The first call starts a complete merge; the next ones continue it.
    while True:
        with transaction.atomic():
            before = connection.connection.total_changes
            raw_sql.execute_write(
                "INSERT INTO investigation_wordindex (investigation_wordindex, rank) VALUES "
                "('merge', %s)",
                [pages],
            )
            # FTS5's way to report that nothing was left to do.
            if connection.connection.total_changes - before < 2:
                return
        pages = _MERGED


def restore_words(changes: Sequence[RowChange]) -> None:
    """Restore words from the journal (manage.py rebuild); `rebuild_index` must follow."""
    write_row_changes(EffectText, changes)


def rebuild_index(using: str = DEFAULT_DB_ALIAS) -> None:
    """Make SQLite's index again from all rows, in one statement."""
    if connections[using].vendor == "sqlite":
        with connections[using].cursor() as cursor:
            cursor.execute(REBUILD_INDEX)


REBUILD_INDEX: Final = (
    "INSERT INTO investigation_wordindex (investigation_wordindex) VALUES ('rebuild')"
)


def compare_index() -> str:
    """Compare SQLite's index with all rows; return what FTS5 reports, nothing if they agree.

    Other writers wait for it. No PRAGMA compares them.
    """
    try:
        with transaction.atomic():  # its end closes what FTS5 reads
            raw_sql.execute_write(
                "INSERT INTO investigation_wordindex (investigation_wordindex, rank)"
                " VALUES ('integrity-check', 1)"
            )
    except OperationalError:  # it is locked, for instance
        raise
    except DatabaseError as error:
        return str(error)
    return ""


def rebuild_empty_index(using: str, **_signal: Any) -> None:
    """Rebuild SQLite's index after `post_migrate` if the table of words is empty.

    Tests may empty the table with a single statement.
    """
    table_names = connections[using].introspection.table_names()
    if connections[using].vendor == "sqlite" and {
        "investigation_effecttext",
        "investigation_wordindex",
    } <= set(table_names):
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT 1 FROM investigation_effecttext LIMIT 1")
            if cursor.fetchone() is None:
                cursor.execute(REBUILD_INDEX)


_DELETE: Final = (
    "INSERT INTO investigation_wordindex (investigation_wordindex, rowid, words)"
    " VALUES ('delete', OLD.position, OLD.words)"
)
_INSERT: Final = (
    "INSERT INTO investigation_wordindex (rowid, words) VALUES (NEW.position, NEW.words)"
)

# Deleting a body, in any way, deletes the words of its effect in the same transaction. The
# remaining text of the effect is read again when the job reaches the erasure's entry.
SEARCH_TEXT_TRIGGERS: Final = TriggerSet(
    postgresql={
        "erased_body_deletes_its_words": (
            "journal_body",
            "AFTER DELETE ON journal_body FOR EACH ROW EXECUTE FUNCTION "
            "investigation_delete_words()",
        ),
    },
    functions=f"""
CREATE OR REPLACE FUNCTION investigation_delete_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock({WORDS_LOCK});
  DELETE FROM {{schema}}.investigation_effecttext WHERE position = (
    SELECT effect.opened_position FROM {{schema}}.ledger_effect effect
    JOIN {{schema}}.journal_entry entry ON entry.effect = effect.id
    WHERE entry.position = OLD.entry_id);
  RETURN NULL;
END $$;
""",
    sqlite={
        "erased_body_deletes_its_words": (
            "journal_body",
            """AFTER DELETE ON journal_body BEGIN
            DELETE FROM investigation_effecttext WHERE position = (
            SELECT effect.opened_position FROM ledger_effect effect
            JOIN journal_entry entry ON entry.effect = effect.id
            WHERE entry.position = OLD.entry_id); END""",
        ),
        "new_words_are_indexed": (
            "investigation_effecttext",
            f"AFTER INSERT ON investigation_effecttext BEGIN {_INSERT}; END",
        ),
        "deleted_words_are_not_indexed": (
            "investigation_effecttext",
            f"AFTER DELETE ON investigation_effecttext BEGIN {_DELETE}; END",
        ),
        "changed_words_are_indexed_again": (
            "investigation_effecttext",
            f"AFTER UPDATE ON investigation_effecttext BEGIN {_DELETE}; {_INSERT}; END",
        ),
    },
    needs=("investigation_effecttext", "ledger_effect"),
)
