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

# Model -> the path to its session, the columns of its order, and those that are not compared.
_TABLES: Final[tuple[tuple[type[Model], str, tuple[str, ...], tuple[str, ...]], ...]] = (
    (Session, "id", ("id",), ()),
    (Task, "session", ("id",), ()),
    (Item, "task__session", ("task_id", "key"), ("id",)),
    (Artifact, "session", ("id",), ("stored_at_us",)),  # its bytes may have been removed
    (Checkpoint, "session", ("id",), ()),
    (Decision, "session", ("id",), ()),
    (Handoff, "session", ("id",), ()),
    (ObservedFact, "session", ("name", "source"), ("id",)),
    (Effect, "session", ("id",), ()),
    (Attempt, "effect__session", ("effect_id", "number"), ("id",)),
    (ImportedGate, "effect__session", ("id",), ()),
    # Its position is that of the entry which has the digest.
    (ImportedBundle, "session", ("id",), ("position",)),
)
IMPORTED_MODELS: Final = tuple(model for model, *_ in _TABLES)
ROWS: Final = "rows"  # the name of the count among the columns
_SHOWN: Final = 16  # hex digits of a digest


def digest_imported_rows(session: UUID) -> dict[str, dict[str, str]]:
    """Return the digest of each column of a session's rows, by table, with the number of rows."""
    return {
        model._meta.db_table: _digest_table(
            model._default_manager.filter(**{path: session}), order, skipped
        )
        for model, path, order, skipped in _TABLES
    }


def _digest_table(
    rows: "QuerySet[Any]", order: tuple[str, ...], skipped: tuple[str, ...]
) -> dict[str, str]:
    """Return the digests of the columns, each over pairs of a row's key and its value."""
    names = [
        field.attname for field in rows.model._meta.concrete_fields if field.attname not in skipped
    ]
    key = settings.GATEBOOK_PEPPER
    digests = {name: hmac.new(key, name.encode(), hashlib.sha256) for name in names}
    count = 0
    for values in rows.order_by(*order).values_list(*names).iterator(2_000):
        count += 1
        row = dict(zip(names, values, strict=True))
        row_key = [str(row[name]) for name in order]
        for name, value in row.items():
            digests[name].update(entries.dump_sorted_json([row_key, value]).encode())
            digests[name].update(b"\n")
    shown = {name: digest.hexdigest()[:_SHOWN] for name, digest in digests.items()}
    return {ROWS: str(count), **shown}
