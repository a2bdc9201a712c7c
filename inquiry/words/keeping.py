"""The one writer of EffectWords: rows, erasure trigger and index queries.

PostgreSQL has a GIN index on the rows; SQLite has an FTS5 table that triggers keep up to date.
"""

import json
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.db import connection, connections, transaction

from inquiry.models_words import EffectWords
from inquiry.words.column import AS_TSVECTOR, TOKEN, Asked, joined, token
from inquiry.words.reading import Words
from journal import sql
from journal.triggers import Law

# PostgreSQL's advisory locks are numbers; this number spells "words".
_LOCK: Final = 512_970_878_067
_LAST: Final = 2**63 - 1
_MERGED: Final = 500  # Pages of the FTS5 index that one transaction rewrites.

_CHANGED: Final = (
    "ON CONFLICT (position) DO UPDATE SET words = excluded.words, cut_short = excluded.cut_short"
)
_WRITE_POSTGRESQL: Final = (
    "INSERT INTO inquiry_effectwords (position, project_id, words, cut_short)"
    f" SELECT position, project, {AS_TSVECTOR.format('words')}, cut_short"
    " FROM unnest(%s::bigint[], %s::uuid[], string_to_array(%s, E'\\n'), %s::boolean[])"
    " AS given(position, project, words, cut_short)"
    f" ORDER BY position {_CHANGED} WHERE inquiry_effectwords.words <> excluded.words"
)
# A single statement: FTS5 writes out its buffer whenever another statement changes its table, which
# took five times as long for each row.
_WRITE_SQLITE: Final = (
    "INSERT INTO inquiry_effectwords (position, project_id, words, cut_short)"
    " SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),"
    " json_extract(value, '$[3]') FROM json_each(%s) WHERE TRUE"
    f" {_CHANGED} WHERE inquiry_effectwords.words <> excluded.words"
)


def alone() -> None:
    """Lock, until the transaction ends, the writing of words and the erasure of bodies.

    An erasure takes the same lock in its trigger. It finds the words written before it, and a later
    writer finds the erasure. SQLite has only one writer.
    """
    if connection.vendor == "postgresql":
        sql.rows("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def write(rows: Sequence[Words]) -> None:
    """Store the words of each effect in place of the stored ones. Needs the lock of `alone`."""
    ordered = sorted(rows, key=lambda row: row.position)
    empty = [row.position for row in ordered if not row.words]
    if empty:
        EffectWords.objects.filter(position__in=empty).delete()
    values = [
        (row.position, row.project, joined(row.project, row.words), row.cut_short)
        for row in ordered
        if row.words
    ]
    if not values:
        return
    if connection.vendor == "postgresql":
        positions, projects, words, are_cut = zip(*values, strict=True)
        sql.write(
            _WRITE_POSTGRESQL,
            [sql.keys(positions), sql.keys(projects), "\n".join(words), sql.keys(are_cut)],
        )
    else:
        sql.write(_WRITE_SQLITE, [json.dumps(values)])


def newest(
    terms: Asked, most: int, low: int | None = None, high: int | None = None
) -> tuple[list[int], int]:
    """Return the positions of the newest effects with all terms, at most `most`, newest first.

    The second value is the position down to which the list is complete, or 0 if there are no more.
    Positions outside of `low` to `high`, or of projects whose ids end alike, may be included. A
    PostgreSQL function makes its planner use only the index.
    """
    if connection.vendor == "postgresql":
        text = (
            "SELECT inquiry_newest_of_words(%s, %s, %s,"
            " greatest(min(position), %s), least(max(position), %s), %s)"
            " FROM inquiry_effectwords"
        )
        ((result,),) = sql.rows(text, [*terms.tsqueries(), terms.project, low, high, most])
        return result[1:], result[0]
    text = (
        "SELECT rowid FROM inquiry_wordindex"
        " WHERE inquiry_wordindex MATCH %s AND rowid BETWEEN %s AND %s"
    )
    ends = [0 if low is None else low, _LAST if high is None else high]
    rows = sql.rows(f"{text} ORDER BY rowid DESC LIMIT %s", [terms.match(), *ends, most])
    positions = [row[0] for row in rows]
    return positions, positions[-1] if len(positions) == most else 0


def names_no_others(project: UUID) -> bool:
    """Return True if `newest` without limits only returns effects of `project`.

    SQLite's index knows only the end of the project's id.
    """
    if connection.vendor == "postgresql":
        return True
    text = "SELECT 1 FROM agent_sessions_project WHERE substr(id, %s) = %s"
    return len(sql.rows(text, [-TOKEN, token(project)])) == 1


def forget_erased() -> None:
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
            sql.write(
                "INSERT INTO inquiry_wordindex (inquiry_wordindex, rank) VALUES ('merge', %s)",
                [pages],
            )
            # FTS5's way to report that nothing was left to do.
            if connection.connection.total_changes - before < 2:
                return
        pages = _MERGED


def empty_after_flush(using: str, **_signal: Any) -> None:
    """Rebuild SQLite's index after `post_migrate` if the table of words is empty.

    Tests may empty the table with a single statement.
    """
    table_names = connections[using].introspection.table_names()
    if connections[using].vendor == "sqlite" and {
        "inquiry_effectwords",
        "inquiry_wordindex",
    } <= set(table_names):
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT 1 FROM inquiry_effectwords LIMIT 1")
            if cursor.fetchone() is None:
                cursor.execute(
                    "INSERT INTO inquiry_wordindex (inquiry_wordindex) VALUES ('rebuild')"
                )


_DELETE: Final = (
    "INSERT INTO inquiry_wordindex (inquiry_wordindex, rowid, words)"
    " VALUES ('delete', OLD.position, OLD.words)"
)
_INSERT: Final = "INSERT INTO inquiry_wordindex (rowid, words) VALUES (NEW.position, NEW.words)"

# Deleting a body, in any way, deletes the words of its effect in the same transaction. The
# remaining text of the effect is read again when the job reaches the erasure's entry.
LAW: Final = Law(
    postgresql={
        "body_takes_its_words_along": (
            "journal_body",
            "AFTER DELETE ON journal_body FOR EACH ROW EXECUTE FUNCTION inquiry_take_words_along()",
        ),
    },
    functions=f"""
CREATE OR REPLACE FUNCTION inquiry_take_words_along() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock({_LOCK});
  DELETE FROM {{schema}}.inquiry_effectwords WHERE position = (
    SELECT effect.opened_position FROM {{schema}}.ledger_effect effect
    JOIN {{schema}}.journal_entry entry ON entry.effect = effect.id
    WHERE entry.position = OLD.entry_id);
  RETURN NULL;
END $$;
""",
    sqlite={
        "body_takes_its_words_along": (
            "journal_body",
            """AFTER DELETE ON journal_body BEGIN
            DELETE FROM inquiry_effectwords WHERE position = (
            SELECT effect.opened_position FROM ledger_effect effect
            JOIN journal_entry entry ON entry.effect = effect.id
            WHERE entry.position = OLD.entry_id); END""",
        ),
        "new_words_are_indexed": (
            "inquiry_effectwords",
            f"AFTER INSERT ON inquiry_effectwords BEGIN {_INSERT}; END",
        ),
        "deleted_words_leave_the_index": (
            "inquiry_effectwords",
            f"AFTER DELETE ON inquiry_effectwords BEGIN {_DELETE}; END",
        ),
        "changed_words_are_indexed_anew": (
            "inquiry_effectwords",
            f"AFTER UPDATE ON inquiry_effectwords BEGIN {_DELETE}; {_INSERT}; END",
        ),
    },
    needs=("inquiry_effectwords", "ledger_effect"),
)
