"""Gatebook's own entries for what a fact names before anybody tells of it: each has its position, and so its handle."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import orjson

from journal import entries
from journal.entries import SYSTEM_SOURCE, Draft

_SORTED: Final = orjson.OPT_SORT_KEYS


def name_sessions(project: UUID, sessions: list[UUID], received_us: int) -> dict[UUID, int]:
    """Append `session.named` for each session, and return its position by id. To name one again appends nothing."""
    return _positions([_draft(project, "session.named", session, None) for session in sessions], sessions, received_us)


def name_effects(project: UUID, effects: Mapping[UUID, UUID], received_us: int) -> dict[UUID, int]:
    """The same with `effect.named` for effects, which are given with the session of each."""
    drafts = [_draft(project, "effect.named", session, effect) for effect, session in effects.items()]
    return _positions(drafts, list(effects), received_us)


def _draft(project: UUID, kind: str, session: UUID, effect: UUID | None) -> Draft:
    # Two facts may name a thing at once: the text says nothing of either, so that the entries are one.
    said = {"session": session} if effect is None else {"session": session, "effect": effect}
    return Draft(
        project=project,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest(kind, str(effect or session)),
        kind=kind,
        lane="system",
        actor=SYSTEM_SOURCE,
        text=orjson.dumps(said, option=_SORTED).decode(),
        session=session,
        effect=effect,
    )


def _positions(drafts: list[Draft], things: list[UUID], received_us: int) -> dict[UUID, int]:
    fates = entries.append(drafts, received_us)
    return {thing: fate.position for thing, fate in zip(things, fates, strict=True)}
