"""The one writer of SealedEntry, Tile and SealProgress: the stored tree.

Writers hold `lock_tree` in their transaction.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from django.db import connection

from db import raw_sql
from proofs.merkle import HASH_BYTES, TILE_HEIGHT, TILE_WIDTH, TileReader, count_tile_hashes

# PostgreSQL's advisory locks are numbers; this number spells "seal".
_LOCK: Final = 1_936_023_916

_END: Final = "SELECT log_index, entry_id FROM proofs_sealedentry ORDER BY log_index DESC LIMIT 1"
_READ_TILE: Final = 'SELECT hashes FROM proofs_tile WHERE level = %s AND "index" = %s'
_ADD_TILE: Final = 'INSERT INTO proofs_tile (level, "index", hashes) VALUES (%s, %s, %s)'
_GROW_TILE: Final = 'UPDATE proofs_tile SET hashes = %s WHERE level = %s AND "index" = %s'
_SEAL: Final = {
    "postgresql": (
        "INSERT INTO proofs_sealedentry (log_index, entry_id)"
        " SELECT %s::bigint + number - 1, position"
        " FROM unnest(%s::bigint[]) WITH ORDINALITY AS sealed(position, number)"
    ),
    "sqlite": (
        "INSERT INTO proofs_sealedentry (log_index, entry_id)"
        " SELECT %s + key, value FROM json_each(%s) ORDER BY key"
    ),
}
_STORE_PROGRESS: Final = (
    "INSERT INTO proofs_sealprogress (id, position, writers) VALUES (1, %s, %s)"
    " ON CONFLICT (id) DO UPDATE SET position = excluded.position, writers = excluded.writers"
)


class SealDamageError(RuntimeError):
    """Somebody wrote into the journal or the tree past Gatebook. The text says where."""


class TreeEnd(NamedTuple):
    """The size of the tree, and the journal position of its last leaf (0 if it is empty)."""

    size: int
    position: int


def lock_tree(*, wait: bool = False) -> bool:
    """Lock the tree until the transaction ends; False if another process holds the lock.

    SQLite has only one writer.
    """
    if connection.vendor != "postgresql":
        return True
    if wait:
        raw_sql.fetch_rows("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        return True
    return bool(raw_sql.fetch_rows("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])[0][0])


def load_tree_end() -> TreeEnd:
    """Return the end of the tree. One index probe."""
    rows = raw_sql.fetch_rows(_END)
    return TreeEnd(rows[0][0] + 1, rows[0][1]) if rows else TreeEnd(0, 0)


def check_tree_end(end: TreeEnd, read_tile: TileReader) -> None:
    """Check that the last tiles have a hash for each sealed entry, and no more.

    Needs `lock_tree` in a transaction. Raises SealDamageError.
    """
    level = 0
    while (nodes := end.size >> TILE_HEIGHT * level) or not level:
        index = max(nodes - 1, 0) // TILE_WIDTH
        for number in (index, index + 1):
            stored = len(read_tile(level, number)) / HASH_BYTES
            if stored != count_tile_hashes(end.size, level, number):
                raise SealDamageError(_explain_end(end, level, number, stored))
        level += 1


def _explain_end(end: TreeEnd, level: int, index: int, stored: float) -> str:
    wanted = count_tile_hashes(end.size, level, index)
    what = (
        f"rows were added to proofs_sealedentry, up to log index {end.size - 1} (position"
        f" {end.position}), or the tile was cut"
        if stored < wanted
        else "hashes were added to the tile, or rows of proofs_sealedentry are gone"
    )
    return (
        f"Nothing is sealed: tile {level}/{index} has {stored:g} hashes, and {end.size} sealed"
        f" entries need {wanted}. Gatebook writes both together, so {what}. `manage.py verify`"
        " names the fault. The owner of the database removes what was added, or restores a backup"
        " (docs/how-to/insider.md, When the sealer stops)."
    )


def load_tile(level: int, index: int) -> bytes:
    """Return the stored hashes of a tile, empty if there is none."""
    rows = raw_sql.fetch_rows(_READ_TILE, [level, index])
    return bytes(rows[0][0]) if rows else b""


class StoredTiles:
    """Reads tiles from the database, each once, and stores new and grown ones."""

    def __init__(self) -> None:
        self._tiles: dict[tuple[int, int], bytes] = {}

    def read_tile(self, level: int, index: int) -> bytes:
        """Return the hashes of a tile, empty if there is none."""
        key = (level, index)
        if key not in self._tiles:
            self._tiles[key] = load_tile(level, index)
        return self._tiles[key]

    def write_tile(self, level: int, index: int, hashes: bytes) -> None:
        """Store a tile that is new or has grown."""
        key = (level, index)
        if self._tiles.get(key):
            raw_sql.execute_write(_GROW_TILE, [hashes, level, index])
        else:
            raw_sql.execute_write(_ADD_TILE, [level, index, hashes])
        self._tiles[key] = hashes


def open_tiles() -> TileReader:
    """Return a function that reads tiles from the database, each once."""
    return StoredTiles().read_tile


def store_sealed_entries(first_index: int, positions: Sequence[int]) -> None:
    """Store the entries at these positions as the leaves from `first_index` on."""
    raw_sql.execute_write(
        _SEAL[connection.vendor], [first_index, raw_sql.to_array_parameter(positions)]
    )


def load_progress() -> tuple[int, frozenset[str]]:
    """Return the position that waits for writers, and these writers."""
    rows = raw_sql.fetch_rows("SELECT position, writers FROM proofs_sealprogress")
    return (rows[0][0], frozenset(rows[0][1].split())) if rows else (0, frozenset())


def store_progress(position: int, writers: frozenset[str]) -> None:
    """Store the position that waits for `writers`."""
    raw_sql.execute_write(_STORE_PROGRESS, [position, " ".join(sorted(writers))])
