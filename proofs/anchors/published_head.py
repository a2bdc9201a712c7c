"""What every kind of anchor works with: heads to publish, the tree, and notes published before."""

import base64
import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import orjson

# A whole signed tree head with or without its time, wherever it begins in a text. What a broken
# write left behind does not match.
_NOTE: Final = re.compile(
    rb"^(?P<origin>[^\n]+)\n(?P<size>0|[1-9][0-9]{0,18})\n(?P<root>[A-Za-z0-9+/]{43}=)\n"
    rb"(?:signed_at [0-9TZ:.-]+\n)?(?:last_position [0-9]+\n)?"
    rb"\n(?:\xe2\x80\x94 [^ \n]+ [A-Za-z0-9+/=]+\n)+",
    re.MULTILINE,
)


class AnchorFailed(Exception):
    """An anchor took no tree head. The message says why and what to do."""


class AnchorContradicts(AnchorFailed):
    """What an anchor holds is not the beginning of this history, or is gone."""


class PublishedHead(NamedTuple):
    """A tree head to publish: its number on pages, and its signed note."""

    number: int
    origin: str
    size: int
    root: bytes
    made_at_us: int
    note: str


class NoteInPlace(NamedTuple):
    """A signed note as an anchor holds it."""

    origin: str
    size: int
    root: bytes
    text: str
    start: int  # byte in what was searched


class LastReceipt(NamedTuple):
    """What an anchor took last, and what Gatebook noted about it."""

    number: int
    size: int
    note: str
    receipt: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnchorTarget:
    """An anchor of GATEBOOK_ANCHORS. `address` is a path, a URL or a git remote."""

    name: str
    kind: str
    address: str
    branch: str = ""  # of git
    key: str = ""  # of a witness: its verifier key
    makes_folder: bool = False  # creates the folder of its path
    every_s: int = 0  # publishes only the newest head, at most once in this time; 0: every head


class TreeReader(Protocol):
    """The tree as this database holds it now."""

    def compute_root(self, size: int) -> bytes:
        """Return the root of the first `size` entries."""

    def prove_consistency(self, old_size: int, new_size: int) -> Sequence[bytes]:
        """Return the RFC 6962 consistency proof between two sizes."""


def find_notes(content: bytes) -> list[NoteInPlace]:
    """Return the signed tree heads in `content`, in their order; anything else is skipped."""
    return list(iterate_notes(content))


def iterate_notes(content: bytes | mmap.mmap) -> Iterator[NoteInPlace]:
    """Yield the signed tree heads in `content`, one at a time."""
    for match in _NOTE.finditer(content):
        yield NoteInPlace(
            match["origin"].decode(errors="replace"),
            int(match["size"]),
            base64.b64decode(match["root"]),
            match[0].decode(errors="replace"),
            match.start(),
        )


def refuse_other_history(
    place: str, notes: Sequence[NoteInPlace], head: PublishedHead, tree: TreeReader
) -> None:
    """Raise AnchorContradicts where the newest note of this installation contradicts the tree.

    So an anchor shows a restored backup and a rewritten history as soon as it is used.
    """
    last = next((note for note in reversed(notes) if note.origin == head.origin), None)
    if last is None:
        return
    if last.size > head.size:
        raise AnchorContradicts(
            f"{place} holds a tree head of {last.size} entries, and this database has sealed "
            f"{head.size}: entries that were sealed are gone. An old backup was restored, or "
            "history was cut. Run `manage.py verify`; to go on after a restore, give the anchor "
            "another place and name."
        )
    if tree.compute_root(last.size) != last.root:
        raise AnchorContradicts(
            f"{place} holds another history: its tree head of {last.size} entries does not match "
            "this database. Keep both, and run `manage.py verify`."
        )


def write_receipt(**facts: str | int) -> str:
    """Return a receipt as stored: one line of JSON."""
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()
