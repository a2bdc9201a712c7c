"""RFC 6962 trees from C2SP tiles: roots, inclusion and consistency proofs.

A tile has up to 256 hashes of one level; a hash of level L + 1 is the root of a full tile of level
L. This module is pure: it reads tiles through a function.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

HASH_BYTES: Final = 32
TILE_HEIGHT: Final = 8
TILE_WIDTH: Final = 2**TILE_HEIGHT
EMPTY_ROOT: Final = hashlib.sha256().digest()
# Returns the stored hashes of a tile (level, index), concatenated.
TileReader = Callable[[int, int], bytes]


class TileStore(Protocol):
    """The growing tiles of a tree, as `append_leaves` reads and writes them."""

    def read_tile(self, level: int, index: int) -> bytes:
        """Return the hashes of a tile, empty if there is none."""

    def write_tile(self, level: int, index: int, hashes: bytes) -> None:
        """Store a tile that is new or has grown."""


def hash_node(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def compute_perfect_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root over 2^k hashes."""
    level = list(hashes)
    while len(level) > 1:
        level = [
            hashlib.sha256(b"\x01" + level[at] + level[at + 1]).digest()
            for at in range(0, len(level), 2)
        ]
    return level[0]


def compute_root_of_hashes(hashes: Sequence[bytes]) -> bytes:
    """Return the root over any number of leaf hashes, without tiles."""
    if not hashes:
        return EMPTY_ROOT
    if len(hashes) == 1:
        return hashes[0]
    cut = _split(len(hashes))
    return hash_node(compute_root_of_hashes(hashes[:cut]), compute_root_of_hashes(hashes[cut:]))


def append_leaves(size: int, hashes: Iterable[bytes], store: TileStore) -> int:
    """Add leaf hashes to a tree of `size` leaves; return its new size."""
    level, start, added = 0, size, list(hashes)
    new_size = size + len(added)
    while added:
        roots = []
        index = start // TILE_WIDTH
        tile = store.read_tile(level, index) if start % TILE_WIDTH else b""
        next_start = index  # of the level above
        at = 0
        while at < len(added):
            free = TILE_WIDTH - len(tile) // HASH_BYTES
            tile += b"".join(added[at : at + free])
            at += free
            store.write_tile(level, index, tile)
            if len(tile) == TILE_WIDTH * HASH_BYTES:
                roots.append(compute_perfect_root(split_hashes(tile)))
            index, tile = index + 1, b""
        level, start, added = level + 1, next_start, roots
    return new_size


def split_hashes(tile: bytes) -> list[bytes]:
    """Return the hashes of a tile one by one."""
    return [tile[at : at + HASH_BYTES] for at in range(0, len(tile), HASH_BYTES)]


def count_tile_hashes(size: int, level: int, index: int) -> int:
    """Return how many hashes a tile has in a tree of `size` leaves; 0 if it has no such tile."""
    at_level = size >> (TILE_HEIGHT * level)
    return max(0, min(TILE_WIDTH, at_level - index * TILE_WIDTH))


def compute_root(size: int, read_tile: TileReader) -> bytes:
    """Return the root of the tree with `size` leaves."""
    return _compute_range_root(0, size, read_tile) if size else EMPTY_ROOT


def build_inclusion_proof(index: int, size: int, read_tile: TileReader) -> list[bytes]:
    """Return the proof that leaf `index` is in the tree with `size` leaves (RFC 6962, 2.1.1).

    Raises ValueError if the tree has no such leaf.
    """
    if not 0 <= index < size:
        raise ValueError(f"A tree of {size} leaves has no leaf {index}.")
    proof = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            proof.append(_compute_range_root(middle, end, read_tile))
            end = middle
        else:
            proof.append(_compute_range_root(start, middle, read_tile))
            start = middle
    return proof[::-1]


def build_consistency_proof(old_size: int, size: int, read_tile: TileReader) -> list[bytes]:
    """Return the proof that a tree grew from `old_size` to `size` leaves (RFC 6962, 2.1.2).

    Raises ValueError if the old tree is larger.
    """
    if not 0 <= old_size <= size:
        raise ValueError(f"A tree of {old_size} leaves is not older than one of {size}.")
    if old_size in (0, size):
        return []
    proof = []
    start, end, is_whole = 0, size, True
    while old_size < end:
        middle = start + _split(end - start)
        if old_size <= middle:
            proof.append(_compute_range_root(middle, end, read_tile))
            end = middle
        else:
            proof.append(_compute_range_root(start, middle, read_tile))
            start, is_whole = middle, False
    if not is_whole:
        proof.append(_compute_range_root(start, end, read_tile))
    return proof[::-1]


def verify_inclusion(
    leaf_hash: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """Return whether `proof` leads from the leaf to the root (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    node, last, computed = index, size - 1, leaf_hash
    for sibling in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            computed = hash_node(sibling, computed)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            computed = hash_node(computed, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and computed == root


def verify_consistency(
    old_size: int, size: int, old_root: bytes, root: bytes, proof: Sequence[bytes]
) -> bool:
    """Return whether the tree of `size` leaves begins with the old one (RFC 9162, 2.1.4.2)."""
    if old_size > size or old_size < 0:
        return False
    if old_size == size:
        return not proof and old_root == root
    if old_size == 0:
        return not proof and old_root == EMPTY_ROOT
    path = list(proof)
    if old_size & (old_size - 1) == 0:
        path.insert(0, old_root)
    if not path:
        return False
    node, last = old_size - 1, size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    old_computed = computed = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            old_computed = hash_node(sibling, old_computed)
            computed = hash_node(sibling, computed)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            computed = hash_node(computed, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and old_computed == old_root and computed == root


def _split(number: int) -> int:
    """Return the largest power of two below `number`, which is at least 2."""
    return 1 << ((number - 1).bit_length() - 1)


def _compute_range_root(start: int, end: int, read_tile: TileReader) -> bytes:
    """Return the root over leaves [start, end); `start` is aligned as RFC 6962 splits trees."""
    number = end - start
    if number & (number - 1):
        cut = _split(number)
        return hash_node(
            _compute_range_root(start, start + cut, read_tile),
            _compute_range_root(start + cut, end, read_tile),
        )
    height = number.bit_length() - 1
    level, above = divmod(height, TILE_HEIGHT)
    first = start >> (TILE_HEIGHT * level)
    index, offset = divmod(first, TILE_WIDTH)
    tile = read_tile(level, index)[offset * HASH_BYTES : (offset + (1 << above)) * HASH_BYTES]
    if len(tile) != (1 << above) * HASH_BYTES:
        raise ValueError(f"Tile {level}/{index} has too few hashes.")
    return compute_perfect_root(split_hashes(tile))
