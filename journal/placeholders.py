"""Entries by Gatebook for things that a fact names before their own facts arrive.

Each gets a position, and so a handle.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import orjson

from journal import entries
from journal.entries import SYSTEM_SOURCE, Draft

_SORTED: Final = orjson.OPT_SORT_KEYS


def append_placeholders(
    project: UUID, kind: str, things: Mapping[UUID, Mapping[str, UUID]], received_us: int
) -> dict[UUID, int]:
    """Append an entry of `kind` for each thing; return its position by id.

    `things` holds by id the columns of the entry that identify the thing.
    """
    results = entries.append_entries(
        [_draft(project, kind, thing, about) for thing, about in things.items()], received_us
    )
    return {thing: result.position for thing, result in zip(things, results, strict=True)}


def _draft(project: UUID, kind: str, thing: UUID, about: Mapping[str, UUID]) -> Draft:
    return Draft(
        project=project,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest(kind, str(thing)),
        kind=kind,
        lane="system",
        actor=SYSTEM_SOURCE,
        # Two facts may name a thing at once: an equal text makes their entries one.
        text=orjson.dumps(about, option=_SORTED).decode(),
        session=about.get("session"),
        effect=about.get("effect"),
    )
