"""Seals the journal of a test, and seals it again as somebody with a stolen key would."""

import itertools
from collections.abc import Sequence
from typing import Any, Final
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import connection

from db.clock import now_us
from journal import fingerprints
from journal.models import Entry
from proofs import leaf, merkle, signing_keys, tree_heads, tree_store
from proofs.models import SealedEntry, Tile, TreeHead
from proofs.verifier import gatebook_verify
from proofs.verifier.gatebook_verify import DatabaseOptions, Head, Report
from tests.journal.drafts import NOW_US

KEY: Final = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
_CALLS: Final = itertools.count()


def seal_entries(upto: int | None = None, key: Ed25519PrivateKey = KEY) -> TreeHead:
    """Seal the entries up to a tree size, by default all, and sign a head of the tree."""
    fingerprints.record_fingerprints()
    signing_keys.store_first_key(KEY)
    end = tree_store.load_tree_end()
    rows = Entry.objects.filter(position__gt=end.position).order_by("position")
    entries = list(rows[: None if upto is None else upto - end.size])
    merkle.append_leaves(end.size, map(_hash_entry, entries), tree_store.StoredTiles())
    tree_store.store_sealed_entries(end.size, [entry.position for entry in entries])
    with patch.object(tree_heads, "now_us", read_clock):
        return tree_heads.sign_tree_head(signing_keys.load_origin(), key)


def read_clock() -> int:
    """Return the time of the system, but after the entries of tests, and later at each call."""
    return max(now_us(), NOW_US + 60_000_000 + next(_CALLS))


def reseal_entries(key: Ed25519PrivateKey = KEY) -> None:
    """Build the whole tree again over the entries as they are now, with heads of the same sizes."""
    sizes = list(TreeHead.objects.order_by("id").values_list("size", flat=True))
    for model in (SealedEntry, Tile, TreeHead):
        model.objects.all()._raw_delete(model.objects.db)
    for size in sizes:
        seal_entries(size, key)


def keep_head(head: TreeHead, role: str = "kept") -> Head:
    """Return a tree head as somebody outside keeps it."""
    [kept] = gatebook_verify.find_heads(head.note, "kept.note", role)
    return kept


def verify_here(outside: Sequence[Head] = (), **options: Any) -> Report:
    """Run the verifier on the test's own connection, within its transaction."""
    connection.ensure_connection()
    is_sqlite = connection.vendor == "sqlite"
    kind = gatebook_verify.SqliteDatabase if is_sqlite else gatebook_verify.PostgresqlDatabase
    database = kind.__new__(kind)
    database.address, database.connection = "", connection.connection
    if isinstance(database, gatebook_verify.PostgresqlDatabase):
        import psycopg

        database.error = psycopg.Error
    return gatebook_verify.verify_database(database, DatabaseOptions(list(outside), **options))


def hash_entries() -> list[bytes]:
    """Return the leaf hashes of all entries as they are now."""
    return [_hash_entry(entry) for entry in Entry.objects.order_by("position")]


def _hash_entry(entry: Entry) -> bytes:
    names = {name: "event_id" if name == "id" else name for name in leaf.LEAF_FIELDS}
    columns = {name: getattr(entry, column) for name, column in names.items()}
    return leaf.hash_leaf(leaf.encode_leaf(columns))
