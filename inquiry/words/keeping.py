"""The one writer of EffectWords: the rows, the law that takes erased words along, and which rows hold asked words.

On PostgreSQL a GIN index stands over the rows; on SQLite an FTS5 table, which triggers keep in step with them.
"""

from collections.abc import Sequence
from typing import Any, Final

from django.db import connection, connections, transaction

from inquiry.models_words import EffectWords
from inquiry.words.column import AS_TSVECTOR, Asked, joined, stored
from inquiry.words.reading import Words
from journal import sql
from journal.triggers import Law

_LOCK: Final = 512_970_878_067  # PostgreSQL's advisory locks are numbers; this one spells "words"
_MERGED: Final = 500  # pages of the FTS5 index that one transaction rewrites

_CHANGED: Final = "ON CONFLICT (position) DO UPDATE SET words = excluded.words, cut_short = excluded.cut_short"
# Behind the words comes, on PostgreSQL, where in the journal the effect stands: a word that nobody can ask for, by
# which inquiry_span_of_words goes through the index from either end. 15 is its figure too (see the migration).
_PLACED: Final = "btrim(words) || ' ' || substr(btrim(words), 1, 4) || '#' || (position >> 15)"
_WRITE_POSTGRESQL: Final = (
    "INSERT INTO inquiry_effectwords (position, project_id, words, cut_short)"
    f" SELECT position, project, {AS_TSVECTOR.format(_PLACED)}, cut_short"
    " FROM unnest(%s::bigint[], %s::uuid[], %s::text[], %s::boolean[]) AS given(position, project, words, cut_short)"
    f" ORDER BY position {_CHANGED} WHERE inquiry_effectwords.words <> excluded.words"
)
_WRITE_SQLITE: Final = (
    "INSERT INTO inquiry_effectwords (position, project_id, words, cut_short) VALUES (%s, %s, %s, %s)"
    f" {_CHANGED} WHERE inquiry_effectwords.words <> excluded.words"
)


_LATELY: Final = (
    "SELECT count(*) FROM (SELECT project_id, words FROM inquiry_effectwords ORDER BY position DESC LIMIT 2000) newest"
    " WHERE project_id = %s AND words @@ %s::tsquery"
)
_MANY: Final = 100  # of those


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
        (one.position, sql.vendor_id(one.project), joined(one.project, one.words), one.cut_short)
        for one in ordered
        if one.words
    ]
    if not values:
        return
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_WRITE_POSTGRESQL, [list(column) for column in zip(*values, strict=True)])
    else:
        sql.write_each(_WRITE_SQLITE, values)


def positions(asked: Asked, most: int) -> list[int] | None:
    """Positions of all effects whose stored words hold what is asked; None for more than `most`, or for many lately.

    May name those of a project whose id ends alike. PostgreSQL goes by the index and nothing else, whatever its figures
    make it believe of the words: a function does it, which forbids the other ways for as long as it runs. Where every
    twentieth of the newest rows holds them, that is enough to know: to gather half a million takes a while.
    """
    if connection.vendor == "postgresql":
        ((lately,),) = sql.rows(_LATELY, [asked.project, asked.tsquery()])
        if lately >= _MANY:
            return None
        text = "SELECT inquiry_positions_of_words(%s, %s, %s)"
        ((found,),) = sql.rows(text, [asked.tsquery(), asked.project, most + 1])
        found = found or []
    else:
        text = "SELECT rowid FROM inquiry_wordindex WHERE inquiry_wordindex MATCH %s LIMIT %s"
        found = [row[0] for row in sql.rows(text, [asked.match(), most + 1])]
    return found if len(found) <= most else None


def span(asked: Asked) -> tuple[int, int] | None:
    """Positions between which all effects stand whose stored words hold what is asked; None where that is not told.

    What was said all the time a year ago, and never since, is then not looked for in everything that was said since.
    """
    whole = Asked(asked.project, tuple(term for term in asked.terms if not term.prefix))
    if not whole.terms:
        return None  # beginnings are gathered anew each time, which takes longer than it saves
    if connection.vendor == "postgresql":
        token = stored(asked.project, "")
        ((found,),) = sql.rows(
            "SELECT inquiry_span_of_words(%s, %s, %s, min(position), max(position)) FROM inquiry_effectwords",
            [whole.tsquery(), asked.project, token],
        )
        return (found[0], found[1]) if found else None
    ends = []
    for order in ("", " DESC"):
        text = "SELECT rowid FROM inquiry_wordindex WHERE inquiry_wordindex MATCH %s ORDER BY rowid" + order
        ends += sql.rows(f"{text} LIMIT 1", [whole.match()])
    return (ends[0][0], ends[1][0]) if len(ends) > 1 else None


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
