"""Reading the entries that a replay is made of: their facts and their envelopes, and never a body.

Entries are found by the ids of things that were fetched through the wall, and by these alone: beside them the project
tempts SQLite to read all of it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db.models import Q

from inquiry.asof.cut import UnfitError
from journal.models import Entry
from journal.order import order_key
from ledger import fold
from ledger.effects import REPLANNED

AT_ONCE: Final = 500  # ids in one statement
MOST: Final = 100_000  # entries that are folded for one of them
_TOO_MANY: Final = "More facts were told of this than can be made again for a page; its facts stand in the journal."


class Told(NamedTuple):
    """One entry, as a replay reads it."""

    position: int
    kind: str
    lane: str
    source: str
    event_id: str
    producer_seq: int | None
    occurred_us: int | None
    received_us: int
    lease_epoch: int | None
    session: UUID | None
    effect: UUID | None
    attempt: int | None
    subject: UUID | None
    actor: str
    facts: dict[str, Any]

    @property
    def is_ours(self) -> bool:
        """True for Gatebook's own word, which no agent's report can take."""
        return self.lane == "system"

    @property
    def mark(self) -> str:
        """The order key of what an agent told."""
        return order_key(self.lane, self.producer_seq, self.source, self.event_id)

    @property
    def told_us(self) -> int | None:
        """When it happened, as far as anyone told (see sessions.origin.Origin)."""
        if self.occurred_us is not None:
            return self.occurred_us
        return None if self.lane == "evidence" else self.received_us

    @property
    def agent(self) -> UUID | None:
        """The agent that told it, None for others."""
        return UUID(hex=self.actor[6:]) if self.actor.startswith("agent:") else None


_ENVELOPE: Final = Told._fields[:-1]
# All but those of who looked, of which there may be many, and but claims: neither moves anything.
_MOVING: Final = Entry.objects.exclude(kind__startswith="access.").exclude(lane="claim")
_OF_SESSIONS: Final = Q(kind__startswith="session.") | Q(kind__startswith="lease.")


def of_effects(effects: Iterable[UUID], position: int) -> list[Told]:
    """What the journal says of `effects` up to `position`, in its order."""
    found = [one for part in parts(effects) for one in _read(_MOVING.filter(effect__in=part, position__lte=position))]
    return sorted(found)


def of_sessions(sessions: Iterable[UUID], position: int) -> list[Told]:
    """What it says of `sessions` themselves, and of the leases on them, up to `position`, in its order."""
    found = [
        one
        for part in parts(sessions)
        for one in _read(_MOVING.filter(_OF_SESSIONS, session__in=part, position__lte=position))
    ]
    return sorted(found)


def replaced_plans(effects: Iterable[UUID]) -> dict[UUID, list[dict[str, Any]]]:
    """What plans said that others took the place of, by effect; `by` is the position of the one that did.

    Also what was replaced after a cut: it stood until then.
    """
    found: dict[UUID, list[dict[str, Any]]] = {}
    for part in parts(effects):
        entries = Entry.objects.filter(effect__in=part, kind=REPLANNED, lane="system")
        for effect, facts in entries.order_by("position").values_list("effect", "facts"):
            if effect is not None:
                found.setdefault(effect, []).append(orjson.loads(facts))
    return found


def since(effects: Iterable[UUID], position: int) -> set[UUID]:
    """Those of `effects` of which the journal says more after `position`."""
    found: set[UUID | None] = set()
    for part in parts(effects):
        entries = _MOVING.filter(effect__in=part, position__gt=position)
        found |= set(entries.order_by().values_list("effect", flat=True).distinct())
    return {one for one in found if one is not None}


def runs(told: Iterable[Told]) -> Iterator[list[Told]]:
    """Entries as they were folded: the reports of one batch together, everything else by itself."""
    run: list[Told] = []
    for one in told:
        joins = one.lane == "evidence" and one.kind in fold.KINDS
        if run and not (joins and one.received_us == run[-1].received_us):
            yield run
            run = []
        run.append(one)
        if not joins:
            yield run
            run = []
    if run:
        yield run


def parts(ids: Iterable[UUID]) -> Iterator[list[UUID]]:
    """`ids` in an order that is always the same, as many at a time as a statement takes."""
    listed = sorted(set(ids))
    for start in range(0, len(listed), AT_ONCE):
        yield listed[start : start + AT_ONCE]


def _read(entries: Any) -> list[Told]:
    rows = entries.order_by("position").values_list(*_ENVELOPE, "facts")[: MOST + 1]
    found = [Told._make((*envelope, orjson.loads(facts))) for *envelope, facts in rows]
    if len(found) > MOST:
        raise UnfitError(_TOO_MANY)
    return found
