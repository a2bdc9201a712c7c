"""Attacks on the stored tree by SQL: the triggers refuse each."""

import pytest
from django.db import connection

from db import triggers
from proofs import tree_store
from proofs.models import SealedEntry, SigningKey, Tile, TreeHead
from tests.journal.attacks import attack
from tests.ledger.rows_by_hand import World

pytestmark = pytest.mark.django_db
ADD = "INTO proofs_sealedentry (log_index, entry_id) VALUES"
TILE = 'INTO proofs_tile (level, "index", hashes) VALUES'
HEAD = (
    "INTO proofs_treehead (id, size, root, made_at_us, key_name, key_id, note)"
    " SELECT {}, {}, root, 1, key_name, key_id, note FROM proofs_treehead WHERE id = 1"
)
ATTACKS = [
    "UPDATE proofs_sealedentry SET entry_id = 9999",
    "DELETE FROM proofs_sealedentry WHERE log_index = 1",
    f"INSERT {ADD} (3, 1000)",  # a gap
    f"INSERT {ADD} (2, 1)",  # an earlier entry after a later one
    f"INSERT {ADD} (-1, 1000)",
    f"INSERT {ADD} (2, 1000)",  # no entry has this position
    "INSERT INTO proofs_sealedentry"
    " SELECT max(log_index) + 1, max(entry_id) + 100 FROM proofs_sealedentry",
    "DELETE FROM proofs_tile",
    'UPDATE proofs_tile SET "index" = 7',
    "UPDATE proofs_tile SET hashes = substr(hashes, 33)",
    "UPDATE proofs_tile SET hashes = substr(hashes, 1, 32)",
    f"INSERT {TILE} (0, 1, 'h')",  # the first tile is not full
    "UPDATE proofs_treehead SET note = 'forged'",
    "DELETE FROM proofs_treehead",
    f"INSERT {HEAD.format(4, 9)}",  # a gap
    f"INSERT {HEAD.format(3, 1)}",  # smaller than the last one
    "UPDATE proofs_signingkey SET endorsement = 'forged'",
    "UPDATE proofs_signingkey SET retired_at_us = 7, first_used_us = 6",
    "DELETE FROM proofs_signingkey",
]
OF_SQLITE = [
    f"INSERT OR REPLACE {ADD} (1, 1000)",
    f"INSERT OR REPLACE {ADD} (2, (SELECT entry_id FROM proofs_sealedentry WHERE log_index = 0))",
    f"INSERT OR REPLACE {TILE} (0, 0, 'h')",
    f"INSERT OR REPLACE {HEAD.format(1, 9)}",
    "INSERT OR REPLACE INTO proofs_signingkey SELECT id, name, key_id, x'"
    + "00" * 32
    + "', first_used_us, NULL, '' FROM proofs_signingkey",
]
OF_POSTGRESQL = [
    f"TRUNCATE {table} CASCADE"
    for table in ("proofs_sealedentry", "proofs_tile", "proofs_treehead", "proofs_signingkey")
]


def everything() -> list[list[tuple[object, ...]]]:
    with connection.cursor() as cursor:
        rows = []
        for model in (SealedEntry, Tile, TreeHead, SigningKey):
            cursor.execute(f"SELECT * FROM {model._meta.db_table} ORDER BY 1")
            rows.append(
                [
                    tuple(bytes(cell) if isinstance(cell, memoryview) else cell for cell in row)
                    for row in cursor.fetchall()
                ]
            )
        return rows


def test_the_stored_tree_is_append_only() -> None:
    world = World()
    for model in (SealedEntry, SealedEntry, Tile, TreeHead, SigningKey):
        world.write(model)
    tree_store.StoredTiles().write_tile(1, 0, b"h" * 64)
    Tile.objects.filter(level=0).update(hashes=b"h" * 64)  # it may grow
    world.write(TreeHead, size=5)
    before = everything()
    own = OF_SQLITE if connection.vendor == "sqlite" else OF_POSTGRESQL
    # PostgreSQL refuses some statements, for its own reasons, while checks are pending.
    connection.check_constraints()
    for statement in [*ATTACKS, *own]:
        refusal = attack(statement)
        assert "the seal is append-only" in refusal, (statement, refusal)
    assert everything() == before
    assert SigningKey.objects.update(retired_at_us=9) == 1
    assert "only its retirement" in attack("UPDATE proofs_signingkey SET retired_at_us = 10")


def test_the_tables_of_the_seal_are_not_granted_for_change() -> None:
    assert {"journal_entry", "proofs_sealedentry", "proofs_treehead"} <= set(
        triggers.find_append_only_tables()
    )
