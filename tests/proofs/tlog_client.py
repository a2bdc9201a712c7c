"""A client of transparency logs, written from the published C2SP specifications alone.

signed-note, tlog-checkpoint and tlog-tiles (c2sp.org). It imports nothing of Gatebook, so that it
shows what a stranger with another program sees.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

FULL = 256  # hashes of a full tile: its height is 8


@dataclass(frozen=True)
class Checkpoint:
    """The statement of a log: name, number of entries, and root."""

    origin: str
    size: int
    root: bytes


def open_checkpoint(note: bytes, verifier_key: str) -> Checkpoint:
    """Return the checkpoint of a note that the key signed. Raises ValueError."""
    name, key_hash, encoded = verifier_key.split("+", 2)
    typed_key = base64.b64decode(encoded, validate=True)
    digest = hashlib.sha256(name.encode() + b"\n" + typed_key).digest()
    if typed_key[0] != 1 or digest[:4].hex() != key_hash:
        raise ValueError("not an Ed25519 verifier key")
    text, _, signatures = note.decode().rpartition("\n\n")
    text += "\n"
    for line in signatures.splitlines():
        dash, signer, signature = line.split(" ")
        raw = base64.b64decode(signature, validate=True)
        if dash == "—" and signer == name and raw[:4].hex() == key_hash:
            Ed25519PublicKey.from_public_bytes(typed_key[1:]).verify(raw[4:], text.encode())
            origin, size, root, *_extensions = text.splitlines()
            if origin != name:
                raise ValueError("another log's checkpoint")
            return Checkpoint(origin, int(size), base64.b64decode(root, validate=True))
    raise ValueError("no signature of the key")


def tile_path(level: int | str, number: int, width: int = FULL) -> str:
    """Return the path of a tile: groups of three digits, all but the last after an x."""
    digits = f"{number:03}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    name = "/".join([*(f"x{group}" for group in groups[:-1]), groups[-1]])
    return f"tile/{level}/{name}" + ("" if width == FULL else f".p/{width}")


@dataclass
class Log:
    """A log of `size` entries, read tile by tile through `fetch`."""

    size: int
    fetch: Callable[[str], bytes]
    tiles: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def read_tile(self, level: int, number: int) -> bytes:
        """Return the hashes of a tile; the last one of a level may be partial."""
        if (level, number) not in self.tiles:
            width = min((self.size >> (8 * level)) - number * FULL, FULL)
            tile = self.fetch(tile_path(level, number, width))
            if len(tile) != width * 32:
                raise ValueError("a tile of another width")
            self.tiles[level, number] = tile
        return self.tiles[level, number]

    def hash_range(self, first: int, end: int) -> bytes:
        """Return MTH over leaves, RFC 6962 section 2.1, from the tiles of the highest level."""
        count = end - first
        if count == 0:
            return hashlib.sha256(b"").digest()
        level = 0
        while count % FULL ** (level + 1) == 0 and count == FULL ** (level + 1):
            level += 1
        if count == FULL**level:
            number, offset = divmod(first // FULL**level, FULL)
            return self.read_tile(level, number)[offset * 32 : offset * 32 + 32]
        half = 1
        while half * 2 < count:
            half *= 2
        left, right = self.hash_range(first, first + half), self.hash_range(first + half, end)
        return hashlib.sha256(b"\x01" + left + right).digest()

    def read_entries(self, number: int) -> Iterator[bytes]:
        """Yield the entries of a bundle, each after its length in two bytes."""
        width = min(self.size - number * FULL, FULL)
        data = self.fetch(tile_path("entries", number, width))
        while data:
            length = int.from_bytes(data[:2], "big")
            yield data[2 : 2 + length]
            data = data[2 + length :]
