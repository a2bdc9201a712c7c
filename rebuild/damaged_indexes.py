"""Let SQLite compare its indexes with the rows of their tables.

An index that was made over a part of the rows, and then got back its text, misses the others:
each query by it does too, and so would every other check.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from django.db import connection

from db import raw_sql
from investigation.fulltext import store
from investigation.models import EffectText
from rebuild.row_comparison import RowDifference

MAX_COMPARED_EFFECTS: Final = 100_000  # whose comparison takes a second
MAX_LINES: Final = 1_000  # that SQLite reports of the whole database
DATABASE: Final = "sqlite_master"  # stands for what is of no table
_OF_INDEX: Final = re.compile(r"(?:missing from|entries in|entry in|order in|in) index (\S+)")
_OF_TABLE: Final = re.compile(r"(?:failed|value) in (\w+)")


def find_damaged_indexes(tables: Sequence[str] = ()) -> Iterator[RowDifference]:
    """Yield each index and table, of all or of some, that SQLite itself reports as damaged."""
    if connection.vendor != "sqlite":
        return
    owners = dict(raw_sql.fetch_rows("SELECT name, tbl_name FROM sqlite_master"))
    scopes = tables or (str(MAX_LINES),)
    lines = [
        line
        for scope in scopes
        for (line,) in raw_sql.fetch_rows(f"PRAGMA integrity_check({scope})")
        if line != "ok"
    ]
    grouped: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        index, table = _OF_INDEX.search(line), _OF_TABLE.search(line)
        if index is not None:
            where = owners.get(index[1], DATABASE), index[1]
        else:
            where = table[1] if table is not None and table[1] in owners else DATABASE, ""
        grouped.setdefault(where, []).append(line)
    for (table_name, index_name), reports in grouped.items():
        key = {"index": index_name} if index_name else {}
        more = f" ({len(reports) - 1:,} more lines)" if len(reports) > 1 else ""
        words = f"{reports[0]}{more}"
        yield RowDifference("damaged", table_name, None, None, key, 0, "*", words)
    if _WORDS in tables or (not tables and not has_long_word_index()):
        yield from _compare_word_index()


def has_long_word_index() -> bool:
    """Return True if the words of more than MAX_COMPARED_EFFECTS are stored, on SQLite.

    They are compared only where their table is chosen, because other writers wait for it.
    """
    if connection.vendor != "sqlite":
        return False
    return EffectText.objects.all()[MAX_COMPARED_EFFECTS:].exists()


def _compare_word_index() -> Iterator[RowDifference]:
    if report := store.compare_index():
        words = f"{report}. Make the index again: {store.REBUILD_INDEX}"
        yield RowDifference("damaged", _WORDS, None, None, {"index": WORD_INDEX}, 0, "*", words)


_WORDS: Final = EffectText._meta.db_table
WORD_INDEX: Final = "investigation_wordindex"
