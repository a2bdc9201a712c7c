"""Leaves of the tree: the canonical bytes of a journal entry, and their hash.

A leaf is the RFC 8785 JSON object of LEAF_FIELDS. docs/reference/proofs.md has its rules and test
vectors. This module is pure.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import orjson

# In the order of RFC 8785, which sorts names.
LEAF_FIELDS: Final = (
    *("actor", "attempt", "body_commit", "claimed_source", "effect", "facts", "id", "kind", "lane"),
    *("lease_epoch", "occurred_us", "producer_seq", "project", "received_us", "schema_version"),
    *("session", "source", "subject"),
)
_UUID_FIELDS: Final = frozenset({"effect", "project", "session", "subject"})
MAX_INTEGER: Final = 2**53 - 1  # larger ones differ between readers of JSON
# Queries compare UUIDs of SQLite as text: an entry with another spelling is invisible to them.
_is_plain: Final = re.compile(r"[0-9a-f]{32}").fullmatch


def list_leaf_columns(vendor: str, table: str = "entry") -> str:
    """Return the columns of `journal_entry` in the order of LEAF_FIELDS, as text of SQL.

    UUIDs are 32 hexadecimal digits, as SQLite stores them. PostgreSQL converts UUIDs and bytes,
    which costs less than Python's objects for them.
    """
    columns = []
    for name in LEAF_FIELDS:
        column = f"{table}.{name}"
        if vendor == "postgresql" and name in _UUID_FIELDS:
            column = f"replace(CAST({column} AS text), '-', '')"
        elif name == "body_commit":
            encode = "encode({}, 'hex')" if vendor == "postgresql" else "lower(hex({}))"
            # SQLite's hex() of NULL is an empty text.
            column = f"CASE WHEN {column} IS NULL THEN NULL ELSE {encode.format(column)} END"
        columns.append(column)
    return ", ".join(columns)


def build_leaf(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaf of an entry as an object, from its columns by name.

    Raises ValueError for a UUID in another form than a UUID or 32 lower-case hexadecimal digits.
    """
    return build_leaf_from_row([columns[name] for name in LEAF_FIELDS])


def build_leaf_from_row(row: Sequence[Any]) -> dict[str, Any]:
    """Return the leaf as an object, from values in the order of LEAF_FIELDS.

    Raises ValueError as `build_leaf` does.
    """
    (actor, attempt, body_commit, claimed_source, effect, facts, event_id, kind, lane) = row[:9]
    (lease_epoch, occurred_us, producer_seq, project, received_us, schema_version) = row[9:15]
    (session, source, subject) = row[15:]
    return {
        "actor": actor,
        "attempt": attempt,
        "body_commit": (
            body_commit
            if body_commit is None or isinstance(body_commit, str)
            else bytes(body_commit).hex()
        ),
        "claimed_source": claimed_source,
        "effect": None if effect is None else _format_uuid("effect", effect),
        "facts": facts,
        "id": event_id,
        "kind": kind,
        "lane": lane,
        "lease_epoch": lease_epoch and _format_integer(lease_epoch),
        "occurred_us": occurred_us and _format_integer(occurred_us),
        "producer_seq": producer_seq and _format_integer(producer_seq),
        "project": _format_uuid("project", project),
        "received_us": _format_integer(received_us),
        "schema_version": schema_version,
        "session": None if session is None else _format_uuid("session", session),
        "source": source,
        "subject": None if subject is None else _format_uuid("subject", subject),
    }


def encode_leaf(columns: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of an entry, from its columns by name."""
    return orjson.dumps(build_leaf(columns))


def encode_leaf_row(row: Sequence[Any]) -> bytes:
    """Return the canonical bytes, from values in the order of LEAF_FIELDS."""
    return orjson.dumps(build_leaf_from_row(row))


def hash_leaf(data: bytes) -> bytes:
    """Return the hash of a leaf's bytes, as RFC 6962 defines it."""
    return hashlib.sha256(b"\x00" + data).digest()


def _format_uuid(name: str, value: UUID | str) -> str:
    """Return a UUID with dashes."""
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, str) or _is_plain(value) is None:
        raise ValueError(f"its {name} is not written as 32 lower-case hexadecimal digits")
    return f"{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"


def _format_integer(value: int) -> int | str:
    return value if -MAX_INTEGER <= value <= MAX_INTEGER else str(value)
