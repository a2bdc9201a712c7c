"""Bundles of leaves, as C2SP tlog-tiles serves entries: 256 neighbours in the tree."""

import struct
from collections.abc import Collection
from typing import Final
from uuid import UUID

from django.db import connection

from db import raw_sql
from proofs.leaf import LEAF_FIELDS, encode_leaf_row, list_leaf_columns
from proofs.merkle import TILE_WIDTH

MAX_LEAF_BYTES: Final = 65_535  # a length has two bytes
_PROJECT: Final = LEAF_FIELDS.index("project")
_READ: Final = (
    "SELECT {columns} FROM proofs_sealedentry sealed"
    " JOIN journal_entry entry ON entry.position = sealed.entry_id"
    " WHERE sealed.log_index >= %s AND sealed.log_index < %s ORDER BY sealed.log_index"
)


class HiddenEntriesError(PermissionError):
    """A bundle has entries that the reader may not see. The text says what to do."""


def load_entry_bundle(index: int, width: int, projects: Collection[UUID]) -> bytes:
    """Return the first `width` leaves of a tile at level 0 for a member of `projects`.

    Raises HiddenEntriesError if an entry is of another project, LookupError if the tree has no such
    leaves or one is too long for the format.
    """
    first = index * TILE_WIDTH
    columns = list_leaf_columns(connection.vendor)
    rows = raw_sql.fetch_rows(_READ.format(columns=columns), [first, first + width])
    if len(rows) < width:
        raise LookupError("There is no such tile.")
    try:
        leaves = [encode_leaf_row(row) for row in rows]
    except (TypeError, ValueError) as error:
        raise LookupError(
            f"An entry of this tile was changed: {error}. Run `manage.py verify`."
        ) from None
    if {UUID(str(row[_PROJECT])) for row in rows} - set(projects):
        raise HiddenEntriesError(
            "This tile has entries of projects that you are not a member of. Ask a member of all"
            " projects, or use an export of your project: it proves each of its entries."
        )
    if any(len(leaf) > MAX_LEAF_BYTES for leaf in leaves):
        raise LookupError(
            f"A leaf of this tile is longer than {MAX_LEAF_BYTES} bytes. Use an export."
        )
    return b"".join(struct.pack(">H", len(leaf)) + leaf for leaf in leaves)
