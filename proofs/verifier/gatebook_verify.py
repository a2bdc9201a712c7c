#!/usr/bin/env python3
"""Verify the journal of a Gatebook installation, without Gatebook.

One file. Python 3.11 or newer; `pip install cryptography` for signatures, `psycopg` for PostgreSQL.

  python3 gatebook_verify.py database /srv/gatebook/gatebook.sqlite3 --head kept.note
  DATABASE_URL=postgresql://… python3 gatebook_verify.py database
  python3 gatebook_verify.py bundle s_12-0a1b2c3d.gatebook.zip --key seal.vkey
  python3 gatebook_verify.py heads kept.note http://gatebook.example/proofs/log/checkpoint
  python3 gatebook_verify.py proof entry-4711.json

Findings:
  ok               as sealed
  modified         an entry, body, tile or tree head differs from what was sealed
  missing          an entry, body, tile or tree head was sealed and is gone
  reordered        entries exchanged places, or one was put before entries sealed earlier
  fork             two signed histories that cannot both be true
  anchor_mismatch  a tree head in an anchor file is not one of this history
  erased           a body is gone, and a sealed entry records its erasure or its expiry
  unsealed_tail    the newest entries are not sealed yet: how many, and since when
  producer_gap     numbers are missing in a producer's own sequence

Exit codes:
  0  integrity holds. Erased bodies, a short unsealed tail and producer gaps are listed only
  1  modified, missing, reordered, fork or anchor_mismatch
  2  nothing was proved: wrong call, unreadable file, unknown key, missing package
  3  integrity holds, but a producer's sequence has gaps (only with --complete)
  4  what is proved holds, but entries wait longer than --max-lag for their seal, or a bundle shows
     entries without a proof: they may be forged. Export it again
  130  interrupted; --resume continues

The limit: control of the database, the signing key and every anchor allows any rewriting.
A tree head that you kept (--head), or an anchor in other hands (--anchor), shows it.

Formats: the tree is that of RFC 6962 (leaf SHA-256(0x00 ‖ leaf), node SHA-256(0x01 ‖ left ‖
right)); a leaf is the RFC 8785 JSON of an entry; tree heads are C2SP signed notes (tlog-checkpoint)
with Ed25519; tiles are those of C2SP tlog-tiles. This file shares no code with Gatebook.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import bisect
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import sqlite3
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from json import encoder
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

VERSION: Final = 1
STATE_VERSION: Final = 3  # of --resume
BLOCK: Final = 256  # leaves of a tile
CHUNK: Final = 64 * BLOCK  # leaves that a worker checks at once
MAX_LISTED: Final = 1_000  # findings of one kind that are listed; all are counted
MAX_SHOWN: Final = 20  # of them on a terminal
# An entry this much older than one sealed before is named, and one this much newer than its head.
LATE_US: Final = 15 * 60 * 1_000_000
SAVE_S: Final = 5.0  # between two states of --resume
MAX_FETCH: Final = 1 << 20  # bytes of one answer over HTTP
MAX_MEMBER: Final = 2 << 30  # bytes of one member of a bundle, unpacked
BROKEN: Final = ("modified", "missing", "reordered", "fork", "anchor_mismatch")
OK, IS_BROKEN, IS_UNUSABLE, HAS_GAPS, IS_BEHIND, INTERRUPTED = 0, 1, 2, 3, 4, 130

_SHA256 = hashlib.sha256
_quote: Callable[[str], str] = encoder.encode_basestring  # its escapes are those of RFC 8785


class Unusable(Exception):
    """Nothing can be proved. The message says why and what to do."""


# --- The tree (RFC 6962, RFC 9162) ---------------------------------------------------------------


def hash_children(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return _SHA256(b"\x01" + left + right).digest()


def fold_peaks(peaks: Sequence[bytes]) -> bytes:
    """Return the root of a tree from the roots of its complete subtrees, largest first."""
    if not peaks:
        return _SHA256(b"").digest()
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = hash_children(peak, root)
    return root


def _build_levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return the complete nodes over the leaves of a block, level by level."""
    levels = [list(leaves)]
    sha = _SHA256
    while len(levels[-1]) > 1:
        low = iter(levels[-1])
        levels.append(
            [sha(b"\x01" + left + right).digest() for left, right in zip(low, low, strict=False)]
        )
    return levels


def _peaks_of(levels: Sequence[Sequence[bytes]], size: int) -> list[bytes]:
    """Return the roots of the complete subtrees over the first `size` leaves of a block."""
    peaks, start = [], 0
    for level in range(len(levels) - 1, -1, -1):
        if size >> level & 1:
            peaks.append(levels[level][start >> level])
            start += 1 << level
    return peaks


class PeakStack:
    """The complete subtrees of a growing tree, in blocks of 256 leaves."""

    def __init__(self, blocks: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.blocks, self.peaks = blocks, list(peaks)

    def push_block(self, root: bytes) -> None:
        """Append the root of the next complete block."""
        number = self.blocks
        while number & 1:
            root = hash_children(self.peaks.pop(), root)
            number >>= 1
        self.peaks.append(root)
        self.blocks += 1


def verify_inclusion_path(
    leaf_hash: bytes, index: int, size: int, path: Sequence[bytes], root: bytes
) -> bool:
    """Return whether `path` proves the leaf at `index` in a tree (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    first, last, node = index, size - 1, leaf_hash
    for part in path:
        if last == 0:
            return False
        if first & 1 or first == last:
            node = hash_children(part, node)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            node = hash_children(node, part)
        first, last = first >> 1, last >> 1
    return last == 0 and node == root


def verify_consistency_path(
    old_size: int, old_root: bytes, new_size: int, new_root: bytes, path: Sequence[bytes]
) -> bool:
    """Return whether `path` proves that a tree extends another (RFC 9162, 2.1.4.2)."""
    if not 0 <= old_size <= new_size:
        return False
    if old_size == 0 or old_size == new_size:
        empty = old_size > 0 or old_root == fold_peaks(())
        return not path and empty and (old_size < new_size or old_root == new_root)
    parts = list(path)
    if old_size & (old_size - 1) == 0:
        parts.insert(0, old_root)
    if not parts:
        return False
    first, last = old_size - 1, new_size - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    old = new = parts[0]
    for part in parts[1:]:
        if last == 0:
            return False
        if first & 1 or first == last:
            old, new = hash_children(part, old), hash_children(part, new)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            new = hash_children(new, part)
        first, last = first >> 1, last >> 1
    return last == 0 and old == old_root and new == new_root


# --- Signed notes (C2SP signed-note, tlog-checkpoint) --------------------------------------------

_CHECKPOINT: Final = re.compile(
    r"^(?P<origin>[^\n]+)\n(?P<size>0|[1-9][0-9]{0,18})\n(?P<root>[A-Za-z0-9+/]{43}=)\n"
    r"(?P<extensions>(?:[^\n—][^\n]*\n)*)\n(?P<signatures>(?:— [^ \n]+ [A-Za-z0-9+/=]+\n)+)",
    re.MULTILINE,
)


_LAST_POSITION: Final = re.compile(r"^last_position ([1-9][0-9]{0,18})$", re.MULTILINE)
_SIGNED_AT: Final = re.compile(
    r"^signed_at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})Z$", re.MULTILINE
)


_ENDORSEMENT: Final = re.compile(
    r"^(?P<text>gatebook seal key\n(?P<name>[^\n]+)\n(?P<key>[^\n]+)\n)\n"
    r"(?P<signatures>(?:— [^ \n]+ [A-Za-z0-9+/=]+\n)+)",
    re.MULTILINE,
)


class VerifierKey(NamedTuple):
    """An Ed25519 public key as C2SP writes it: `<name>+<key id>+<base64>`."""

    name: str
    key_id: bytes
    public: bytes
    upto: int | None = None  # of an earlier key: the size of the tree that a trusted key signed

    def __str__(self) -> str:
        encoded = base64.b64encode(b"\x01" + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"


class KeyChain(NamedTuple):
    """The keys of an installation, and the notes in which a key names the next one."""

    keys: tuple[VerifierKey, ...] = ()
    notes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()  # where they were read, or why they were not


class Endorsement(NamedTuple):
    """A signed note about a key."""

    key: VerifierKey
    signed: bytes
    signatures: tuple[tuple[str, bytes, bytes], ...]


class Head(NamedTuple):
    """A signed tree head, and where it was read."""

    origin: str
    size: int
    root: bytes
    signed: bytes  # what the signatures sign
    signatures: tuple[tuple[str, bytes, bytes], ...]  # name, key id, signature
    where: str
    number: int = 0  # of the database; 0 elsewhere
    role: str = "database"  # or "kept", "anchor"
    made_at_us: int = 0
    signed_at_us: int = 0  # as the signed text says; 0 in heads that do not say it
    last_position: int = 0  # of the last entry, as the signed text says; 0 as above
    row_key: tuple[str, str] = ("", "")  # name and key id, as the row of the database says
    altered: str = ""  # what its row has otherwise than its note


def make_key(name: str, public: bytes) -> VerifierKey:
    """Return the key of a name with its key id."""
    digest = _SHA256(_encode_stored(name) + b"\n\x01" + public).digest()
    return VerifierKey(name, digest[:4], public)


def _encode_stored(text: str) -> bytes:
    """Return the bytes of a text. Of one that is no UTF-8 any will do: Gatebook signed none."""
    return text.encode(errors="surrogatepass")


def parse_key(text: str) -> VerifierKey:
    """Parse a verifier key. Raises Unusable."""
    name, _, rest = text.strip().partition("+")
    key_id, _, encoded = rest.partition("+")
    try:
        data = base64.b64decode(encoded, validate=True)
        key = make_key(name, data[1:])
        if data[0] != 1 or len(data) != 33 or key.key_id.hex() != key_id or not name:
            raise ValueError
    except (ValueError, IndexError, binascii.Error):
        raise Unusable(
            f"{text.strip()[:80]!r} is no Ed25519 key of the form <name>+<key id>+<base64>."
        ) from None
    return key


def find_heads(text: str, where: str, role: str = "database") -> list[Head]:
    """Return every signed tree head in `text`, in order; anything else is skipped."""
    heads = []
    for match in _CHECKPOINT.finditer(text):
        signatures = _read_signatures(match["signatures"])
        signed = _encode_stored(match[0][: match.start("signatures") - match.start() - 1])
        root = base64.b64decode(match["root"])
        heads.append(
            Head(match["origin"], int(match["size"]), root, signed, signatures, where)._replace(
                role=role,
                signed_at_us=_read_time(match["extensions"]),
                last_position=_read_last_position(match["extensions"]),
            )
        )
    return heads


def _read_signatures(lines: str) -> tuple[tuple[str, bytes, bytes], ...]:
    """Return name, key id and signature of each signature line of a note."""
    signatures = []
    for line in lines.splitlines():
        _, name, encoded = line.split(" ")
        with contextlib.suppress(binascii.Error):
            data = base64.b64decode(encoded, validate=True)
            signatures.append((name, data[:4], data[4:]))
    return tuple(signatures)


def _read_time(extensions: str) -> int:
    """Return the microseconds of the line `signed_at`, 0 without one."""
    match = _SIGNED_AT.search(extensions)
    with contextlib.suppress(ValueError):
        if match is not None:
            moment = datetime.strptime(match[1] + "+0000", "%Y-%m-%dT%H:%M:%S%z")
            return int(moment.timestamp()) * 1_000_000 + int(match[2])
    return 0


def _read_last_position(extensions: str) -> int:
    match = _LAST_POSITION.search(extensions)
    return int(match[1]) if match is not None else 0


def _read_head(text: str, where: str, role: str = "kept") -> Head:
    heads = find_heads(text, where, role)
    if len(heads) != 1:
        raise Unusable(
            f"{where} holds {len(heads)} signed tree heads, not 1. Save the answer of "
            "/proofs/log/checkpoint unchanged."
        )
    return heads[0]


def _load_ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise Unusable(
            "Signatures need a package: pip install cryptography. Or pass --no-signatures, which"
            " checks everything else."
        ) from None
    return ed25519


def is_signed_by(signed: bytes, signature: bytes, public: bytes) -> bool:
    """Return whether an Ed25519 signature is valid. Raises Unusable without `cryptography`."""
    from cryptography.exceptions import InvalidSignature

    try:
        _load_ed25519().Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def match_signatures(head: Head, keys: Iterable[VerifierKey]) -> list[tuple[bytes, VerifierKey]]:
    """Return the signatures of a head that name one of these keys, each with its key."""
    return [
        (signature, key)
        for name, key_id, signature in head.signatures
        for key in keys
        if (name, key_id) == (key.name, key.key_id)
    ]


def check_head_signature(head: Head, keys: Sequence[VerifierKey]) -> str:
    """Return "" if a key signed the head, else why it does not count."""
    if not head.signatures:
        return "has no signature that can be read"
    named = match_signatures(head, keys)
    if not named:
        return "is signed by no key that you trust"
    signers = [
        key
        for signature, key in named
        if not head.altered and is_signed_by(head.signed, signature, key.public)
    ]
    if not signers:
        altered = f"has another {head.altered} in its row than in its note: the"
        key = named[0][1]
        return (
            f"{altered if head.altered else 'has a wrong signature: the'} signature of"
            f" {key.name}+{key.key_id.hex()} does not verify over this text"
        )
    if not any(key.upto is None or head.size <= key.upto for key in signers):
        return "is signed by an earlier key, and no tree head of a key that you trust covers it"
    return ""


def find_endorsements(notes: Iterable[str]) -> list[Endorsement]:
    """Return the endorsements in these notes; anything else is skipped."""
    endorsements = []
    for match in (match for note in notes for match in _ENDORSEMENT.finditer(note)):
        with contextlib.suppress(Unusable):
            key = parse_key(match["key"])
            if key.name == match["name"]:
                signatures = _read_signatures(match["signatures"])
                endorsements.append(Endorsement(key, _encode_stored(match["text"]), signatures))
    return endorsements


def is_endorsed_by(endorsement: Endorsement, old: VerifierKey) -> bool:
    """Return whether `old` signed an endorsement of a key of the same name."""
    return old.name == endorsement.key.name and any(
        (name, key_id) == (old.name, old.key_id)
        and is_signed_by(endorsement.signed, signature, old.public)
        for name, key_id, signature in endorsement.signatures
    )


def extend_keys(keys: Sequence[VerifierKey], notes: Iterable[str]) -> list[VerifierKey]:
    """Add each key that a trusted key endorsed in a signed note, one after the other."""
    trusted, endorsements = list(keys), find_endorsements(notes)
    for old in trusted:  # it grows while it is read
        for endorsement in endorsements:
            if endorsement.key not in trusted and is_endorsed_by(endorsement, old):
                trusted.append(endorsement.key)
    return trusted


def find_earlier_keys(trusted: Sequence[VerifierKey], chain: KeyChain) -> list[VerifierKey]:
    """Return the keys from which endorsements lead to a trusted key.

    Anybody can make a key and endorse yours with it. So a head of these keys counts only where the
    tree of a head that a trusted key signed begins with its tree.
    """
    endorsements = find_endorsements(chain.notes)
    reached = list(trusted)
    for new in reached:  # it grows while it is read
        for old in chain.keys:
            if old not in reached and any(
                endorsement.key == new and is_endorsed_by(endorsement, old)
                for endorsement in endorsements
            ):
                reached.append(old)
    return reached[len(trusted) :]


def find_head_fault(
    head: Head, trusted: Sequence[VerifierKey], earlier: Sequence[VerifierKey], chain: KeyChain
) -> tuple[str, bool]:
    """Return why the signature of a head does not count, or "", and whether its key is earlier.

    Raises Unusable if no endorsement connects its key with a trusted one.
    """
    for keys in (trusted, earlier):
        if match_signatures(head, keys):
            return check_head_signature(head, keys), keys is earlier
    signers = ", ".join(f"{name}+{key_id.hex()}" for name, key_id, _ in head.signatures)
    places = "; ".join(chain.places) or "no place with endorsements was given"
    raise Unusable(
        f"Nothing was proved: unknown key. {head.where} is signed by {signers or 'no key'}, and no"
        f" endorsement connects that key with a key that you trust ({places}). If you got its key"
        " from the people who run the installation, pass it too: --key may be repeated."
    )


# --- Leaves (RFC 8785) ---------------------------------------------------------------------------

LEAF_NAMES: Final = (
    *("actor", "attempt", "body_commit", "claimed_source", "effect", "facts", "id", "kind", "lane"),
    *("lease_epoch", "occurred_us", "producer_seq", "project", "received_us", "schema_version"),
    *("session", "source", "subject"),
)
_INTEGERS: Final = frozenset(
    ("attempt", "lease_epoch", "occurred_us", "producer_seq", "received_us", "schema_version")
)
_EXACT: Final = 2**53 - 1  # beyond, integers are decimal strings


def hash_leaf_object(leaf: dict[str, Any]) -> bytes:
    """Return the leaf hash of a leaf as published. Raises ValueError for another form."""
    if sorted(leaf) != list(LEAF_NAMES):
        raise ValueError("its members are not those of a leaf")
    for name, value in leaf.items():
        is_integer = isinstance(value, int) and not isinstance(value, bool) and name in _INTEGERS
        if not (value is None or isinstance(value, str) or is_integer):
            raise ValueError(f"{name} has the wrong type")
        if is_integer and abs(value) > _EXACT:
            raise ValueError(f"{name} is too long for a number")
    text = json.dumps(leaf, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return _SHA256(b"\x00" + text.encode()).digest()


def _number(value: int | None) -> str:
    if value is None:
        return "null"
    return str(value) if -_EXACT <= value <= _EXACT else f'"{value}"'


def _text(value: str | None) -> str:
    return "null" if value is None else _quote(value)


_is_plain: Callable[[str], object] = re.compile("[0-9a-f]{32}").fullmatch


def _dashed(value: str | None) -> str:
    """Return a UUID that SQLite keeps without dashes. Raises ValueError for another spelling.

    The product compares these columns as text, so another spelling hides an entry from it.
    """
    if value is None:
        return "null"
    if not _is_plain(value):
        raise ValueError
    return f'"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"'


def _explain_values(vendor: str, identifiers: Sequence[Any]) -> str:
    """Return why no leaf can be made of an entry; `identifiers` in the order of _UUIDS."""
    for name, value in zip(_UUIDS, identifiers, strict=True):
        is_text = isinstance(value, str)
        if vendor == "sqlite" and value is not None and not (is_text and _is_plain(value)):
            return (
                f"its {name} is not written as 32 lower-case hexadecimal digits: Gatebook did not"
                " write it so, and does not find the entry by it"
            )
    return "a column has a value of a type that Gatebook does not write"


# --- What was found ------------------------------------------------------------------------------


@dataclass
class Finding:
    """One fault, or one thing to know; `first` and `last` are log indexes."""

    finding: str
    what: str
    detail: str
    first: int | None = None
    last: int | None = None
    position: int | None = None
    kind: str = ""


@dataclass
class Report:
    """The findings of one run, counted by kind."""

    mode: str
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    is_behind: bool = False
    faulty_bodies: int = 0
    listed: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding, number: int = 1) -> None:
        """Count a finding, and list it unless there are too many."""
        self.counts[finding.finding] = self.counts.get(finding.finding, 0) + number
        self.faulty_bodies += finding.what == "body" and finding.finding in BROKEN
        self.listed[finding.finding] = self.listed.get(finding.finding, 0) + 1
        if self.listed[finding.finding] <= MAX_LISTED:
            self.findings.append(finding)

    @property
    def is_broken(self) -> bool:
        """Whether integrity does not hold."""
        return any(self.counts.get(name) for name in BROKEN)

    def exit_code(self, complete: bool) -> int:
        """Return the exit code; `complete` makes gaps count."""
        if self.is_broken:
            return IS_BROKEN
        if self.is_behind:
            return IS_BEHIND
        return HAS_GAPS if complete and self.counts.get("producer_gap") else OK

    def to_json(self, code: int) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            "gatebook_verify": VERSION,
            "mode": self.mode,
            "verdict": {
                "integrity": "broken" if self.is_broken else "ok",
                "completeness": "gaps" if self.counts.get("producer_gap") else "ok",
                "sealing": "behind" if self.is_behind else "ok",
            },
            "counts": dict(sorted(self.counts.items())),
            "findings": [
                {name: value for name, value in asdict(finding).items() if value not in (None, "")}
                for finding in self.findings
            ],
            "notes": self.notes,
            "exit_code": code,
            **self.facts,
        }


# --- Databases -----------------------------------------------------------------------------------

_ENTRY_COLUMNS: Final = (
    *("actor", "attempt", "body_commit", "claimed_source", "effect", "facts", "id", "kind", "lane"),
    *("lease_epoch", "occurred_us", "producer_seq", "project", "received_us", "schema_version"),
    *("session", "source", "subject"),
)
_UUIDS: Final = ("effect", "project", "session", "subject")
# The types that Gatebook writes. SQLite stores any type in any column.
_TYPES: Final = {
    "proofs_sealedentry": {"entry_id": "integer"},
    "proofs_tile": {"level": "integer", "index": "integer", "hashes": "blob"},
    "proofs_treehead": {
        "size": "integer",
        "root": "blob",
        "made_at_us": "integer",
        "key_name": "text",
        "key_id": "text",
        "note": "text",
    },
    "proofs_signingkey": {
        "name": "text",
        "key_id": "text",
        "public_key": "blob",
        "first_used_us": "integer",
        "retired_at_us": "integer or null",
        "endorsement": "text",
    },
    "proofs_anchor": {
        "tree_head_id": "integer",
        "name": "text",
        "anchored_at_us": "integer",
        "error": "text",
    },
    "proofs_sealprogress": {"position": "integer"},
}
_WHATS: Final = {
    "proofs_sealedentry": ("entry", "log_index"),
    "proofs_tile": ("tile", "id"),
    "proofs_treehead": ("tree head", "id"),
    "proofs_signingkey": ("key", "id"),
    "proofs_anchor": ("anchor", "id"),
    "proofs_sealprogress": ("seal progress", "id"),
}


def _find_misfits(columns: dict[str, str]) -> str:
    """Return the SQL condition of SQLite rows with a value of another type."""
    terms = []
    for name, kind in columns.items():
        wanted, _, or_null = kind.partition(" or ")
        terms.append(
            f"typeof(\"{name}\") NOT IN ('{wanted}', 'null')"
            if or_null
            else f"typeof(\"{name}\") <> '{wanted}'"
        )
    return " OR ".join(terms)


# Names of these tables mean their rows of the right types: no other value reaches the code below.
_TYPED_ROWS: Final = {
    table: f"{table} AS (SELECT * FROM main.{table} WHERE NOT ({_find_misfits(columns)}))"
    for table, columns in _TYPES.items()
}
_TABLES: Final = ("proofs_sealedentry", "proofs_tile", "proofs_treehead", "proofs_signingkey")


class Database:
    """Reads the tables of a Gatebook; never writes. One connection a process."""

    vendor = ""
    connection: Any

    def __init__(self, address: str) -> None:
        self.address = address

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query that is written with `?` for values."""
        raise NotImplementedError

    def entry_rows(self, first: int, end: int) -> list[tuple[Any, ...]]:
        """Return sealed entries with bodies and erasures, by log index."""
        raise NotImplementedError

    def tiles(self, level: int, first: int, end: int) -> dict[int, bytes]:
        """Return stored tiles by index."""
        rows = self.rows(
            'SELECT "index", hashes FROM proofs_tile WHERE level = ? AND "index" >= ?'
            ' AND "index" < ?',
            (level, first, end),
        )
        return {index: bytes(hashes) for index, hashes in rows}

    def heads(self, condition: str, values: Sequence[Any] = (), limit: int = 1) -> list[Head]:
        """Return stored tree heads; `condition` is SQL after FROM."""
        rows = self.rows(
            "SELECT id, size, root, note, made_at_us, key_name, key_id FROM proofs_treehead"
            f" {condition}"
            f" LIMIT {limit}",
            values,
        )
        return [_read_stored_head(*row) for row in rows]

    def keys(self) -> tuple[list[VerifierKey], list[tuple[VerifierKey, str]]]:
        """Return the stored public keys, and the notes by which older keys endorse them."""
        rows = self.rows(
            "SELECT name, public_key, endorsement FROM proofs_signingkey ORDER BY first_used_us, id"
        )
        keys = [(make_key(name, bytes(public)), note or "") for name, public, note in rows]
        return [key for key, _ in keys], keys

    def misfits(self) -> list[Finding]:
        """Name rows of the seal with values of other types."""
        return []

    def number(self, query: str, values: Sequence[Any] = ()) -> int:
        """Return the single number of a query; 0 for NULL."""
        return int(self.rows(query, values)[0][0] or 0)


class SqliteDatabase(Database):
    """A SQLite file, opened read-only."""

    vendor = "sqlite"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        path = Path(address)
        if not path.is_file():
            raise Unusable(f"{address} is not a file. Name the SQLite file of the installation.")
        uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro"
        try:
            self._connect(uri)
        except sqlite3.OperationalError:  # a read-only folder cannot hold the files of the WAL
            try:
                self._connect(f"{uri}&immutable=1")
            except sqlite3.Error as error:
                raise Unusable(f"{address} cannot be read: {error}.") from None
        except sqlite3.DatabaseError as error:
            raise Unusable(f"{address} is no SQLite database: {error}.") from None

    def _connect(self, uri: str) -> None:
        self.connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)
        self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        typed = ", ".join(rows for table, rows in _TYPED_ROWS.items() if f" {table}" in query)
        return self._fetch(f"WITH {typed} {query}" if typed else query, values)

    def misfits(self) -> list[Finding]:
        named = []
        for table, columns in _TYPES.items():
            what, key = _WHATS[table]
            types = ", ".join(f'typeof("{name}")' for name in columns)
            for row, *stored in self._fetch(
                f"SELECT {key}, {types} FROM main.{table} WHERE {_find_misfits(columns)}"
                f" ORDER BY {key} LIMIT {MAX_LISTED}",
                (),
            ):
                wrong = ", ".join(
                    f"{name} is {kind} and not {columns[name]}"
                    for name, kind in zip(columns, stored, strict=True)
                    if kind not in columns[name]
                )
                detail = f"{table}, {key} {row}: {wrong}. Gatebook did not write this row"
                named.append(Finding("modified", what, detail))
                if table == "proofs_sealedentry":
                    named[-1].first = named[-1].last = row
        return named

    def _fetch(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            fetched: list[tuple[Any, ...]] = self.connection.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:
            if "decode" in str(error):  # text that is no UTF-8: somebody wrote it past Gatebook
                self.connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
                fetched = self.connection.execute(query, values).fetchall()
            else:
                raise Unusable(_explain_table(self.address, str(error))) from None
        except sqlite3.DatabaseError as error:
            raise Unusable(f"{self.address} cannot be read: {error}.") from None
        return fetched

    def entry_rows(self, first: int, end: int) -> list[tuple[Any, ...]]:
        columns = ", ".join(f"entry.{name}" for name in _ENTRY_COLUMNS)
        return self.rows(
            f"SELECT sealed.log_index, sealed.entry_id, entry.position, {columns}, body.salt,"
            # A text of another type has no hash; Gatebook could not read it.
            " CASE typeof(body.text) WHEN 'text' THEN CAST(body.text AS BLOB)"
            " WHEN 'null' THEN NULL ELSE 0 END, erasure.entry_id FROM proofs_sealedentry sealed"
            " LEFT JOIN journal_entry entry ON entry.position = sealed.entry_id"
            " LEFT JOIN journal_body body ON body.entry_id = sealed.entry_id"
            " LEFT JOIN journal_erasure erasure ON erasure.entry_id = sealed.entry_id"
            " WHERE sealed.log_index >= ? AND sealed.log_index < ? ORDER BY sealed.log_index",
            (first, end),
        )


class PostgresqlDatabase(Database):
    """A PostgreSQL database, in a read-only session."""

    vendor = "postgresql"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        try:
            import psycopg
        except ImportError:
            raise Unusable("PostgreSQL needs a package: pip install 'psycopg[binary]'.") from None
        self.error = psycopg.Error
        try:
            self.connection = psycopg.connect(address, autocommit=True)
            self.connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        except psycopg.Error as error:
            raise Unusable(f"The database cannot be reached: {str(error).strip()}.") from None

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self.connection.cursor(binary=True) as cursor:
                cursor.execute(query.replace("%", "%%").replace("?", "%s"), values)
                fetched: list[tuple[Any, ...]] = cursor.fetchall()
        except self.error as error:
            raise Unusable(_explain_table("The database", str(error))) from None
        return fetched

    def entry_rows(self, first: int, end: int) -> list[tuple[Any, ...]]:
        columns = ", ".join(
            f"entry.{name}::text" if name in _UUIDS else f"entry.{name}" for name in _ENTRY_COLUMNS
        )
        lowest, highest = self.rows(
            "SELECT min(entry_id), max(entry_id) FROM proofs_sealedentry"
            " WHERE log_index >= ? AND log_index < ?",
            (first, end),
        )[0]
        # Without the range PostgreSQL reads all of each table for every part.
        return self.rows(
            f"SELECT sealed.log_index, sealed.entry_id, entry.position, {columns}, body.salt,"
            " convert_to(body.text, 'UTF8'), erasure.entry_id FROM proofs_sealedentry sealed"
            " LEFT JOIN journal_entry entry ON entry.position = sealed.entry_id"
            " AND entry.position BETWEEN ? AND ?"
            " LEFT JOIN journal_body body ON body.entry_id = sealed.entry_id"
            " AND body.entry_id BETWEEN ? AND ?"
            " LEFT JOIN journal_erasure erasure ON erasure.entry_id = sealed.entry_id"
            " AND erasure.entry_id BETWEEN ? AND ?"
            " WHERE sealed.log_index >= ? AND sealed.log_index < ? ORDER BY sealed.log_index",
            (*(lowest, highest) * 3, first, end),
        )


def _read_stored_head(
    number: int, size: int, root: Any, note: Any, made_at_us: int, name: str, key_id: str
) -> Head:
    """Return a stored head, and what its row has otherwise than its note."""
    where = f"tree head {number}"
    parsed = find_heads(str(note), where)
    head = parsed[0] if len(parsed) == 1 else Head("", size, b"", b"", (), where)
    altered = "" if head.signed_at_us in (0, made_at_us) else "time"
    if (head.size, head.root) != (size, bytes(root)):
        altered = "size or root"
    if altered:
        head = head._replace(size=size, root=bytes(root), altered=altered, last_position=0)
    return head._replace(number=number, made_at_us=made_at_us, row_key=(name, key_id))


def _explain_table(where: str, error: str) -> str:
    if any(name in error for name in _TABLES):
        return (
            f"{where} has no seal ({error.strip()}). Name the database of a Gatebook that seals its"
            " journal, and run manage.py migrate there."
        )
    return f"{where} cannot be read: {error.strip()}."


def open_database(address: str) -> Database:
    """Open a SQLite file, or a PostgreSQL database by its URL."""
    if address.startswith(("postgres://", "postgresql://")) or re.match(r"\w+=", address):
        return PostgresqlDatabase(address)
    return SqliteDatabase(address.removeprefix("sqlite:///"))


# --- One part of a database ----------------------------------------------------------------------


@dataclass
class Leaf:
    """A leaf that is not as its tile says."""

    index: int
    computed: bytes  # empty if the entry is missing
    sealed: bytes  # empty if the tile has no hash for it
    position: int | None
    kind: str
    detail: str = ""  # why no leaf can be made of the entry


@dataclass
class Block:
    """The root over a block of leaves, from its tile and from its entries."""

    of_tile: bytes
    of_entries: bytes


@dataclass
class Partial:
    """A tree head inside the last block: the subtrees below it, from tile and entries."""

    head: Head
    of_tile: list[bytes]
    of_entries: list[bytes]


class Bodyless(NamedTuple):
    """An entry without its body, and the name by which an entry would record the erasure."""

    log_index: int
    position: int
    has_row: bool  # in the table of erasures
    name: str


class Expiry(NamedTuple):
    """Bodies that an entry `retention.expired` names: from one position to another."""

    bundle: str  # the beginning of the names of imported entries; empty for others
    first: int
    last: int
    by: int  # position of the entry


@dataclass
class Part:
    """What a worker found in a range of leaves."""

    first: int
    end: int
    present: int = 0
    blocks: list[Block] = field(default_factory=list)
    partials: list[Partial] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    bodyless: list[Bodyless] = field(default_factory=list)
    erasures: list[str] = field(default_factory=list)  # the names of erased entries
    expiries: list[Expiry] = field(default_factory=list)
    top_us: int = 0
    low: tuple[int, int] | None = None  # received_us and log index of the oldest entry
    backdated: list[tuple[int, int]] = field(default_factory=list)
    limits: list[tuple[int, int]] = field(default_factory=list)  # of times, see _list_limits
    last_position: int = 0
    first_position: int = 0
    places: dict[int, tuple[int | None, str]] = field(default_factory=dict)  # position, kind
    details: dict[int, str] = field(default_factory=dict)  # of entries that make no leaf
    unfounded: list[int] = field(default_factory=list)  # neither an entry nor a hash


def check_part(
    database: Database,
    first: int,
    end: int,
    heads: Sequence[Head],
    keys: Sequence[VerifierKey] | None,
) -> Part:
    """Check the leaves `first` to `end`: entries, bodies, tiles and the heads among them."""
    part = Part(first, end, limits=_list_limits(heads))
    hashes = hash_rows(part, database.entry_rows(first, end), database.vendor)
    tiles = database.tiles(0, first // BLOCK, (end + BLOCK - 1) // BLOCK)
    waiting = sorted(heads, key=lambda head: head.size)
    for start in range(first, end, BLOCK):
        stop = min(start + BLOCK, end)
        computed = hashes[start - first : stop - first]
        stored = tiles.get(start // BLOCK, b"")[: (stop - start) * 32]  # it may have grown
        if stored == b"".join(computed) and len(stored) == (stop - start) * 32:
            leaves = computed
        else:
            leaves = [stored[at * 32 : at * 32 + 32] for at in range(stop - start)]
            _compare_leaves(part, start, computed, leaves, len(stored))
        of_tile = _build_levels(leaves)
        of_entries = of_tile if leaves is computed else _build_levels(computed)
        if stop - start == BLOCK:
            part.blocks.append(Block(of_tile[-1][0], of_entries[-1][0]))
        for head in waiting:
            if start < head.size <= stop:
                rest = head.size - start
                is_full = rest == BLOCK  # its root is among the blocks
                _check_last_position(part, head)
                part.partials.append(
                    Partial(
                        head,
                        [] if is_full else _peaks_of(of_tile, rest),
                        [] if is_full else _peaks_of(of_entries, rest),
                    )
                )
    if keys is not None:
        for head in waiting:
            if head.size <= end:
                _check_stored_head(part, head, keys)
    part.places, part.details, part.limits = {}, {}, []
    return part


def _list_limits(heads: Sequence[Head]) -> list[tuple[int, int]]:
    """Return tree sizes, and the latest time that an entry below that size may have.

    The first head over an entry was signed after the server received it.
    """
    limits: list[tuple[int, int]] = []
    for head in sorted(heads, key=lambda head: (head.size, head.number)):
        covered = limits[-1][0] if limits else 0
        if head.role == "database" and head.signed_at_us and head.size > covered:
            limits.append((head.size, head.signed_at_us + LATE_US))
    return limits


def _add_future_entry(part: Part, index: int, late_us: int, position: int, kind: str) -> None:
    minutes = (late_us + LATE_US) // 60_000_000
    detail = (
        f"says that it was received {minutes} minutes after the first tree head over it was signed:"
        " it has a time of the future, or the server's clock was set back"
    )
    part.findings.append(Finding("reordered", "entry", detail, index, index, position, kind))


def _check_last_position(part: Part, head: Head) -> None:
    """Compare the position of a head's last entry with the one that the head was signed with."""
    position, kind = part.places.get(head.size - 1, (None, ""))
    if head.last_position and kind and position != head.last_position:
        last = head.size - 1
        detail = (
            f"{head.where} ends with position {head.last_position}, and the entry there has"
            f" {position}: positions were renumbered"
        )
        part.findings.append(Finding("reordered", "tree head", detail, last, last, position))


def _check_stored_head(part: Part, head: Head, keys: Sequence[VerifierKey]) -> None:
    if head.role == "database":
        fault = check_head_signature(head, keys)
        if fault:
            part.findings.append(Finding("modified", "tree head", f"{head.where} {fault}"))


def _compare_leaves(
    part: Part, start: int, computed: list[bytes], leaves: list[bytes], stored: int
) -> None:
    """Note the leaves of a block whose entries are not as the tile says."""
    needed = max((at + 1 for at, digest in enumerate(computed) if digest), default=0)
    if stored < needed * 32:
        part.findings.append(
            Finding(
                "missing",
                "tile",
                f"tile 0/{start // BLOCK} holds {stored // 32} hashes of {needed}",
                start + stored // 32,
                start + needed - 1,
            )
        )
    for at, (digest, sealed) in enumerate(zip(computed, leaves, strict=True)):
        if digest != sealed and sealed:
            position, kind = part.places.get(start + at, (None, ""))
            detail = part.details.get(start + at, "")
            part.leaves.append(Leaf(start + at, digest, sealed, position, kind, detail))
        elif not sealed:
            if not digest:
                _add_unfounded_entry(part, start + at)
            leaves[at] = digest or bytes(32)  # without a tile the entry itself is all there is
    for at, digest in enumerate(computed):
        if not digest:
            computed[at] = bytes(32)


def _add_unfounded_entry(part: Part, index: int) -> None:
    """Name a sealed entry that has neither an entry nor a hash in the tree."""
    part.unfounded.append(index)
    position, _ = part.places.get(index, (None, ""))
    detail = "no sealed entry and no tile has this leaf"
    if position is not None:
        detail = (
            f"no entry has its position {position}, and no tile has its hash: this row was added to"
            " the sealed entries, or the entry and the tile are gone"
        )
    part.findings.append(Finding("missing", "entry", detail, index, index, position))


_NO_LIMIT: Final = (1 << 62, 1 << 62)  # what no tree head covers yet


def hash_rows(part: Part, rows: list[tuple[Any, ...]], vendor: str) -> list[bytes]:
    """Return the leaf hash of each entry, empty where it is missing; check the bodies."""
    number = part.end - part.first
    hashes = [b""] * number
    places = part.places
    sha, quote, identify = _SHA256, _quote, _dashed if vendor == "sqlite" else _text
    ids: dict[tuple[Any, ...], tuple[str, str, str, str]] = {}
    words: dict[tuple[Any, ...], tuple[str, str, str, str, str]] = {}
    top, low, low_at, last = 0, 1 << 62, -1, 0
    origin = part.first
    limits = iter(part.limits)
    border, limit = next(limits, _NO_LIMIT)
    for row in rows:
        (
            index,
            entry,
            position,
            actor,
            attempt,
            commit,
            claimed,
            effect,
            facts,
            event,
            kind,
            lane,
            epoch,
            occurred,
            sequence,
            project,
            received,
            schema,
            session,
            source,
            subject,
            salt,
            text,
            erasure,
        ) = row
        if position is None:
            places[index] = (entry, "")
            continue
        places[index] = (position, kind)
        try:
            key = (project, session, effect, subject)
            four = ids.get(key)
            if four is None:
                if len(ids) > 4096:
                    ids.clear()
                four = ids[key] = (
                    *(identify(project), identify(session), identify(effect), identify(subject)),
                )
            word_key = (actor, claimed, kind, lane, source)
            five = words.get(word_key)
            if five is None:
                if len(words) > 4096:
                    words.clear()
                five = words[word_key] = (
                    *(quote(actor), quote(claimed), quote(kind), quote(lane), quote(source)),
                )
            leaf = (
                f'{{"actor":{five[0]},"attempt":{"null" if attempt is None else attempt},'
                f'"body_commit":{"null" if commit is None else chr(34) + commit.hex() + chr(34)},'
                f'"claimed_source":{five[1]},"effect":{four[2]},"facts":{quote(facts)},'
                f'"id":{quote(event)},"kind":{five[2]},"lane":{five[3]},'
                f'"lease_epoch":{"null" if epoch is None else _number(epoch)},'
                f'"occurred_us":{"null" if occurred is None else _number(occurred)},'
                f'"producer_seq":{"null" if sequence is None else _number(sequence)},'
                f'"project":{four[0]},"received_us":{_number(received)},'
                f'"schema_version":{schema},"session":{four[1]},"source":{five[4]},'
                f'"subject":{four[3]}}}'
            )
            hashes[index - origin] = sha(b"\x00" + leaf.encode()).digest()
        except (TypeError, AttributeError, ValueError):  # a value of a type no column has
            hashes[index - origin] = sha(b"").digest()
            part.details[index] = _explain_values(vendor, (effect, project, session, subject))
            continue
        if position <= last:
            part.findings.append(
                Finding(
                    "reordered",
                    "entry",
                    f"its position {position} is not above that of the entry sealed before it",
                    index,
                    index,
                    position,
                    kind,
                )
            )
        last = position
        while index >= border:
            border, limit = next(limits, _NO_LIMIT)
        if received > limit:  # the time of such an entry says nothing about those after it
            _add_future_entry(part, index, received - limit, position, kind)
        elif received > top:
            top = received
        elif received < top - LATE_US:
            part.backdated.append((index, received))
        if received < low:
            low, low_at = received, index
        try:
            if text is None:
                if commit is not None:
                    name = name_erased_entry(source, facts, position)
                    part.bodyless.append(Bodyless(index, position, erasure is not None, name))
            elif commit is None or len(salt) != 32 or sha(salt + text).digest() != commit:
                _add_body_fault(part, index, position, kind)
        except TypeError:  # a value of a type no column has
            _add_body_fault(part, index, position, kind)
        if kind == "erasure.executed" and lane == "system":
            bundle = read_bundle(source)
            part.erasures += [f"{bundle}{at}" for at in read_erased_positions(facts)]
        elif kind == "retention.expired" and lane == "system":
            part.expiries += read_expiries(source, facts, position)
    part.present = sum(1 for digest in hashes if digest)
    part.top_us, part.low, part.last_position = top, (low, low_at) if low_at >= 0 else None, last
    part.first_position = rows[0][1] if rows else 0
    return hashes


def _add_body_fault(part: Part, index: int, position: int, kind: str) -> None:
    detail = "its text or salt is not what the entry commits to"
    part.findings.append(Finding("modified", "body", detail, index, index, position, kind))


def read_bundle(source: str) -> str:
    """Return the beginning of the source of entries that were imported from one bundle."""
    match = re.match(r"gatebook/bundle:[0-9a-f]{8}:", source)
    return match[0] if match else ""


def name_erased_entry(source: str, facts: str, position: int) -> str:
    """Return how an erasure names an entry; imported ones keep the positions of their origin."""
    bundle = read_bundle(source)
    if bundle:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return f"{bundle}{json.loads(facts)['origin']['position']}"
    return str(position)


def read_erased_positions(facts: str) -> list[int]:
    """Return the positions that an entry `erasure.executed` names."""
    try:
        parsed = json.loads(facts)
    except ValueError:
        return []
    if not isinstance(parsed, dict):
        return []
    named = [parsed.get("entry"), *(parsed.get("entries") or [])]
    return [position for position in named if isinstance(position, int)]


def read_expired_runs(facts: str) -> list[tuple[int, int]]:
    """Return the positions that an entry `retention.expired` names, as runs.

    Empty if they are not as many as the entry counts.
    """
    runs = []
    try:
        parsed = json.loads(facts)
        for run in parsed["positions"].split(","):
            first, _, last = run.partition("-")
            runs.append((int(first), int(last or first)))
        if sum(last - first + 1 for first, last in runs) != parsed["count"]:
            return []
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return runs


def read_expiries(source: str, facts: str, position: int) -> list[Expiry]:
    """Return what an entry `retention.expired` names."""
    bundle = read_bundle(source)
    return [Expiry(bundle, first, last, position) for first, last in read_expired_runs(facts)]


class ExpiredNames:
    """Finds the entry that records the expiry of a body, by the name of the body's entry."""

    def __init__(self, expiries: Iterable[Expiry]) -> None:
        self.runs: dict[str, list[tuple[int, int, int]]] = {}
        for row in expiries:
            self.runs.setdefault(row.bundle, []).append((row.first, row.last, row.by))
        for runs in self.runs.values():
            runs.sort()

    def find_entry(self, name: str) -> int | None:
        """Return the position of the entry; None if no expiry names the body."""
        bundle, colon, number = name.rpartition(":")
        runs = self.runs.get(bundle + colon, [])
        at = bisect.bisect_right(runs, (int(number), 1 << 63, 0)) - 1
        return runs[at][2] if at >= 0 and runs[at][0] <= int(number) <= runs[at][1] else None


_worker: dict[str, Any] = {}


def _start_worker(address: str, keys: Sequence[VerifierKey] | None) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the workers
    _worker["database"], _worker["keys"] = open_database(address), keys


def _run_worker(task: tuple[int, int, list[Head]]) -> Part:
    first, end, heads = task
    return check_part(_worker["database"], first, end, heads, _worker["keys"])


# --- A whole database ----------------------------------------------------------------------------


class JournalCheck:
    """Checks a database part by part, in order; its state can be saved and resumed."""

    def __init__(self, database: Database, report: Report, keys: list[VerifierKey] | None) -> None:
        self.database, self.report, self.keys = database, report, keys
        self.next_index = 0
        self.stacks = {name: PeakStack() for name in ("tile", "entries", "upper")}
        self.upper: list[list[bytes]] = []  # the open tile of each level above 0
        self.matched = {"tile": 0, "entries": 0, "upper": 0}  # heads that each tree agrees with
        # Heads that the tiles do not lead to: size, number, role, where, whether the entries do.
        self.failed: list[tuple[int, int, str, str, bool]] = []
        self.agreed_size = 0  # of the largest head that the tiles lead to
        self.leaves: list[Leaf] = []
        self.suspects: list[int] = []  # blocks that the level above does not know
        self.bodyless: list[Bodyless] = []
        self.erasures: set[str] = set()
        self.expiries: list[Expiry] = []
        self.signed_size = 0  # of the largest tree head of the database
        self.unfounded: list[int] = []  # sealed entries with neither an entry nor a hash
        self.present = 0
        self.top_us = 0
        self.last_position = 0
        self.heads_read = 0

    # State of --resume

    def to_state(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "gatebook_verify_state": STATE_VERSION,
            "next_index": self.next_index,
            "stacks": {
                name: [stack.blocks, [peak.hex() for peak in stack.peaks]]
                for name, stack in self.stacks.items()
            },
            "upper": [[digest.hex() for digest in level] for level in self.upper],
            "matched": self.matched,
            "failed": self.failed,
            "agreed_size": self.agreed_size,
            "leaves": [
                [
                    *(leaf.index, leaf.computed.hex(), leaf.sealed.hex()),
                    *(leaf.position, leaf.kind, leaf.detail),
                ]
                for leaf in self.leaves
            ],
            "suspects": self.suspects,
            "bodyless": self.bodyless,
            "erasures": sorted(self.erasures),
            "expiries": self.expiries,
            "unfounded": self.unfounded,
            "present": self.present,
            "top_us": self.top_us,
            "last_position": self.last_position,
            "heads_read": self.heads_read,
            "counts": self.report.counts,
            "faulty_bodies": self.report.faulty_bodies,
            "findings": [asdict(finding) for finding in self.report.findings],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state. Raises Unusable."""
        try:
            if state["gatebook_verify_state"] != STATE_VERSION:
                raise ValueError
            self.next_index = int(state["next_index"])
            self.stacks = {
                name: PeakStack(blocks, map(bytes.fromhex, peaks))
                for name, (blocks, peaks) in state["stacks"].items()
            }
            self.upper = [[bytes.fromhex(text) for text in level] for level in state["upper"]]
            self.matched = dict(state["matched"])
            self.failed = [tuple(row) for row in state["failed"]]
            self.agreed_size = state["agreed_size"]
            self.leaves = [
                Leaf(index, bytes.fromhex(computed), bytes.fromhex(sealed), *rest)
                for index, computed, sealed, *rest in state["leaves"]
            ]
            self.suspects, self.erasures = state["suspects"], set(state["erasures"])
            self.bodyless = [Bodyless(*row) for row in state["bodyless"]]
            self.expiries = [Expiry(*row) for row in state["expiries"]]
            self.unfounded = state["unfounded"]
            self.present, self.top_us = state["present"], state["top_us"]
            self.last_position, self.heads_read = state["last_position"], state["heads_read"]
            self.report.counts = dict(state["counts"])
            self.report.faulty_bodies = int(state["faulty_bodies"])
            for fields in state["findings"]:
                self.report.findings.append(Finding(**fields))
                name = fields["finding"]
                self.report.listed[name] = self.report.listed.get(name, 0) + 1
        except (KeyError, TypeError, ValueError):
            raise Unusable(
                "The state of --resume is of another version or damaged. Delete the file to begin"
                " again."
            ) from None

    # Parts

    def add_part(self, part: Part) -> None:
        """Add the next part; parts come in order."""
        report = self.report
        for finding in part.findings:
            report.add(finding)
        if part.first_position and part.first_position <= self.last_position:
            report.add(
                Finding(
                    "reordered",
                    "entry",
                    f"its position {part.first_position} is not above that of the entry sealed"
                    " before it",
                    part.first,
                    part.first,
                    part.first_position,
                )
            )
        self._add_times(part)
        self.leaves += part.leaves
        self.bodyless += part.bodyless
        self.erasures.update(part.erasures)
        self.expiries += part.expiries
        self.unfounded += part.unfounded
        self.present += part.present
        self.last_position = part.last_position or self.last_position
        partials = sorted(part.partials, key=lambda partial: partial.head.size)
        at = 0
        tiles = self.database.tiles(
            1, part.first // BLOCK // BLOCK, (part.end // BLOCK + BLOCK - 1) // BLOCK
        )
        for number, block in enumerate(part.blocks):
            start = part.first + number * BLOCK
            while at < len(partials) and partials[at].head.size < start + BLOCK:
                self.check_root(partials[at])
                at += 1
            self._push_block(start // BLOCK, block, tiles)
        for partial in partials[at:]:
            self.check_root(partial)
        self.next_index = part.end

    def _push_block(self, number: int, block: Block, tiles: dict[int, bytes]) -> None:
        self.stacks["tile"].push_block(block.of_tile)
        self.stacks["entries"].push_block(block.of_entries)
        offset = number % BLOCK * 32
        above = tiles.get(number // BLOCK, b"")[offset : offset + 32]
        self.stacks["upper"].push_block(above if len(above) == 32 else block.of_tile)
        # Where the level above agrees with the entries, the leaves that differ are named.
        if len(above) == 32 and above not in (block.of_tile, block.of_entries):
            self.suspects.append(number)
        self._push_upper(1, number, block.of_tile)

    def _push_upper(self, level: int, number: int, root: bytes) -> None:
        """Add a hash to the open tile of a level; compare the tile when it is full."""
        while len(self.upper) < level:
            self.upper.append([])
        tile = self.upper[level - 1]
        tile.append(root)
        if len(tile) == BLOCK:
            index = number // BLOCK
            self._compare_tile(level, index)
            self.upper[level - 1] = []
            self._push_upper(level + 1, index, _build_levels(tile)[-1][0])

    def _compare_tile(self, level: int, index: int) -> None:
        tile = b"".join(self.upper[level - 1])
        if not tile:
            return
        stored = self.database.tiles(level, index, index + 1).get(index, b"")
        span = BLOCK**level
        first = index * BLOCK * span
        if len(stored) < len(tile):
            self.report.add(
                Finding(
                    "missing",
                    "tile",
                    f"tile {level}/{index} holds {len(stored) // 32} hashes of {len(tile) // 32}",
                    first + len(stored) // 32 * span,
                    first + len(tile) // 32 * span - 1,
                )
            )
        elif stored[: len(tile)] != tile and level > 1:
            self.report.add(
                Finding("modified", "tile", f"tile {level}/{index} is not that of the tree", first)
            )

    def check_root(self, partial: Partial) -> None:
        """Compare a head with the tree of the tiles, of the entries, of the level above."""
        head = partial.head
        self.heads_read += head.role == "database"
        is_full = head.size % BLOCK == 0
        entries_lead = False
        for name, stack in self.stacks.items():
            rest = partial.of_entries if name == "entries" else partial.of_tile
            if fold_peaks([*stack.peaks, *([] if is_full else rest)]) == head.root:
                self.matched[name] += 1
                entries_lead = entries_lead or name == "entries"
                if name == "tile":
                    self.agreed_size = max(self.agreed_size, head.size)
                    return
        self.failed.append((head.size, head.number, head.role, head.where, entries_lead))

    def _add_times(self, part: Part) -> None:
        """Name entries that claim to be much older than entries sealed before them."""
        backdated = dict(part.backdated)
        if part.low is not None and part.low[0] < self.top_us - LATE_US:
            backdated[part.low[1]] = part.low[0]
        for index, received in sorted(backdated.items()):
            minutes = (max(self.top_us, part.top_us) - received) // 60_000_000
            self.report.add(
                Finding(
                    "reordered",
                    "entry",
                    f"says that it was received {minutes} minutes before entries that were sealed"
                    " earlier: it was backdated, or the server's clock was set back",
                    index,
                    index,
                )
            )
        self.top_us = max(self.top_us, part.top_us)

    # The end

    def finish(self, size: int, heads_beyond: Sequence[Head]) -> None:
        """Draw the conclusions after the last part."""
        for level in range(1, len(self.upper) + 1):
            number = self.stacks["tile"].blocks // BLOCK ** (level - 1)
            self._compare_tile(level, (number - 1) // BLOCK)
        self._conclude_tree()
        for head in heads_beyond:
            name = "anchor_mismatch" if head.role == "anchor" else "missing"
            self.report.add(
                Finding(
                    name,
                    "entry",
                    f"{head.where} covers {head.size} entries and the tree has {size}: the end was"
                    " cut, or an old backup was restored",
                    size,
                    head.size - 1,
                ),
                head.size - size if name == "missing" else 1,
            )
        self._conclude_bodies()

    def _conclude_tree(self) -> None:
        failed_stored = [row for row in self.failed if row[2] == "database"]
        truth = "tile"
        if failed_stored or (not self.matched["tile"] and any(self.matched.values())):
            truth = max(("entries", "upper"), key=lambda name: self.matched[name])
        if truth == "entries" and self.matched["entries"]:
            for leaf in self.leaves:
                self.report.add(
                    Finding(
                        "modified",
                        "tile",
                        f"tile 0/{leaf.index // BLOCK} has another hash than its sealed entry; the"
                        " entry is intact, and the tree heads agree with it",
                        leaf.index,
                        leaf.index,
                        leaf.position,
                    )
                )
        else:
            self._conclude_leaves()
        for number in self.suspects:
            if truth == "upper" and self.matched["upper"]:
                self.report.add(
                    Finding(
                        "modified",
                        "entry",
                        "one or more of these entries and their tile were changed together; the"
                        " tree heads agree with the level above",
                        number * BLOCK,
                        number * BLOCK + BLOCK - 1,
                    )
                )
            else:
                self.report.add(
                    Finding(
                        "modified",
                        "tile",
                        f"tile 1/{number // BLOCK} does not lead to tile 0/{number}",
                        number * BLOCK,
                        number * BLOCK + BLOCK - 1,
                    )
                )
        self._conclude_forks(truth)

    def _conclude_forks(self, truth: str) -> None:
        """Report the heads that no tree leads to; those of the database together.

        Where the entries lead to a head, its history is intact, and only tiles were changed.
        """
        forks = [row for row in self.failed if truth != "entries" or not row[4]]
        stored = sorted(row for row in forks if row[2] == "database")
        if stored:
            size, number = stored[0][:2]
            more = f" and {len(stored) - 1} more" if len(stored) > 1 else ""
            self.report.add(
                Finding(
                    "fork",
                    "tree head",
                    f"tree head {number}{more}: the sealed entries do not lead to the signed root",
                    self.agreed_size if self.agreed_size < size else 0,
                    size - 1,
                ),
                len(stored),
            )
        for size, _, role, where, _ in sorted(forks):
            if role != "database":
                self.report.add(
                    Finding(
                        "anchor_mismatch" if role == "anchor" else "fork",
                        "tree head",
                        f"{where} covers {size} entries with another root: history before it was"
                        " rewritten",
                        0,
                        size - 1,
                    )
                )

    def _conclude_leaves(self) -> None:
        """Tell entries that moved from changed ones and from missing ones."""
        sealed_at = {leaf.sealed: leaf.index for leaf in self.leaves}
        gone: list[Leaf] = []
        for leaf in self.leaves:
            place = sealed_at.get(leaf.computed) if leaf.computed else None
            if not leaf.computed:
                gone.append(leaf)
            elif place is not None:
                self.report.add(
                    Finding(
                        "reordered",
                        "entry",
                        f"was sealed at log index {place}",
                        leaf.index,
                        leaf.index,
                        leaf.position,
                        leaf.kind,
                    )
                )
            else:
                self.report.add(
                    Finding(
                        "modified",
                        "entry",
                        leaf.detail or "is not what was sealed",
                        leaf.index,
                        leaf.index,
                        leaf.position,
                        leaf.kind,
                    )
                )
        for run in _join_runs(gone, self.signed_size):
            number = run[-1].index - run[0].index + 1
            detail = f"{number} sealed {'entry is' if number == 1 else 'entries are'} gone"
            if run[0].position is None and run[0].index >= self.signed_size:
                hashes = "hash" if number == 1 else "hashes"
                detail = (
                    f"the last tile has {number} {hashes} more than there are sealed entries,"
                    " and no tree head covers them: they were added to it, or entries were deleted"
                    " with their places before a tree head covered them"
                )
            self.report.add(
                Finding(
                    "missing",
                    "entry",
                    detail,
                    run[0].index,
                    run[-1].index,
                    run[0].position,
                ),
                number,
            )

    def _conclude_bodies(self) -> None:
        """Tell erased bodies from missing ones."""
        unsealed = self.database.rows(
            "SELECT source, facts, kind, position FROM journal_entry WHERE position > ?"
            " AND kind IN ('erasure.executed', 'retention.expired') AND lane = 'system'",
            (self.last_position,),
        )
        for source, facts, kind, position in unsealed:
            if not (isinstance(source, str) and isinstance(facts, str)):
                continue  # SQLite: no leaf has such a value
            if kind == "retention.expired":
                self.expiries += read_expiries(source, facts, position)
                continue
            bundle = read_bundle(source)
            self.erasures.update(f"{bundle}{at}" for at in read_erased_positions(facts))
        expired = ExpiredNames(self.expiries)
        for index, position, has_row, name in self.bodyless:
            if has_row and name in self.erasures:
                detail = "the body was erased, as an entry records"
                self.report.add(Finding("erased", "body", detail, index, index, position))
                continue
            by = expired.find_entry(name) if has_row else None
            if by is not None:
                detail = f"the body expired, as entry {by} records"
                self.report.add(Finding("erased", "body", detail, index, index, position))
                continue
            detail = (
                "the body is gone, and no entry records that its erasure was executed, or that it"
                " expired"
                if has_row
                else "the body is gone, and no erasure names it"
            )
            self.report.add(Finding("missing", "body", detail, index, index, position))


def _join_runs(leaves: Sequence[Leaf], border: int) -> Iterator[list[Leaf]]:
    """Yield leaves that follow each other; a run ends before the log index `border`."""
    run: list[Leaf] = []
    for leaf in sorted(leaves, key=lambda leaf: leaf.index):
        if run and (leaf.index == border or leaf.index != run[-1].index + 1):
            yield run
            run = []
        run.append(leaf)
    if run:
        yield run


@dataclass
class DatabaseOptions:
    """How to check a database."""

    outside: list[Head] = field(default_factory=list)  # kept heads, and heads of anchors
    pinned: list[VerifierKey] = field(default_factory=list)
    with_signatures: bool = True
    jobs: int = 1
    resume: Path | None = None
    max_lag_s: int = 60
    with_progress: bool = False


def verify_database(database: Database, options: DatabaseOptions) -> Report:
    """Check every sealed entry, body, tile and tree head of a database."""
    report = Report("database")
    try:
        _check_database(database, options, report)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        detail = (
            f"a value has a form that Gatebook does not write ({type(error).__name__}: {error})"
        )
        faults = "; ".join(f"{row.finding}: {row.what}: {row.detail}" for row in report.findings)
        raise Unusable(f"The database cannot be read to its end: {detail}. {faults}") from error
    return report


def _check_database(database: Database, options: DatabaseOptions, report: Report) -> None:
    # The tree may grow during the run: heads are read before the size that they cannot exceed.
    largest = database.heads("ORDER BY size DESC, id DESC")
    for finding in database.misfits():
        report.add(finding)
    progress_position = database.number("SELECT max(position) FROM proofs_sealprogress")
    tiles = _read_tile_sizes(database, largest[0].size if largest else 0)
    size = _measure_tree(database, largest[0].size if largest else 0, report)
    keys = _choose_keys(database, options, report)
    check = JournalCheck(database, report, keys)
    check.signed_size = largest[0].size if largest else 0
    _check_head_rows(database, size, report)
    _check_tile_sizes(tiles, size, report)
    _check_progress(database, progress_position, report)
    _check_key_rows(database, keys is not None, report)
    origin = _find_origin(database)
    outside, beyond = _sort_outside(options.outside, origin, keys, size, report)
    _check_head_times(database, outside, origin, report)
    beyond = [*(head for head in largest if head.size > size), *beyond]
    if options.resume is not None and options.resume.exists():
        _load_resume(check, options.resume, origin, size)
    if check.next_index == 0:
        empty = database.heads("WHERE size = 0 ORDER BY id", limit=10_000)
        for head in [*empty, *(head for head in outside if head.size == 0)]:
            check.check_root(Partial(head, [], []))
    progress = ProgressBar(size, options.with_progress, check.next_index)
    saved = time.monotonic()
    try:
        for part in _run_parts(database, check.next_index, size, outside, keys, options):
            check.add_part(part)
            progress.show(check.next_index, report)
            is_due = time.monotonic() - saved > SAVE_S and check.next_index % CHUNK == 0
            if options.resume is not None and is_due:
                _save_resume(check, options.resume, origin)
                saved = time.monotonic()
    except KeyboardInterrupt:
        if options.resume is not None and check.next_index % CHUNK == 0:
            _save_resume(check, options.resume, origin)
        raise
    finally:
        progress.clear()
    check.finish(size, beyond)
    _check_kept_heads(check, outside, origin)
    founded = size
    while founded - 1 in check.unfounded:
        founded -= 1
    _check_places(check, size, founded, report)
    _check_tail(database, None if founded == size else founded, options, report)
    _check_bodies_ahead(database, report)
    _check_sequences(database, report)
    changed = sum(1 for leaf in check.leaves if leaf.computed)
    report.counts["ok"] = max(check.present - changed - report.faulty_bodies, 0)
    report.facts |= {
        "origin": origin,
        "size": size,
        "heads": check.heads_read,
        "key": [str(key) for key in keys or []],
        "newest_head": largest[0].number if largest else None,
    }
    if options.resume is not None:
        options.resume.unlink(missing_ok=True)


def _measure_tree(database: Database, signed: int, report: Report) -> int:
    """Return how many leaves the sealed entries, the tiles, or both have.

    A row far beyond the end adds no leaves: it is named.
    """
    _add_far_entries(database, "log_index < 0", (), report)
    size = database.number("SELECT max(log_index) + 1 FROM proofs_sealedentry")
    likely = max(
        signed, database.number("SELECT count(*) FROM proofs_tile WHERE level = 0") * BLOCK
    )
    if size > likely:
        likely = max(likely, database.number("SELECT count(*) FROM proofs_sealedentry"))
        if size > likely:
            _add_far_entries(database, "log_index >= ?", (likely,), report)
            size = likely
    number = size // BLOCK
    while tiles := database.rows(
        'SELECT "index", length(hashes) / 32 FROM proofs_tile WHERE level = 0 AND "index" >= ?'
        ' ORDER BY "index" LIMIT 1000',
        (number,),
    ):
        for index, hashes in tiles:
            if index != number:
                return size
            size = max(size, number * BLOCK + int(hashes))
            if hashes < BLOCK:
                return size
            number += 1
    return size


def _add_far_entries(
    database: Database, condition: str, values: Sequence[Any], report: Report
) -> None:
    """Name sealed entries whose log index is not one of the tree."""
    rows = database.rows(
        f"SELECT log_index, entry_id FROM proofs_sealedentry WHERE {condition}"
        f" ORDER BY log_index LIMIT {MAX_LISTED}",
        values,
    )
    for index, position in rows:
        detail = "the tree has no leaf of this number: this row was added to the sealed entries"
        report.add(Finding("missing", "entry", detail, index, index, position))


def _choose_keys(
    database: Database, options: DatabaseOptions, report: Report
) -> list[VerifierKey] | None:
    """Return the keys that count; None to check no signatures."""
    if not options.with_signatures:
        report.notes.append("Signatures of tree heads were not checked (--no-signatures).")
        return None
    _load_ed25519()
    stored, endorsements = database.keys()
    if options.pinned:
        chain = KeyChain(tuple(stored), tuple(note for _, note in endorsements))
        return _trust_stored_keys(database, options.pinned, chain, report)
    if not any(head.role == "kept" for head in options.outside):
        report.notes.append(
            "The keys come from the database itself. Pass --key with the key that you got another"
            " way, or --head with a tree head that you kept."
        )
    return stored


def _trust_stored_keys(
    database: Database, pinned: Sequence[VerifierKey], chain: KeyChain, report: Report
) -> list[VerifierKey]:
    """Return the pinned keys, later ones, and earlier ones up to the newest head of these."""
    trusted = extend_keys(pinned, chain.notes)
    earlier = find_earlier_keys(trusted, chain)
    newest = database.heads("ORDER BY size DESC, id DESC", limit=1_000) if earlier else []
    for head in newest:
        if not check_head_signature(head, trusted):
            report.notes.append(
                f"{head.where}, which a key that you trust signed, vouches for the entries of heads"
                " of earlier keys, not for their times."
            )
            return [*trusted, *(key._replace(upto=head.size) for key in earlier)]
    return trusted


def _check_head_rows(database: Database, size: int, report: Report) -> None:
    """Check that stored heads are numbered without gaps, and never shrink.

    A tree has a head within seconds of its first entry. No time of an entry excuses its absence:
    who deletes heads can change that time too.
    """
    number, last, first = database.rows("SELECT count(*), max(id), min(id) FROM proofs_treehead")[0]
    if size and not number:
        detail = f"{size} sealed entries and no tree head: heads were deleted, or manage.py setup"
        report.add(Finding("missing", "tree head", f"{detail} never ran"))
    if number and (last - first + 1 != number or first != 1):
        report.add(
            Finding("missing", "tree head", f"{number} tree heads are numbered {first} to {last}"),
            max(last - number, 1),
        )
    shrunk = database.rows(
        "SELECT later.id FROM proofs_treehead later JOIN proofs_treehead earlier"
        " ON earlier.id = later.id - 1 WHERE later.size < earlier.size ORDER BY later.id LIMIT 10"
    )
    for (head,) in shrunk:
        report.add(Finding("fork", "tree head", f"tree head {head} is smaller than the one before"))


def _read_tile_sizes(database: Database, signed: int) -> list[tuple[int, int, int]]:
    """Return level, index and bytes of tiles that no entry below the size `signed` checks."""
    return database.rows(
        'SELECT level, "index", length(hashes) FROM proofs_tile WHERE level > 0'
        ' OR "index" >= ? OR length(hashes) % 32 <> 0 ORDER BY level, "index"',
        (signed // BLOCK,),
    )


def _check_tile_sizes(tiles: Sequence[tuple[int, int, int]], size: int, report: Report) -> None:
    """Name tiles, and parts of tiles, that a tree of `size` leaves does not have."""
    for level, index, length in tiles:
        needed = max(0, min(BLOCK, (size >> 8 * max(level, 0)) - index * BLOCK))
        if length > needed * 32 or length % 32:
            detail = f"tile {level}/{index} has hashes: {length / 32:g}, and a tree of {size}"
            detail += f" leaves needs {needed}: they were added"
            report.add(Finding("modified", "tile", detail))


def _check_progress(database: Database, position: int, report: Report) -> None:
    last = database.number("SELECT max(position) FROM journal_entry")
    if position > last:
        detail = (
            f"proofs_sealprogress says that the job saw position {position}, and the last entry"
        )
        report.add(Finding("modified", "seal progress", f"{detail} has {last}"))


class KeyRow(NamedTuple):
    """A stored public key with its time of use."""

    row: int
    key: VerifierKey
    key_id: str
    first_used_us: int
    retired_at_us: int | None
    endorsement: str

    @property
    def where(self) -> str:
        """How findings name the key."""
        return f"key {self.row} ({self.key.key_id.hex()})"


def _check_key_rows(database: Database, with_signatures: bool, report: Report) -> None:
    """Compare the stored keys with each other and with the heads that they signed.

    A key is stored when the one before it retires, with the endorsement of that one unless it was
    lost, and signs a head at once.
    """
    rows = [
        KeyRow(row, make_key(name, bytes(public)), *others)
        for row, name, public, *others in database.rows(
            "SELECT id, name, public_key, key_id, first_used_us, retired_at_us, endorsement"
            " FROM proofs_signingkey ORDER BY id LIMIT 10000"
        )
    ]
    signers = _check_head_keys(database, rows, report)
    origin = _find_origin(database)
    faults: list[tuple[KeyRow, str]] = []
    for number, row in enumerate(rows):
        if row.key_id != row.key.key_id.hex():
            faults.append((row, f"its row says that its key id is {row.key_id}"))
        if origin and row.key.name != origin:
            faults.append((row, f"its name {row.key.name!r} is not {origin!r}"))
        if number:
            fault = _find_key_fault(rows[:number], row, row.key.key_id in signers, with_signatures)
            if fault:
                faults.append((row, fault))
            elif not row.endorsement:
                report.notes.append(
                    f"No key endorses {row.where}: the key before it was lost (rotate_seal_key"
                    " --lost), or somebody signs with a key of their own. Compare it with the key"
                    " that was published, or pass --key."
                )
    if rows and all(row.retired_at_us is not None for row in rows):
        fault = "it is retired and no key follows it: Gatebook stores the next key at the same time"
        faults.append((rows[-1], fault))
    for row, fault in faults:
        report.add(Finding("modified", "key", f"{row.where}: {fault}"))


def _find_key_fault(
    earlier: Sequence[KeyRow], row: KeyRow, has_signed: bool, with_signatures: bool
) -> str:
    """Return what shows that a key did not follow the ones before it as Gatebook stores keys."""
    before = earlier[-1]
    if before.retired_at_us is None:
        return f"it follows {before.where}, which was never retired: the row was added"
    if abs(row.first_used_us - before.retired_at_us) > LATE_US:
        return (
            f"it was first used at {_format_time(row.first_used_us)}, and {before.where} before it"
            f" was retired at {_format_time(before.retired_at_us)}: one of the rows was changed"
        )
    if not has_signed:
        return "it signed no tree head, and Gatebook signs one when it stores a key: it was added"
    if row.endorsement and with_signatures:
        trusted = extend_keys([other.key for other in earlier], [row.endorsement])
        if row.key not in trusted:
            return "no key before it signed its endorsement"
    return ""


def _check_head_keys(database: Database, rows: Sequence[KeyRow], report: Report) -> set[bytes]:
    """Name heads that a key signed outside of its time of use; return the keys that signed."""
    keys = {(row.key.name, row.key.key_id): row for row in rows}
    signers: set[bytes] = set()
    untimely: dict[tuple[KeyRow, str], list[str]] = {}
    for head in _read_all_heads(database, -1):
        names = [(name, key_id) for name, key_id, _ in head.signatures]
        signers.update(key_id for _, key_id in names)
        if names and head.row_key not in [(name, key_id.hex()) for name, key_id in names]:
            detail = (
                f"the row of {head.where} names the key {head.row_key[1]}, which did not sign it"
            )
            report.add(Finding("modified", "tree head", detail))
        stored = [keys[name] for name in names if name in keys]
        words = [_compare_use(row, head.signed_at_us) for row in stored if head.signed_at_us]
        if words and all(words):
            untimely.setdefault((stored[0], words[0]), []).append(head.where)
    for (row, word), heads in untimely.items():
        more = f" and {len(heads) - 1} more" if len(heads) > 1 else ""
        detail = f"{row.where} signed {heads[0]}{more} {word}: its row was changed, the key was"
        detail += " used when it did not count, or the server's clock was set back"
        report.add(Finding("modified", "key", detail))
    return signers


def _compare_use(row: KeyRow, signed_at_us: int) -> str:
    if row.retired_at_us is not None and signed_at_us > row.retired_at_us + LATE_US:
        return f"after it was retired at {_format_time(row.retired_at_us)}"
    if signed_at_us < row.first_used_us - LATE_US:
        return f"before its first use at {_format_time(row.first_used_us)}"
    return ""


def _check_head_times(
    database: Database, outside: Sequence[Head], origin: str, report: Report
) -> None:
    """Check that heads were signed in the order of their sizes, and before they were anchored."""
    top_us = 0
    for head in _read_all_heads(database, -1):
        if head.signed_at_us and head.signed_at_us < top_us - LATE_US:
            _add_early_head(report, head, top_us, "head before it")
        top_us = max(top_us, head.signed_at_us)
    anchored = database.rows(
        "SELECT anchor.name, head.id, anchor.anchored_at_us, head.made_at_us FROM proofs_anchor"
        " anchor JOIN proofs_treehead head ON head.id = anchor.tree_head_id"
        f" WHERE anchor.error = '' AND anchor.anchored_at_us < head.made_at_us - {LATE_US}"
        " ORDER BY head.id LIMIT 10"
    )
    for name, number, anchored_at_us, made_at_us in anchored:
        what = f"tree head {number} was signed at {_format_time(made_at_us)}, after its anchor"
        what += f" {name} took it at {_format_time(anchored_at_us)}"
        report.add(Finding("reordered", "tree head", what))
    for head in outside:
        if head.origin != (origin or head.origin) or not head.signed_at_us:
            continue
        for after in database.heads("WHERE size > ? ORDER BY id", (head.size,)):
            if after.signed_at_us and after.signed_at_us < head.signed_at_us - LATE_US:
                _add_early_head(report, after, head.signed_at_us, f"smaller {head.where}")


def _check_kept_heads(check: JournalCheck, outside: Sequence[Head], origin: str) -> None:
    """Name heads that were kept outside, agree with the tree, and are in the database no more."""
    failed = {(row[0], row[3]) for row in check.failed}
    lost = {
        head.signed: head
        for head in outside
        if head.origin == (origin or head.origin) and (head.size, head.where) not in failed
    }
    for head in _read_all_heads(check.database, -1) if lost else ():
        lost.pop(head.signed, None)
    for head in lost.values():
        detail = f"{head.where} ({head.size} entries) is not among the tree heads of the database"
        detail += ": heads were deleted, or an old backup was restored"
        check.report.add(Finding("missing", "tree head", detail))


def _add_early_head(report: Report, head: Head, other_us: int, other: str) -> None:
    what = f"{head.where} says {_format_time(head.signed_at_us)}, and the {other}"
    what += f" {_format_time(other_us)}: it was backdated, or the server's clock was set back"
    report.add(Finding("reordered", "tree head", what))


def _format_time(at_us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_us // 1_000_000))


def _find_origin(database: Database) -> str:
    rows = database.rows("SELECT note FROM proofs_treehead ORDER BY id DESC LIMIT 1")
    heads = find_heads(rows[0][0], "") if rows else []
    return heads[0].origin if heads else ""


def _sort_outside(
    heads: Sequence[Head],
    origin: str,
    keys: Sequence[VerifierKey] | None,
    size: int,
    report: Report,
) -> tuple[list[Head], list[Head]]:
    """Split the heads from outside into those within the tree and those beyond its end."""
    within: list[Head] = []
    beyond: list[Head] = []
    foreign = 0
    for head in dict.fromkeys(heads):
        if origin and head.origin != origin:
            if head.role == "kept":
                raise Unusable(
                    f"{head.where} is a tree head of {head.origin}; this database is {origin}."
                )
            foreign += 1
            continue
        if keys is not None:
            fault = check_head_signature(head, keys)
            if fault and head.role == "kept":
                report.notes.append(f"{head.where} {fault}; its root was compared all the same.")
            elif fault:
                name, what = "anchor_mismatch", f"{head.where}, {head.size} entries, {fault}"
                report.add(Finding(name, "tree head", what))
        (within if head.size <= size else beyond).append(head)
    if foreign:
        report.notes.append(f"{foreign} tree heads of other installations were skipped.")
    kept = [head for head in beyond if head.role == "kept"]
    anchored = [head for head in beyond if head.role == "anchor"]
    return within, [*kept, *anchored[-1:]]


def _read_all_heads(database: Database, after: int) -> Iterator[Head]:
    """Yield the heads of sizes above `after` by number, in pages."""
    number = database.number("SELECT min(id) - 1 FROM proofs_treehead WHERE size > ?", (after,))
    while heads := database.heads("WHERE id > ? ORDER BY id", (number,), 5_000):
        yield from (head for head in heads if head.size > after)
        number = heads[-1].number


def _run_parts(
    database: Database,
    first: int,
    size: int,
    outside: Sequence[Head],
    keys: list[VerifierKey] | None,
    options: DatabaseOptions,
) -> Iterator[Part]:
    """Yield the checked parts in order, from `jobs` processes."""

    def list_tasks() -> Iterator[tuple[int, int, list[Head]]]:
        stored = _read_all_heads(database, first)
        head = next(stored, None)
        for start in range(first, size, CHUNK):
            end = min(start + CHUNK, size)
            heads = [other for other in outside if start < other.size <= end]
            while head is not None and head.size <= end:
                heads.append(head)
                head = next(stored, None)
            if head is not None:  # the first over the last entries, for their times
                heads.append(head)
            yield start, end, heads

    if options.jobs <= 1 or size - first <= CHUNK:
        for start, end, heads in list_tasks():
            yield check_part(database, start, end, heads, keys)
        return
    with multiprocessing.get_context("spawn").Pool(
        options.jobs, _start_worker, (database.address, keys)
    ) as pool:
        tasks = list_tasks()
        waiting = []  # a few tasks ahead of the workers, so that memory stays bounded
        for task in tasks:
            waiting.append(pool.apply_async(_run_worker, (task,)))
            if len(waiting) >= options.jobs * 3:
                yield waiting.pop(0).get()
        for result in waiting:
            yield result.get()


def _save_resume(check: JournalCheck, path: Path, origin: str) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(check.to_state() | {"origin": origin}))
    part.replace(path)


def _load_resume(check: JournalCheck, path: Path, origin: str, size: int) -> None:
    try:
        state = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Unusable(f"{path} cannot be read: {error}. Delete it to begin again.") from None
    if not isinstance(state, dict) or state.get("origin") != origin:
        raise Unusable(f"{path} is the state of another database. Name another file.")
    check.load_state(state)
    if check.next_index > size or check.next_index % CHUNK:
        raise Unusable(f"{path} does not fit this database. Delete it to begin again.")


def _check_places(check: JournalCheck, size: int, founded: int, report: Report) -> None:
    """Name entries that stand among the sealed ones and were never sealed.

    After `founded` leaves only rows follow that have neither an entry nor a hash.
    """
    database = check.database
    absent = size - check.present - len(check.unfounded)
    absent -= sum(1 for leaf in check.leaves if not leaf.computed)
    if absent > 0:
        detail = f"{absent} of {size} leaves have neither an entry nor a finding of their own"
        report.add(Finding("missing", "entry", detail), absent)
    last = database.number(
        "SELECT max(entry_id) FROM proofs_sealedentry WHERE log_index < ?", (founded,)
    )
    number = database.number("SELECT count(*) FROM journal_entry WHERE position <= ?", (last,))
    if number <= check.present:
        return
    rows = database.rows(
        "SELECT entry.position, entry.kind FROM journal_entry entry WHERE entry.position <= ?"
        " AND NOT EXISTS (SELECT 1 FROM proofs_sealedentry sealed WHERE"
        " sealed.entry_id = entry.position AND sealed.log_index >= 0 AND sealed.log_index < ?)"
        " ORDER BY entry.position LIMIT 1000",
        (last, founded),
    )
    for position, kind in rows:
        report.add(
            Finding(
                "reordered",
                "entry",
                "stands before sealed entries, and was never sealed: it was inserted afterwards",
                position=position,
                kind=kind,
            )
        )


def _check_tail(
    database: Database, founded: int | None, options: DatabaseOptions, report: Report
) -> None:
    """Count what waits for its seal; only rows below `founded` are of the tree, if it is given."""
    limit, values = ("", ()) if founded is None else (" WHERE log_index < ?", (founded,))
    number, oldest = database.rows(
        "SELECT count(*), min(received_us) FROM journal_entry WHERE position >"
        f" (SELECT coalesce(max(entry_id), 0) FROM proofs_sealedentry{limit})",
        values,
    )[0]
    if not number:
        return
    if not isinstance(oldest, int):  # SQLite: the sealer names the entry
        oldest = 0
    age = max(time.time() - oldest / 1_000_000, 0)
    report.is_behind = age > options.max_lag_s
    report.facts["unsealed_tail"] = {"entries": number, "age_s": round(age, 1)}
    words = f"{number} {'entry waits' if number == 1 else 'entries wait'} for the seal,"
    report.add(Finding("unsealed_tail", "entry", f"{words} for {age:.0f} s"), number)


def _check_bodies_ahead(database: Database, report: Report) -> None:
    """Name bodies at positions that the journal has not reached; an entry brings its own."""
    rows = database.rows(
        "SELECT entry_id FROM journal_body WHERE entry_id >"
        " (SELECT coalesce(max(position), 0) FROM journal_entry) ORDER BY entry_id LIMIT 1000"
    )
    for (position,) in rows:
        detail = "somebody wrote it before the journal reached its position: remove it"
        report.add(Finding("modified", "body", detail, position=position))


def _check_sequences(database: Database, report: Report) -> None:
    """Find numbers that are missing in a producer's own sequence within a session."""
    rows = database.rows(
        "SELECT source, session, count(DISTINCT producer_seq), min(producer_seq),"
        " max(producer_seq) FROM journal_entry WHERE producer_seq IS NOT NULL"
        " GROUP BY project, source, session"
        " HAVING max(producer_seq) - min(producer_seq) + 1 > count(DISTINCT producer_seq)"
        " ORDER BY 1, 2 LIMIT 10000"
    )
    for source, session, number, first, last in rows:
        if not (isinstance(first, int) and isinstance(last, int)):
            continue  # SQLite: no leaf has such a number
        absent = last - first + 1 - number
        report.add(
            Finding(
                "producer_gap",
                "sequence",
                f"{source} in session {session}: {absent} of the numbers {first} to {last} never"
                " came. Facts were not sent, or this producer leaves numbers out",
            )
        )


class ProgressBar:
    """A bar on a terminal."""

    def __init__(self, size: int, is_shown: bool, done: int = 0) -> None:
        self.size, self.is_shown, self.before = size, is_shown, done
        self.started, self.shown = time.monotonic(), 0.0

    def show(self, done: int, report: Report) -> None:
        """Draw the bar, at most five times a second."""
        now = time.monotonic()
        if not self.is_shown or (now - self.shown < 0.2 and done < self.size):
            return
        self.shown = now
        rate = (done - self.before) / max(now - self.started, 1e-3)
        left = (self.size - done) / rate if rate else 0
        filled = 30 * done // max(self.size, 1)
        faults = sum(report.counts.get(name, 0) for name in BROKEN)
        sys.stderr.write(
            f"\r[{'#' * filled}{'.' * (30 - filled)}] {done:,} of {self.size:,} entries,"
            f" {rate:,.0f}/s, {left:.0f} s left, {faults} faults \x1b[K"
        )
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the bar."""
        if self.is_shown:
            sys.stderr.write("\r\x1b[K")


# --- Two heads -----------------------------------------------------------------------------------


class Tiles(Protocol):
    """Where tiles are read."""

    def read_tile(self, level: int, index: int, width: int) -> bytes:
        """Return at least the first `width` hashes of a tile. Raises Unusable."""


class Log(Tiles, Protocol):
    """Where tiles, the keys and the newest tree head are read."""

    def read_keys(self) -> KeyChain:
        """Return the keys of the log; none, and the reason, if they cannot be read."""

    def read_checkpoint(self) -> Head:
        """Return the newest tree head. Raises Unusable."""


def name_tile(level: int, index: int, width: int) -> str:
    """Return the path of a tile as C2SP tlog-tiles names it."""
    groups = [f"{index % 1000:03d}"]
    while index >= 1000:
        index //= 1000
        groups.insert(0, f"x{index % 1000:03d}")
    return f"tile/{level}/{'/'.join(groups)}{f'.p/{width}' if width < BLOCK else ''}"


class StoredTiles:
    """Tiles in a folder, or below a URL."""

    def __init__(self, base: str) -> None:
        self.base = base.rstrip("/")

    def read_tile(self, level: int, index: int, width: int) -> bytes:
        """Return a tile; of a partial one the full tile serves as well."""
        errors = []
        for size in dict.fromkeys((width, BLOCK)):
            name = name_tile(level, index, size)
            try:
                data = fetch_bytes(f"{self.base}/{name}")
            except Unusable as error:
                errors.append(str(error))
                continue
            if len(data) >= width * 32 and len(data) % 32 == 0:
                return data
            errors.append(f"{name} holds {len(data)} bytes.")
        raise Unusable(f"A tile is missing: {errors[0]}")

    def read_keys(self) -> KeyChain:
        """Return the keys that are listed in `keys`, and the endorsements after them."""
        place = f"{self.base}/keys"
        try:
            text = fetch_bytes(place).decode(errors="replace")
            listed = [parse_key(line) for line in text.partition("\n\n")[0].splitlines()]
        except Unusable as error:
            return KeyChain(places=(f"{place}: {error}",))
        return KeyChain(tuple(listed), (text,), (place,))

    def read_checkpoint(self) -> Head:
        """Return the head in `checkpoint`."""
        place = f"{self.base}/checkpoint"
        return _read_head(fetch_bytes(place).decode(errors="replace"), place)


class DatabaseTiles:
    """Tiles of a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def read_tile(self, level: int, index: int, width: int) -> bytes:
        """Return a tile."""
        data = self.database.tiles(level, index, index + 1).get(index, b"")
        if len(data) < width * 32:
            raise Unusable(f"Tile {level}/{index} of the database has {len(data) // 32} hashes.")
        return data

    def read_keys(self) -> KeyChain:
        """Return the stored keys and their endorsements."""
        stored, endorsements = self.database.keys()
        notes = tuple(note for _, note in endorsements)
        return KeyChain(tuple(stored), notes, ("the database",))

    def read_checkpoint(self) -> Head:
        """Return the stored head with the highest number."""
        heads = self.database.heads("ORDER BY id DESC")
        if not heads:
            raise Unusable("The database has no tree head.")
        return heads[0]


def fetch_bytes(address: str) -> bytes:
    """Read a file or a URL. Raises Unusable."""
    if address.startswith(("http://", "https://")):
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310
                data: bytes = answer.read(MAX_FETCH + 1)
        except (urllib.error.URLError, OSError) as error:
            raise Unusable(f"{address} cannot be read: {error}.") from None
        if len(data) > MAX_FETCH:
            raise Unusable(f"{address} answers with more than {MAX_FETCH:,} bytes.")
        return data
    try:
        return Path(address).read_bytes()
    except OSError as error:
        raise Unusable(f"{address} cannot be read: {error.strerror}.") from None


class TreeOfTiles:
    """Nodes, roots and proofs of a tree whose tiles are read when needed."""

    def __init__(self, tiles: Tiles, size: int) -> None:
        self.tiles, self.size = tiles, size
        self._cache: dict[tuple[int, int], bytes] = {}

    def read_node(self, level: int, index: int) -> bytes:
        """Return the root of the complete subtree `index` of 2**`level` leaves."""
        tile_level, rest = divmod(level, 8)
        start, number = index << rest, 1 << rest
        tile_index = start // BLOCK
        width = min((self.size >> (tile_level * 8)) - tile_index * BLOCK, BLOCK)
        key = (tile_level, tile_index)
        if key not in self._cache:
            self._cache[key] = self.tiles.read_tile(tile_level, tile_index, width)
        tile, at = self._cache[key], start % BLOCK
        hashes = [tile[place * 32 : place * 32 + 32] for place in range(at, at + number)]
        return _build_levels(hashes)[-1][0]

    def compute_range(self, first: int, end: int) -> bytes:
        """Return the RFC 6962 hash over the leaves `first` to `end`."""
        peaks, start = [], first
        for level in range((end - first).bit_length() - 1, -1, -1):
            if (end - first) >> level & 1:
                peaks.append(self.read_node(level, start >> level))
                start += 1 << level
        return fold_peaks(peaks)

    def prove_growth(self, old_size: int) -> list[bytes]:
        """Return the consistency proof from `old_size` (RFC 6962, 2.1.2)."""
        if old_size in (0, self.size):
            return []
        return self._prove(old_size, 0, self.size, True)

    def _prove(self, old: int, first: int, end: int, is_whole: bool) -> list[bytes]:
        number = end - first
        if old == number:
            return [] if is_whole else [self.compute_range(first, end)]
        half = 1 << (number - 1).bit_length() - 1
        if old <= half:
            path = self._prove(old, first, first + half, is_whole)
            return [*path, self.compute_range(first + half, end)]
        path = self._prove(old - half, first + half, end, False)
        return [*path, self.compute_range(first, first + half)]


def compare_heads(
    old: Head, new: Head, report: Report, tiles: Tiles | None, path: Sequence[bytes] | None
) -> None:
    """Check that the tree of `new` extends that of `old`."""
    if old.origin != new.origin:
        raise Unusable(
            f"The heads are of two installations: {old.where} of {old.origin}, {new.where} of"
            f" {new.origin}."
        )
    if old.size > new.size:
        report.add(
            Finding(
                "missing",
                "entry",
                f"{old.where} covers {old.size} entries, {new.where} only {new.size}: the end was"
                " cut, or an old backup was restored",
                new.size,
                old.size - 1,
            ),
            old.size - new.size,
        )
        return
    if old.size == new.size:
        path = []
    elif path is None and tiles is not None:
        path = TreeOfTiles(tiles, new.size).prove_growth(old.size)
    if path is None:
        raise Unusable(
            "Heads of different sizes need tiles or a proof: pass --tiles with a folder, database"
            " or URL (http://…/proofs/log), or --proof with a consistency proof."
        )
    if verify_consistency_path(old.size, old.root, new.size, new.root, path):
        report.notes.append(f"{new.size} entries extend the {old.size} of {old.where}.")
        _compare_times(old, new, report)
        report.counts["ok"] = report.counts.get("ok", 0) + 1
    else:
        report.add(
            Finding(
                "fork",
                "tree head",
                f"{new.where} ({new.size} entries) does not extend {old.where} ({old.size}):"
                " history was rewritten, or the tiles or the proof are not of these heads",
                0,
                old.size - 1,
            )
        )


def check_two_signatures(
    old: Head, new: Head, pinned: Sequence[VerifierKey], places: Sequence[Log], report: Report
) -> bool:
    """Check who signed two heads; return whether to compare them. Raises Unusable.

    The newer head needs a key that you trust, or that endorsements lead to. If its tree begins with
    the older one, it vouches for the older one, whose key may be an earlier one.
    """
    _load_ed25519()
    chain = KeyChain()
    if not all(match_signatures(head, pinned) for head in (old, new)):
        chain = _join_chains(chain, *(place.read_keys() for place in places))
    trusted = extend_keys(pinned, chain.notes)
    unknown = []
    for head, earlier in ((old, find_earlier_keys(trusted, chain)), (new, [])):
        try:
            fault, is_earlier = find_head_fault(head, trusted, earlier, chain)
        except Unusable as reason:
            unknown.append(str(reason))
            continue
        if fault:
            report.add(Finding("modified", "tree head", f"{head.where} {fault}"))
        elif is_earlier:
            report.notes.append(
                f"{old.where} is signed by a key before those that you trust. {new.where} vouches"
                " for its entries if it extends it, not for its time."
            )
    if unknown and not report.is_broken:
        raise Unusable(unknown[0])
    report.notes += unknown
    return not unknown


def _join_chains(*chains: KeyChain) -> KeyChain:
    keys = tuple(dict.fromkeys(key for chain in chains for key in chain.keys))
    notes = tuple(dict.fromkeys(note for chain in chains for note in chain.notes))
    return KeyChain(keys, notes, tuple(place for chain in chains for place in chain.places))


def _compare_times(old: Head, new: Head, report: Report) -> None:
    if not old.signed_at_us or not new.signed_at_us:
        return
    if old.size == new.size:
        first, last = sorted((old.signed_at_us, new.signed_at_us))
        times = f"{_format_time(first)} and {_format_time(last)}"
        report.notes.append(f"No entry was sealed between {times}.")
    elif new.signed_at_us < old.signed_at_us - LATE_US:
        _add_early_head(report, new, old.signed_at_us, f"smaller {old.where}")


# --- Proof files and bundles ---------------------------------------------------------------------


def read_json(data: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object. Raises Unusable."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{where} is no JSON: {error}.") from None
    if not isinstance(document, dict):
        raise Unusable(f"{where} is no JSON object.")
    return document


def verify_document(
    document: dict[str, Any],
    where: str,
    report: Report,
    pinned: Sequence[VerifierKey],
    with_signatures: bool = True,
    tiles: Log | None = None,
) -> Head:
    """Check the entries of a proof file against its tree head; return the head."""
    try:
        head = _read_head(document["head"], f"the tree head in {where}", "database")
        stored = [parse_key(text) for text in document["keys"]]
        entries, erased = list(document["entries"]), list(document.get("erased", []))
        notes = [str(note) for note in document.get("endorsements", [])]
    except (KeyError, TypeError, AttributeError):
        raise Unusable(f"{where} is not a proof file of Gatebook: head, keys, entries.") from None
    if with_signatures:
        _load_ed25519()
        chain = KeyChain(tuple(stored), tuple(notes), (where,))
        _check_document_head(head, document.get("extended_by"), pinned, chain, tiles, report)
        if not pinned:
            report.notes.append(
                f"The key comes from {where} itself. Compare it with the key that you got another"
                f" way, or pass --key: {', '.join(map(str, stored))}"
            )
    else:
        report.notes.append("The signature of the tree head was not checked (--no-signatures).")
    names_erased = {row.get("log_index"): row for row in erased if isinstance(row, dict)}
    seen: set[int] = set()
    unrecorded = _find_unrecorded(entries, names_erased)
    for row in entries:
        _verify_document_entry(row, head, names_erased, unrecorded, seen, report)
    for index in sorted(unrecorded - seen, key=str):
        detail = "the file names an erasure of an entry that is not in it"
        report.add(
            Finding("missing", "entry", detail, position=names_erased[index].get("position"))
        )
    report.facts |= {
        "origin": head.origin,
        "size": head.size,
        "head": document.get("head_number"),
        "root": base64.b64encode(head.root).decode(),
        "entries": len(entries),
        "key": [str(key) for key in stored],
        "anchors": document.get("anchors", []),
    }
    return head


def _check_document_head(
    head: Head,
    extension: Any,
    pinned: Sequence[VerifierKey],
    chain: KeyChain,
    tiles: Log | None,
    report: Report,
) -> None:
    """Check who signed the head of a proof file. Raises Unusable if its key is unknown."""
    trusted = extend_keys(pinned, chain.notes) if pinned else list(chain.keys)
    if tiles is not None and not match_signatures(head, trusted):
        chain = _join_chains(chain, tiles.read_keys())
        trusted = extend_keys(pinned or trusted, chain.notes)
    earlier = find_earlier_keys(trusted, chain)
    fault, is_earlier = find_head_fault(head, trusted, earlier, chain)
    if fault:
        report.add(Finding("modified", "tree head", f"{head.where} {fault}"))
    elif is_earlier:
        _check_extension(head, extension, trusted, tiles, report)


def _check_extension(
    head: Head,
    extension: Any,
    trusted: Sequence[VerifierKey],
    tiles: Log | None,
    report: Report,
) -> None:
    """Check that a head of a trusted key extends that of an earlier key. Raises Unusable."""
    later, path = None, None
    with contextlib.suppress(KeyError, TypeError, ValueError, Unusable):
        later = _read_head(str(extension["head"]), f"the later head for {head.where}")
        path = [bytes.fromhex(text) for text in extension["proof"]]
    if (later is None or path is None or check_head_signature(later, trusted)) and (
        tiles is not None
    ):
        later, path = tiles.read_checkpoint(), None
    if later is None or check_head_signature(later, trusted):
        raise Unusable(
            f"Nothing was proved: {head.where} is signed by a key before those that you trust, and"
            " no tree head of theirs that extends it is given. Pass --tiles with the log"
            " (http://…/proofs/log), or the key of that head as well: --key may be repeated."
        )
    compared = Report(report.mode)
    compare_heads(head, later, compared, tiles, path)
    for finding in compared.findings:
        report.add(finding)
    if not compared.findings:
        report.notes.append(
            f"{head.where} is signed by a key before those that you trust. {later.where}, signed by"
            " one that you trust, extends it: it vouches for the entries, not for the time of that"
            " head."
        )


def _verify_document_entry(
    row: Any,
    head: Head,
    erased: dict[Any, Any],
    unrecorded: set[Any],
    seen: set[int],
    report: Report,
) -> None:
    try:
        index, leaf = row["log_index"], row["entry"]
        path = [bytes.fromhex(text) for text in row["proof"]]
        digest = hash_leaf_object(leaf)
        position = row.get("position")
        salt, text = row.get("salt"), row.get("text")
        commit = leaf["body_commit"]
        if not isinstance(index, int) or any(len(part) != 32 for part in path):
            raise ValueError("log_index or proof cannot be read")
        is_body = (
            text is not None
            and salt is not None
            and len(bytes.fromhex(salt)) == 32
            and _SHA256(bytes.fromhex(salt) + text.encode()).hexdigest() == commit
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        report.add(Finding("modified", "entry", f"an entry of the file cannot be read: {error}"))
        return
    kind = str(leaf["kind"])
    if index in seen:
        report.add(Finding("modified", "entry", "is in the file twice", index, index, position))
        return
    seen.add(index)
    if not verify_inclusion_path(digest, index, head.size, path, head.root):
        detail = "the tree does not contain it at this place: entry or proof was changed"
        report.add(Finding("modified", "entry", detail, index, index, position, kind))
        return
    report.counts["ok"] = report.counts.get("ok", 0) + 1
    if is_body or (commit is None and text is None):
        return
    if text is not None:
        detail = "its text or salt is not what the entry commits to"
        report.add(Finding("modified", "body", detail, index, index, position, kind))
    elif index in unrecorded:
        detail = "the file names an erasure, but no entry in it records that it was executed"
        recorded_by = erased[index].get("recorded_by")
        if erased[index].get("by") is None and isinstance(recorded_by, int):
            detail = (
                f"the file says that entry {recorded_by} records its erasure, which no tree head"
                " covered at the export: export it again"
            )
        report.add(Finding("missing", "body", detail, index, index, position, kind))
    elif index in erased:
        detail = "the body was erased, as an entry records"
        report.add(Finding("erased", "body", detail, index, index, position, kind))
    elif row.get("withheld"):
        report.facts["withheld"] = report.facts.get("withheld", 0) + 1
    else:
        detail = "the body is not in the file, and the file names no erasure"
        report.add(Finding("missing", "body", detail, index, index, position, kind))


def _find_unrecorded(entries: Sequence[Any], erased: dict[Any, Any]) -> set[Any]:
    """Return the indexes of erasures that no entry of the file records."""
    executed: dict[int, set[str]] = {}
    expired: dict[int, ExpiredNames] = {}
    names: dict[int, str] = {}
    for row in entries:
        with contextlib.suppress(KeyError, TypeError):
            leaf, index = row["entry"], row["log_index"]
            source, facts = leaf["source"], leaf["facts"]
            names[index] = name_erased_entry(source, facts, row["position"])
            if leaf["kind"] == "erasure.executed" and leaf["lane"] == "system":
                bundle = read_bundle(source)
                executed[index] = {f"{bundle}{at}" for at in read_erased_positions(facts)}
            elif leaf["kind"] == "retention.expired" and leaf["lane"] == "system":
                expired[index] = ExpiredNames(read_expiries(source, facts, row["position"]))
    unrecorded: set[Any] = set()
    for index, row in erased.items():
        by, name = row.get("by"), names.get(index, "")
        is_expired = by in expired and bool(name) and expired[by].find_entry(name) is not None
        if name not in executed.get(by, ()) and not is_expired:
            unrecorded.add(index)
    return unrecorded


_SAME: Final = (
    *("source", "claimed_source", "id", "kind", "lane", "effect", "attempt", "subject", "actor"),
    *("lease_epoch", "producer_seq", "occurred_us", "received_us"),
)


_ARTIFACTS: Final = "artifacts/"  # the folder of a bundle whose files are named by their hashes
_RECORDED_ARTIFACT: Final = "artifact.recorded"
_UNCHECKED: Final = (
    "Entries and their bodies are checked. The summary in bundle.json (states of effects, gates,"
    " permissions, votes) and README.md are not: read them in the entries."
)
_WITHHELD: Final = (
    "Bodies with pseudonyms in place of names, which cannot be compared with their entries: {}."
)
_UNCHECKED_EXPORT: Final = (
    "Entries and their bodies are checked. The rows and the README.md of the export are not: they"
    " are what Gatebook showed, and the entries say whether it was right."
)


def verify_bundle(
    path: Path,
    pinned: Sequence[VerifierKey],
    with_signatures: bool = True,
    tiles: Log | None = None,
) -> tuple[Report, Head]:
    """Check a bundle: every member's hash, the proofs, and that the readable part agrees."""
    report = Report("bundle")
    try:
        with zipfile.ZipFile(path) as file:
            for member in file.infolist():
                if member.file_size > MAX_MEMBER:
                    raise Unusable(f"{member.filename} unpacks to {member.file_size:,} bytes.")
            _check_sums(file, report)
            if "proof.json" not in file.namelist():
                raise Unusable(
                    f"{path} has no proof.json: it was written before its entries were sealed, or"
                    " by an older Gatebook. Export it again."
                )
            document = read_json(file.read("proof.json"), "proof.json")
            head = verify_document(document, "proof.json", report, pinned, with_signatures, tiles)
            if "bundle.json" in file.namelist():
                shown = read_json(file.read("bundle.json"), "bundle.json")
                _compare_shown(shown, document, head, report)
                _check_artifacts(file, shown, document, report)
                report.notes.append(_UNCHECKED)
                if withheld := report.facts.get("withheld"):
                    report.notes.append(_WITHHELD.format(withheld))
            elif "about.json" in file.namelist():
                report.notes.append(_UNCHECKED_EXPORT)
    except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise Unusable(f"{path} cannot be read: {error}.") from None
    return report, head


def _check_sums(file: zipfile.ZipFile, report: Report) -> None:
    """Compare the members with SHA256SUMS of a session, or about.json of an export."""
    sums = {}
    if "SHA256SUMS" in file.namelist():
        for line in file.read("SHA256SUMS").decode(errors="replace").splitlines():
            digest, _, name = line.partition("  ")
            sums[name] = digest
    elif "about.json" in file.namelist():
        listed = read_json(file.read("about.json"), "about.json").get("files")
        if not isinstance(listed, dict):
            raise Unusable("about.json of the export lists no files.")
        sums = {
            name: str(part.get("sha256")) for name, part in listed.items() if isinstance(part, dict)
        }
    names = set(file.namelist()) - {"SHA256SUMS", "about.json"}
    for name in sorted(names | sums.keys()):
        if name not in names:
            report.add(Finding("missing", "member", f"{name} is not in the bundle"))
        else:
            computed = _SHA256()
            with file.open(name) as member:
                while piece := member.read(1 << 20):
                    computed.update(piece)
            if computed.hexdigest() != sums.get(name):
                report.add(
                    Finding("modified", "member", f"{name} has another hash than the bundle states")
                )
            elif name.startswith(_ARTIFACTS) and name != _ARTIFACTS + computed.hexdigest():
                report.add(Finding("modified", "member", f"{name} has other bytes than it names"))


def _check_artifacts(
    file: zipfile.ZipFile, shown: dict[str, Any], document: dict[str, Any], report: Report
) -> None:
    """Check that each artifact is one whose hash an entry of the bundle records.

    An entry that waits for its seal is counted as unproved, and its artifact with it.
    """
    recorded = set[str]()
    for row in document["entries"]:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            if row["entry"]["kind"] == _RECORDED_ARTIFACT:
                recorded.add(_read_hash(json.loads(row["entry"]["facts"])))
    positions = [row.get("position") for row in document["entries"] if isinstance(row, dict)]
    proved = {position for position in positions if isinstance(position, int)}
    for entry in shown.get("entries", []):
        position = entry.get("position")
        is_waiting = isinstance(position, int) and position not in proved
        if is_waiting and entry.get("kind") == _RECORDED_ARTIFACT:
            recorded.add(_read_hash(entry.get("facts")))
    members = {name for name in file.namelist() if name.startswith(_ARTIFACTS)}
    artifacts = shown.get("artifacts", [])
    for row in artifacts if isinstance(artifacts, list) else [artifacts]:
        digest = _read_hash(row)
        if not digest or digest not in recorded:
            detail = f"bundle.json shows an artifact that no entry records: {digest or row}"
            report.add(Finding("modified", "member", detail))
        elif row.get("enclosed") and f"{_ARTIFACTS}{digest}" not in members:
            detail = f"{_ARTIFACTS}{digest} is not in the bundle"
            report.add(Finding("missing", "member", detail))
    for name in sorted(members):
        if name.removeprefix(_ARTIFACTS) not in recorded:
            report.add(Finding("modified", "member", f"no entry records the bytes of {name}"))


def _read_hash(row: Any) -> str:
    """Return the hash that a row of an untrusted file names; empty without one."""
    digest = row.get("sha256") if isinstance(row, dict) else None
    return digest if isinstance(digest, str) else ""


def _compare_shown(
    shown: dict[str, Any], document: dict[str, Any], head: Head, report: Report
) -> None:
    """Check that bundle.json shows the entries that proof.json proves.

    Positions grow in the order of the tree. So an entry up to the last position of the tree head is
    in the tree, and its proof is missing; a later one may wait for its seal.
    """
    proved = {row.get("position"): row for row in document["entries"] if isinstance(row, dict)}
    unproved = 0
    for entry in shown.get("entries", []):
        row = proved.pop(entry.get("position"), None)
        position = entry.get("position")
        if row is None and isinstance(position, int) and position > head.last_position:
            unproved += 1
            continue
        if row is None:
            detail = "has no proof in the bundle, though the tree head covers its position"
            kind = str(entry.get("kind", ""))
            report.add(Finding("missing", "proof", detail, position=position, kind=kind))
            continue
        try:
            differs = _find_difference(entry, row, shown.get("origin", {}).get("session"))
        except (KeyError, TypeError, ValueError, AttributeError):
            differs = "its form"
        if differs:
            report.add(
                Finding(
                    "modified",
                    "entry",
                    f"bundle.json shows another {differs} than was sealed",
                    row.get("log_index"),
                    row.get("log_index"),
                    entry.get("position"),
                    str(entry.get("kind", "")),
                )
            )
    erasing = {row.get("by") for row in document.get("erased", []) if isinstance(row, dict)}
    for position, row in proved.items():
        detail = "is proved, but bundle.json does not show it"
        index = row.get("log_index")
        if index in erasing:  # of another session, as the erasure of an exemption's reason
            continue
        report.add(Finding("missing", "entry", detail, index, index, position))
    if unproved:
        detail = (
            f"{unproved} entries of bundle.json have no proof: they were not sealed at the export,"
            " or they are forged"
        )
        report.add(Finding("unsealed_tail", "entry", detail), unproved)
        report.is_behind = True


def _find_difference(entry: dict[str, Any], row: dict[str, Any], session: Any) -> str:
    leaf = row["entry"]
    for name in _SAME:
        value = leaf[name]
        if name in _INTEGERS and isinstance(value, str):
            value = int(value)
        if entry[name] != value:
            return name
    if json.loads(leaf["facts"]) != entry["facts"]:
        return "facts"
    if leaf["body_commit"] != entry["commitment"]:
        return "commitment"
    if entry["of_session"] and leaf["session"] != session:
        return "session"
    body = entry["body"]
    if body is None and leaf["body_commit"] is not None:
        return "body"
    if (
        body is not None
        and "salt" in body
        and (body["text"], body["salt"])
        != (
            row["text"],
            row["salt"],
        )
    ):
        return "body"
    return ""


# --- The command ---------------------------------------------------------------------------------


def add_database_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the mode `database`."""
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--resume", type=Path, metavar="STATE", help="save the state, continue")
    parser.add_argument(
        "--max-lag", type=int, default=60, metavar="SECONDS", help="a longer wait: exit code 4"
    )
    parser.add_argument("--complete", action="store_true", help="gaps of producers: exit code 3")
    add_trust_options(parser)
    add_outside_options(parser)


def add_trust_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every mode."""
    parser.add_argument("--json", action="store_true", help="report as JSON")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        help="a key that you trust, or its file; may be repeated",
    )
    parser.add_argument("--no-signatures", action="store_true", help="check no signatures")


def add_outside_options(parser: argparse.ArgumentParser) -> None:
    """Add what somebody outside kept."""
    parser.add_argument(
        "--head", action="append", default=[], metavar="FILE", help="a tree head that you kept"
    )
    parser.add_argument(
        "--anchor", action="append", default=[], metavar="FILE", help="an anchor file of heads"
    )


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="gatebook_verify.py",
        description=(__doc__ or "").split("\n\n")[0],
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    modes = parser.add_subparsers(dest="mode", required=True, metavar="MODE")
    database = modes.add_parser("database", help="every entry, body, tile and tree head")
    database.add_argument(
        "address",
        nargs="?",
        default=os.environ.get("DATABASE_URL", ""),
        help="SQLite file, or PostgreSQL URL; default: DATABASE_URL",
    )
    add_database_options(database)
    bundle = modes.add_parser("bundle", help="a bundle, without any installation")
    bundle.add_argument("file", type=Path)
    heads = modes.add_parser("heads", help="that a tree head extends an older one")
    heads.add_argument("old", help="file or URL")
    heads.add_argument("new", help="file or URL, as http://…/proofs/log/checkpoint")
    heads.add_argument("--proof", metavar="FILE", help="a consistency proof, one hash a line")
    proof = modes.add_parser("proof", help="one entry with its proof")
    proof.add_argument("file", type=Path)
    for mode in (bundle, heads, proof):
        add_trust_options(mode)
        mode.add_argument("--tiles", metavar="PLACE", help="folder, database or URL with tiles")
    for mode in (bundle, proof):
        add_outside_options(mode)
    return parser


def _read_keys(given: Sequence[str]) -> list[VerifierKey]:
    keys = []
    for text in given:
        if "+" not in text or Path(text).is_file():
            text = fetch_bytes(text).decode(errors="replace")
        keys += [parse_key(line) for line in text.splitlines() if line.strip()]
    return keys


def _read_outside(given: argparse.Namespace) -> list[Head]:
    heads = [_read_head(fetch_bytes(name).decode(errors="replace"), name) for name in given.head]
    for name in given.anchor:
        anchored = find_heads(fetch_bytes(name).decode(errors="replace"), name, "anchor")
        if not anchored:
            raise Unusable(f"{name} holds no signed tree head.")
        heads += anchored
    return heads


def _open_tiles(place: str | None) -> Log | None:
    if place is None:
        return None
    if place.startswith(("http://", "https://")) or Path(place).is_dir():
        return StoredTiles(place)
    return DatabaseTiles(open_database(place))


def _compare_outside(
    head: Head, outside: Sequence[Head], report: Report, tiles: Tiles | None
) -> None:
    """Compare the head of a proof file with kept heads and anchors."""
    for role in ("kept", "anchor"):
        others = [other for other in outside if other.role == role and other.origin == head.origin]
        given = [other for other in outside if other.role == role]
        if given and not others:
            raise Unusable(f"{given[0].where} is of {given[0].origin}; the file of {head.origin}.")
        if role == "anchor":  # the anchored head of the same size proves most
            others = [other for other in others if other.size == head.size] or others[-1:]
        for other in others:
            compared = Report(report.mode)
            older, newer = (other, head) if other.size <= head.size else (head, other)
            compare_heads(older, newer, compared, tiles, None)
            for finding in compared.findings:
                finding.finding = "anchor_mismatch" if role == "anchor" else finding.finding
                report.add(finding)
            report.notes += compared.notes


def run_mode(given: argparse.Namespace) -> Report:
    """Run one mode and return its report."""
    pinned, with_signatures = _read_keys(given.key), not given.no_signatures
    if given.mode == "heads":
        report = Report("heads")
        old, new = (
            _read_head(fetch_bytes(place).decode(errors="replace"), place)
            for place in (given.old, given.new)
        )
        names = dict.fromkeys((given.tiles, _guess_tiles(given.new)))
        places = [tiles for tiles in map(_open_tiles, names) if tiles is not None]
        is_compared = True
        if pinned and with_signatures:
            is_compared = check_two_signatures(old, new, pinned, places, report)
        else:
            report.notes.append("Signatures were not checked: pass --key to check them.")
        path = _read_path(given.proof) if given.proof else None
        if is_compared:
            compare_heads(old, new, report, places[0] if places else None, path)
        report.facts |= {"origin": new.origin, "old_size": old.size, "size": new.size}
        return report
    outside = _read_outside(given)
    if given.mode == "database":
        if not given.address:
            raise Unusable("Name a SQLite file or a PostgreSQL URL, or set DATABASE_URL.")
        is_shown = sys.stderr.isatty() and not given.json
        options = DatabaseOptions(
            *(outside, pinned, with_signatures, max(given.jobs, 1), given.resume, given.max_lag),
            is_shown,
        )
        return verify_database(open_database(given.address), options)
    tiles = _open_tiles(given.tiles)
    if given.mode == "bundle":
        report, head = verify_bundle(given.file, pinned, with_signatures, tiles)
    else:
        report = Report("proof")
        document = read_json(fetch_bytes(str(given.file)), str(given.file))
        where = str(given.file)
        head = verify_document(document, where, report, pinned, with_signatures, tiles)
    _compare_outside(head, outside, report, tiles)
    return report


def _guess_tiles(new: str) -> str | None:
    """Return the log of a head that was given as its URL."""
    is_log = new.startswith(("http://", "https://")) and new.endswith("/checkpoint")
    return new.removesuffix("/checkpoint") if is_log else None


def _read_path(name: str) -> list[bytes]:
    text = fetch_bytes(name).decode(errors="replace")
    try:
        if text.lstrip().startswith("["):
            return [bytes.fromhex(part) for part in json.loads(text)]
        return [
            bytes.fromhex(line) if len(line) == 64 else base64.b64decode(line, validate=True)
            for line in text.split()
        ]
    except (ValueError, TypeError, binascii.Error):
        raise Unusable(f"{name} is no consistency proof: one hash a line, in hex.") from None


def write_report(report: Report, code: int) -> str:
    """Return the report for people; at most 20 findings of a kind."""
    lines = []
    listed: dict[str, int] = {}
    for finding in report.findings:
        listed[finding.finding] = listed.get(finding.finding, 0) + 1
        if listed[finding.finding] > MAX_SHOWN:
            continue
        place = ""
        if finding.first is not None:
            same = finding.last is None or finding.last == finding.first
            place = f" {finding.first}" if same else f" {finding.first} to {finding.last}"
        position = f" (#{finding.position}{' ' if finding.kind else ''}{finding.kind})"
        where = position if finding.position is not None else ""
        lines.append(f"{finding.finding}: {finding.what}{place}{where}: {finding.detail}")
    for name, number in listed.items():
        if number > MAX_SHOWN:
            lines.append(f"{name}: {number - MAX_SHOWN:,} more; --json lists up to {MAX_LISTED:,}")
    lines += [f"Note: {note}" for note in report.notes]
    counted = ", ".join(f"{number:,} {name}" for name, number in sorted(report.counts.items()))
    about = ", ".join(
        f"{name} {report.facts[name]}"
        for name in ("origin", "size", "seconds", "entries_per_cpu_second")
        if report.facts.get(name) not in (None, "")
    )
    lines.append(f"{counted or 'nothing to check'} ({about})")
    words = {
        OK: "Integrity holds.",
        IS_BROKEN: "Integrity is BROKEN.",
        HAS_GAPS: "Integrity holds; the record of a producer has gaps.",
        IS_BEHIND: (
            "What is proved holds; entries without a proof remain."
            if report.mode == "bundle"
            else "Integrity holds; sealing is behind."
        ),
    }
    lines.append(f"{words[code]} Exit code {code}.")
    return "".join(f"{line}\n" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    given = build_parser().parse_args(arguments)
    started, cpu = time.monotonic(), _cpu_seconds()
    try:
        report = run_mode(given)
    except Unusable as error:
        if given.json:
            sys.stdout.write(json.dumps({"error": str(error), "exit_code": IS_UNUSABLE}) + "\n")
        else:
            sys.stderr.write(_escape_surrogates(f"{error}\n"))
        return IS_UNUSABLE
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return INTERRUPTED
    used = _cpu_seconds() - cpu
    report.facts["seconds"] = round(time.monotonic() - started, 2)
    report.facts["cpu_seconds"] = round(used, 2)
    if report.facts.get("size") and given.mode == "database":
        report.facts["entries_per_cpu_second"] = round(report.facts["size"] / max(used, 1e-3))
    code = report.exit_code(getattr(given, "complete", False))
    if given.json:
        sys.stdout.write(json.dumps(report.to_json(code), indent=1) + "\n")
    else:
        sys.stdout.write(_escape_surrogates(write_report(report, code)))
    return code


def _escape_surrogates(text: str) -> str:
    """Return a text that UTF-8 can write; a stored value that is no UTF-8 has surrogates."""
    return text.encode(errors="backslashreplace").decode()


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
