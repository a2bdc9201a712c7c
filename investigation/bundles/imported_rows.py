"""Digests of the rows of an imported session, by table and column.

The entries of another Gatebook do not give these rows again: its policies and people are not in
the bundle. So the entry of the import has a digest of each column, and the check of rows names
those that differ since.
"""

import hashlib
import hmac
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db.models import Model, QuerySet

from investigation.models import ImportedBundle, ImportedGate
from journal import entries
from ledger.models import Attempt, Effect
from sessions.models import (
    Artifact,
    Checkpoint,
    Decision,
    Handoff,
    Item,
    ObservedFact,
    Session,
    Task,
)

# Model -> the path to its session.
_TABLES: Final[dict[type[Model], str]] = {
    Session: "id",
    Task: "session",
    Item: "task__session",
    Artifact: "session",
    Checkpoint: "session",
    Decision: "session",
    Handoff: "session",
    ObservedFact: "session",
    Effect: "session",
    Attempt: "effect__session",
    ImportedGate: "effect__session",
    ImportedBundle: "session",
}
_NOT_COMPARED: Final[dict[type[Model], str]] = {
    Artifact: "stored_at_us",  # its bytes may have been removed
    ImportedBundle: "position",  # that of the entry which has the digest
}
IMPORTED_MODELS: Final = tuple(_TABLES)
FACT: Final = "row_digests"  # of the entry; "rows" had the digests of an earlier version
ROWS: Final = "rows"  # the name of the count among the columns
_SHOWN: Final = 16  # hex digits of a digest


def digest_imported_rows(session: UUID) -> dict[str, dict[str, str]]:
    """Return the digest of each column of a session's rows, by table, with the number of rows."""
    return {
        model._meta.db_table: _digest_table(model._default_manager.filter(**{path: session}))
        for model, path in _TABLES.items()
    }


def _digest_table(rows: "QuerySet[Any]") -> dict[str, str]:
    """Return the digests of the columns, each over pairs of a row's primary key and its value.

    No erasure changes a primary key, so it changes the digests only of the columns that it empties.
    """
    skipped = _NOT_COMPARED.get(rows.model)
    names = [
        field.attname for field in rows.model._meta.concrete_fields if field.attname != skipped
    ]
    key = settings.GATEBOOK_PEPPER
    digests = {name: hmac.new(key, name.encode(), hashlib.sha256) for name in names}
    count = 0
    for row_key, *values in rows.order_by("pk").values_list("pk", *names).iterator(2_000):
        count += 1
        for name, value in zip(names, values, strict=True):
            digests[name].update(entries.dump_sorted_json([row_key, value]).encode())
            digests[name].update(b"\n")
    shown = {name: digest.hexdigest()[:_SHOWN] for name, digest in digests.items()}
    return {ROWS: str(count), **shown}
