"""Inclusion proofs: the place of an entry in the tree, and the path to a tree head."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from db import raw_sql
from proofs.merkle import (
    TILE_HEIGHT,
    TILE_WIDTH,
    TileReader,
    build_inclusion_proof,
    count_tile_hashes,
    hash_node,
    split_hashes,
)
from proofs.models import SealedEntry, SigningKey, TreeHead
from proofs.tree_store import load_tile

# Sizes of heads never shrink, so that halving finds the first one in 22 steps of three million.
_FIRST_HEAD: Final = """
WITH RECURSIVE search(low, high) AS (
  SELECT CAST(1 AS bigint), (SELECT max(id) FROM proofs_treehead WHERE id > 0)
  UNION ALL
  SELECT CASE WHEN head.size > %s THEN search.low ELSE head.id + 1 END,
    CASE WHEN head.size > %s THEN head.id ELSE search.high END
  FROM search JOIN proofs_treehead head ON head.id = (search.low + search.high) / 2
  WHERE search.low < search.high
)
SELECT low FROM search WHERE low = high
"""


# Their times grow too, unless the clock was set back.
_FIRST_HEAD_SINCE: Final = _FIRST_HEAD.replace("head.size > %s", "head.made_at_us >= %s")


class Inclusion(NamedTuple):
    """The proof that an entry is in the tree of `size` entries, whose root `head` signs."""

    log_index: int
    size: int
    path: list[bytes]
    head: TreeHead


def load_inclusion(position: int, head: TreeHead | None = None) -> Inclusion | None:
    """Return the proof of an entry under `head`, by default the first head that covers it.

    None if the entry is not sealed, or no head covers it yet. Four queries.
    """
    sealed = SealedEntry.objects.filter(entry=position).values_list("log_index", flat=True).first()
    if sealed is None:
        return None
    head = head or load_first_head(sealed)
    if head is None or head.size <= sealed:
        return None
    tiles = preload_tiles([sealed], head.size)
    return Inclusion(sealed, head.size, build_inclusion_proof(sealed, head.size, tiles), head)


def load_first_head(log_index: int) -> TreeHead | None:
    """Return the first tree head that covers the entry at `log_index`. Two queries."""
    rows = raw_sql.fetch_rows(_FIRST_HEAD, [log_index, log_index])
    head = TreeHead.objects.filter(id=rows[0][0]).first() if rows else None
    return head if head is not None and head.size > log_index else None


def load_first_head_of_key(key: SigningKey) -> TreeHead | None:
    """Return the first tree head that a key signed.

    Another head of the key where the clock was set back at its rotation. Two or three queries.
    """
    rows = raw_sql.fetch_rows(_FIRST_HEAD_SINCE, [key.first_used_us, key.first_used_us])
    head = TreeHead.objects.filter(id=rows[0][0]).first() if rows else None
    if head is None or head.key_id != key.key_id:
        head = TreeHead.objects.order_by("-id").first()
    return head if head is not None and head.key_id == key.key_id else None


def preload_tiles(log_indexes: Sequence[int], size: int) -> TileReader:
    """Return a reader of tiles that holds those of the given proofs; one query a 200 tiles."""
    wanted: set[tuple[int, int]] = set()
    level = 0
    while size >> (8 * level):
        last = max((size >> (8 * level)) - 1, 0) // TILE_WIDTH
        indexes = {(index >> (8 * level)) // TILE_WIDTH for index in log_indexes} | {last}
        wanted |= {(level, index) for index in indexes if count_tile_hashes(size, level, index)}
        level += 1
    tiles: dict[tuple[int, int], bytes] = {}
    ordered = sorted(wanted)
    for start in range(0, len(ordered), 200):
        part = ordered[start : start + 200]
        rows = raw_sql.fetch_rows(
            'SELECT level, "index", hashes FROM proofs_tile WHERE '
            + " OR ".join(['(level = %s AND "index" = %s)'] * len(part)),
            [value for key in part for value in key],
        )
        tiles |= {(level, index): bytes(hashes) for level, index, hashes in rows}

    def read_tile(level: int, index: int) -> bytes:
        key = (level, index)
        if key not in tiles:
            tiles[key] = load_tile(level, index)
        return tiles[key]

    return read_tile


class PathBuilder:
    """Builds many inclusion proofs in one tree; each tile is hashed once."""

    def __init__(self, size: int, read_tile: TileReader) -> None:
        self.size, self._read_tile = size, read_tile
        self._levels: dict[tuple[int, int], list[list[bytes]]] = {}
        self._ranges: dict[tuple[int, int], bytes] = {}

    def build_path(self, index: int) -> list[bytes]:
        """Return the proof of leaf `index`, as `build_inclusion_proof` does."""
        path = []
        start, end = 0, self.size
        while end - start > 1:
            middle = start + (1 << (end - start - 1).bit_length() - 1)
            if index < middle:
                path.append(self._compute_range(middle, end))
                end = middle
            else:
                path.append(self._compute_range(start, middle))
                start = middle
        return path[::-1]

    def _compute_range(self, start: int, end: int) -> bytes:
        number = end - start
        if number & (number - 1) == 0:
            return self._read_node(number.bit_length() - 1, start)
        key = (start, end)
        if key not in self._ranges:  # only the right edge of the tree has such ranges
            middle = start + (1 << (number - 1).bit_length() - 1)
            self._ranges[key] = hash_node(
                self._compute_range(start, middle), self._compute_range(middle, end)
            )
        return self._ranges[key]

    def _read_node(self, height: int, start: int) -> bytes:
        level, above = divmod(height, TILE_HEIGHT)
        index, offset = divmod(start >> (TILE_HEIGHT * level), TILE_WIDTH)
        key = (level, index)
        if key not in self._levels:
            levels = [split_hashes(self._read_tile(level, index))]
            while len(levels[-1]) > 1:
                low = iter(levels[-1])
                pairs = zip(low, low, strict=False)  # a last one without a sibling is left out
                levels.append([hash_node(left, right) for left, right in pairs])
            self._levels[key] = levels
        return self._levels[key][above][offset >> above]
