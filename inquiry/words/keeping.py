"""The one writer of EffectWords: the rows, the law that takes erased words along, and which rows hold asked words.

On PostgreSQL a GIN index stands over the rows; on SQLite an FTS5 table, which triggers keep in step with them.
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

_LOCK: Final = 512_970_878_067  # PostgreSQL's advisory locks are numbers; this one spells "words"
_LAST: Final = 2**63 - 1
_MERGED: Final = 500  # pages of the FTS5 index that one transaction rewrites

_CHANGED: Final = "ON CONFLICT (position) DO UPDATE SET words = excluded.words, cut_short = excluded.cut_short"
_WRITE_POSTGRESQL: Final = (
    "INSERT INTO inquiry_effectwords (position, project_id, words, cut_short)"
    f" SELECT position, project, {AS_TSVECTOR.format('words')}, cut_short"
    " FROM unnest(%s::bigint[], %s::uuid[], string_to_array(%s, E'\\n'), %s::boolean[])"
    " AS given(position, project, words, cut_short)"
    f" ORDER BY position {_CHANGED} WHERE inquiry_effectwords.words <> excluded.words"
)
# All in one statement: FTS5 writes out what it gathered whenever a further statement changes its table, which for every
# row took five times as long as to gather it.
_WRITE_SQLITE: Final = (
    "INSERT INTO inquiry_effectwords (position, project_id, words, cut_short)"
    " SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),"
    " json_extract(value, '$[3]') FROM json_each(%s) WHERE TRUE"
    f" {_CHANGED} WHERE inquiry_effectwords.words <> excluded.words"
)


def alone() -> None:
    """Wait, inside a transaction, until nobody else writes words or erases bodies; nobody begins to before its end.

    An erasure takes the same lock in its trigger: it finds the words that were written before it, and whoever writes
    after it finds the erasure. SQLite has one writer anyway.
    """
    if connection.vendor == "postgresql":
        sql.rows("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def write(rows: Sequence[Words]) -> None:
    """Store the words of each, in place of those that were stored. Inside a transaction that is `alone`."""
    ordered = sorted(rows, key=lambda one: one.position)
    empty = [one.position for one in ordered if not one.words]
    if empty:
        EffectWords.objects.filter(position__in=empty).delete()
    values = [
        (one.position, one.project, joined(one.project, one.words), one.cut_short) for one in ordered if one.words
    ]
    if not values:
        return
    if connection.vendor == "postgresql":
        places, projects, words, cuts = zip(*values, strict=True)
        sql.write(_WRITE_POSTGRESQL, [sql.keys(places), sql.keys(projects), "\n".join(words), sql.keys(cuts)])
    else:
        sql.write(_WRITE_SQLITE, [json.dumps(values)])


def newest(asked: Asked, most: int, low: int | None = None, high: int | None = None) -> tuple[list[int], int]:
    """Positions of the newest effects whose stored words hold what is asked, at most `most`, newest first; and the
    position down to which these are all, 0 where there are no more.

    Only those from `low` to `high` are wanted; others may be named too, as may those of a project whose id ends alike.
    PostgreSQL is asked by a function, which lets its index alone answer, whatever its figures make it believe.
    """
    if connection.vendor == "postgresql":
        text = (
            "SELECT inquiry_newest_of_words(%s, %s, %s, greatest(min(position), %s), least(max(position), %s), %s)"
            " FROM inquiry_effectwords"
        )
        ((answer,),) = sql.rows(text, [*asked.tsqueries(), asked.project, low, high, most])
        return answer[1:], answer[0]
    text = "SELECT rowid FROM inquiry_wordindex WHERE inquiry_wordindex MATCH %s AND rowid BETWEEN %s AND %s"
    ends = [0 if low is None else low, _LAST if high is None else high]
    rows = sql.rows(f"{text} ORDER BY rowid DESC LIMIT %s", [asked.match(), *ends, most])
    found = [row[0] for row in rows]
    return found, found[-1] if len(found) == most else 0


def names_no_others(project: UUID) -> bool:
    """Whether all that `newest` names without ends are of `project`: SQLite's index knows but the end of its id."""
    if connection.vendor == "postgresql":
        return True
    text = "SELECT 1 FROM agent_sessions_project WHERE substr(id, %s) = %s"
    return len(sql.rows(text, [-TOKEN, token(project)])) == 1


def forget_erased() -> None:
    """Rewrite SQLite's index until nothing of deleted rows is left in it, a little at a time; other writers go between.

    FTS5 only notes that a row is gone, and keeps its words until what it has written is merged.
    """
    if connection.vendor != "sqlite":
        return
    pages = -_MERGED  # the first asks for everything to be merged, the others go on with it
    while True:
        with transaction.atomic():
            before = connection.connection.total_changes
            sql.write("INSERT INTO inquiry_wordindex (inquiry_wordindex, rank) VALUES ('merge', %s)", [pages])
            if connection.connection.total_changes - before < 2:  # FTS5's way to say that nothing was left to do
                return
        pages = _MERGED


def empty_after_flush(using: str, **_signal: Any) -> None:
    """Receiver of `post_migrate`: an index without rows is an empty one, also when a test emptied the table at once."""
    present = connections[using].introspection.table_names()
    if connections[using].vendor == "sqlite" and {"inquiry_effectwords", "inquiry_wordindex"} <= set(present):
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT 1 FROM inquiry_effectwords LIMIT 1")
            if cursor.fetchone() is None:
                cursor.execute("INSERT INTO inquiry_wordindex (inquiry_wordindex) VALUES ('rebuild')")


_DELETE: Final = (
    "INSERT INTO inquiry_wordindex (inquiry_wordindex, rowid, words) VALUES ('delete', OLD.position, OLD.words)"
)
_INSERT: Final = "INSERT INTO inquiry_wordindex (rowid, words) VALUES (NEW.position, NEW.words)"

# Whoever destroys a body, and by whatever way, destroys the words of its effect in the same transaction. What is left
# of the effect is read again when the erasure's entry is heard of.
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
    JOIN {{schema}}.journal_entry entry ON entry.effect = effect.id WHERE entry.position = OLD.entry_id);
  RETURN NULL;
END $$;
""",
    sqlite={
        "body_takes_its_words_along": (
            "journal_body",
            """AFTER DELETE ON journal_body BEGIN
            DELETE FROM inquiry_effectwords WHERE position = (
            SELECT effect.opened_position FROM ledger_effect effect
            JOIN journal_entry entry ON entry.effect = effect.id WHERE entry.position = OLD.entry_id); END""",
        ),
        "new_words_are_indexed": ("inquiry_effectwords", f"AFTER INSERT ON inquiry_effectwords BEGIN {_INSERT}; END"),
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
