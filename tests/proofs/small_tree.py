"""A tree in memory with signed heads, for tests of anchors."""

from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proofs import merkle, signed_note
from proofs.anchors.published_head import LastReceipt, PublishedHead

ORIGIN = "gatebook/0123456789abcdef"


class SmallTree:
    """Leaves, and heads of any size of theirs; a TreeReader of anchors."""

    def __init__(self, leaves: int, content: bytes = b"leaf") -> None:
        self.hashes = [merkle.hash_node(content, b"%d" % number) for number in range(leaves)]
        self.key = Ed25519PrivateKey.from_private_bytes(bytes(32))

    def compute_root(self, size: int) -> bytes:
        return merkle.compute_root_of_hashes(self.hashes[:size])

    def prove_consistency(self, old_size: int, new_size: int) -> Sequence[bytes]:
        tiles: dict[tuple[int, int], bytes] = {}

        class Store:
            def read_tile(self, level: int, index: int) -> bytes:
                return tiles.get((level, index), b"")

            def write_tile(self, level: int, index: int, hashes: bytes) -> None:
                tiles[level, index] = hashes

        merkle.append_leaves(0, self.hashes[:new_size], Store())
        return merkle.build_consistency_proof(old_size, new_size, Store().read_tile)

    def make_head(self, number: int, size: int) -> PublishedHead:
        """Return head `number`, signed, of the first `size` leaves."""
        root = self.compute_root(size)
        made_at_us = 1_700_000_000_000_000 + number
        text = signed_note.format_head_text(ORIGIN, size, root, made_at_us)
        note = signed_note.sign_note(text, [(ORIGIN, self.key)])
        return PublishedHead(number, ORIGIN, size, root, made_at_us, note)


def read_last(head: PublishedHead, receipt: dict[str, Any]) -> LastReceipt:
    """Return what Gatebook knows after `head` was anchored with `receipt`."""
    return LastReceipt(head.number, head.size, head.note, receipt)
