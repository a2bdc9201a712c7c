"""Roots and proofs, compared with another RFC 6962 implementation."""

import hashlib
import random

import pytest
from pymerkle import InmemoryTree

from proofs import merkle

pytestmark = pytest.mark.once


class Tiles:
    """Tiles in memory, which refuse what the database refuses."""

    def __init__(self) -> None:
        self.stored: dict[tuple[int, int], bytes] = {}

    def read_tile(self, level: int, index: int) -> bytes:
        return self.stored.get((level, index), b"")

    def write_tile(self, level: int, index: int, hashes: bytes) -> None:
        assert hashes.startswith(self.read_tile(level, index))
        assert 0 < len(hashes) <= 256 * 32
        self.stored[level, index] = hashes


def hash_number(number: int) -> bytes:
    return hashlib.sha256(b"\x00" + str(number).encode()).digest()


def build_tiles(size: int, rng: random.Random) -> Tiles:
    """Append leaves in batches of random sizes."""
    tiles, end = Tiles(), 0
    while end < size:
        step = min(rng.choice([1, 3, 255, 256, 257, 3000]), size - end)
        end = merkle.append_leaves(end, [hash_number(n) for n in range(end, end + step)], tiles)
    return tiles


SIZES = [1, 2, 3, 255, 256, 257, 511, 512, 700, 65_535, 65_536, 65_537, 66_000]


@pytest.mark.matrix
def test_roots_and_proofs_equal_those_of_another_implementation() -> None:
    rng = random.Random(7)
    tree = InmemoryTree(algorithm="sha256")
    roots = {}
    for number in range(70_000):
        tree.append_entry(str(number).encode())
        if number + 1 in SIZES:
            roots[number + 1] = tree.get_root()
    tiles = build_tiles(70_000, rng)
    for size in SIZES:
        root = merkle.compute_root(size, tiles.read_tile)
        assert root == roots[size]
        assert root == merkle.compute_root_of_hashes([hash_number(n) for n in range(size)])
        for index in {0, size - 1, rng.randrange(size), rng.randrange(size)}:
            proof = merkle.build_inclusion_proof(index, size, tiles.read_tile)
            theirs = tree.prove_inclusion(index + 1, size)
            assert list(theirs.path[1:]) == proof
            leaf = hash_number(index)
            assert merkle.verify_inclusion(leaf, index, size, proof, root)
            assert not merkle.verify_inclusion(hash_number(-1), index, size, proof, root)
            assert size == 1 or not merkle.verify_inclusion(leaf, index, size, proof[1:], root)
            assert not merkle.verify_inclusion(leaf, index, size, [*proof, leaf], root)
        for old in {1, size // 2, size - 1, rng.randrange(size)} - {0}:
            proof = merkle.build_consistency_proof(old, size, tiles.read_tile)
            old_root = merkle.compute_root(old, tiles.read_tile)
            assert merkle.verify_consistency(old, size, old_root, root, proof)
            assert not merkle.verify_consistency(old, size, hash_number(-1), root, proof)
            assert not merkle.verify_consistency(old, size, old_root, hash_number(-1), proof)


def test_the_empty_tree_and_impossible_proofs() -> None:
    tiles = Tiles()
    assert merkle.compute_root(0, tiles.read_tile) == hashlib.sha256().digest()
    assert merkle.verify_consistency(0, 0, merkle.EMPTY_ROOT, merkle.EMPTY_ROOT, [])
    with pytest.raises(ValueError, match="has no leaf 3"):
        merkle.build_inclusion_proof(3, 3, tiles.read_tile)
    with pytest.raises(ValueError, match="not older"):
        merkle.build_consistency_proof(4, 3, tiles.read_tile)
    with pytest.raises(ValueError, match="too few hashes"):
        merkle.compute_root(2, tiles.read_tile)


def test_the_example_of_the_specification_has_its_tiles() -> None:
    """c2sp.org/tlog-tiles names the tiles of a tree of 70,000 leaves."""
    tiles = build_tiles(70_000, random.Random(3))
    widths = {key: len(hashes) // 32 for key, hashes in tiles.stored.items()}
    partial = {(0, 273): 112, (1, 1): 17, (2, 0): 1}
    full = {**{(0, index): 256 for index in range(273)}, (1, 0): 256}
    assert widths == partial | full
    for (level, index), width in widths.items():
        assert merkle.count_tile_hashes(70_000, level, index) == width
    assert merkle.count_tile_hashes(256, 1, 0) == 1
    assert merkle.count_tile_hashes(255, 1, 0) == 0
