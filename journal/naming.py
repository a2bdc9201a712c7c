"""Gatebook's own entries for what a fact names before anybody tells of it: each has its position, and so its handle."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import orjson

from journal import entries
from journal.entries import SYSTEM_SOURCE, Draft

_SORTED: Final = orjson.OPT_SORT_KEYS


def name(
    project: UUID, kind: str, things: Mapping[UUID, Mapping[str, UUID]], received_us: int
) -> dict[UUID, int]:
    """Append an entry of `kind` for each thing, and return its position by id. To name one again appends nothing.

    `things` holds, by id, the columns of the entry that say what it is of.
    """
    fates = entries.append(
        [_draft(project, kind, thing, about) for thing, about in things.items()], received_us
    )
    return {thing: fate.position for thing, fate in zip(things, fates, strict=True)}


def _draft(project: UUID, kind: str, thing: UUID, about: Mapping[str, UUID]) -> Draft:
    return Draft(
        project=project,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest(kind, str(thing)),
        kind=kind,
        lane="system",
        actor=SYSTEM_SOURCE,
        # Two facts may name a thing at once: the text says nothing of either, so that the entries are one.
        text=orjson.dumps(about, option=_SORTED).decode(),
        session=about.get("session"),
        effect=about.get("effect"),
    )
