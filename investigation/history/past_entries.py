"""Load the journal entries for rebuilding: facts and envelopes, never bodies.

Entries are selected only by the ids of rows of the current project: with a project condition,
SQLite would read all of the project's entries.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db.models import Q

from investigation.history.moment import TOO_MANY_EVENTS, CutError
from journal.models import Entry
from journal.order_keys import make_order_key
from ledger.fold import effect_state
from ledger.store.writer import REPLANNED

IDS_PER_QUERY: Final = 500  # Ids per statement.
MAX_REBUILD_ENTRIES: Final = 100_000  # Most entries that are folded in one rebuild.


class PastEntry(NamedTuple):
    """A journal entry."""

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
        """Return True for entries by Gatebook itself, which no agent's report can imitate."""
        return self.lane == "system"

    @property
    def mark(self) -> str:
        """Return the order key of an agent's entry."""
        return make_order_key(self.lane, self.producer_seq, self.source, self.event_id)

    @property
    def told_us(self) -> int | None:
        """Return when the event happened, if known (see journal.entries.Origin)."""
        if self.occurred_us is not None:
            return self.occurred_us
        return None if self.lane == "evidence" else self.received_us

    @property
    def agent(self) -> UUID | None:
        """Return the agent that sent the entry, or None."""
        return UUID(hex=self.actor[6:]) if self.actor.startswith("agent:") else None


_ENVELOPE: Final = PastEntry._fields[:-1]
# Entries on access, which may be many, and claims change nothing.
_RELEVANT: Final = Entry.objects.exclude(kind__startswith="access.").exclude(lane="claim")
_IS_OF_SESSION: Final = Q(kind__startswith="session.") | Q(kind__startswith="lease.")


def load_effect_entries(effects: Iterable[UUID], position: int) -> list[PastEntry]:
    """Return the entries of `effects` up to `position`, in order."""
    entries = [
        entry
        for part in split_ids(effects)
        for entry in _load_entries(_RELEVANT.filter(effect__in=part, position__lte=position))
    ]
    return sorted(entries)


def load_session_entries(sessions: Iterable[UUID], position: int) -> list[PastEntry]:
    """Return the entries of `sessions` and their leases up to `position`, in order."""
    entries = [
        entry
        for part in split_ids(sessions)
        for entry in _load_entries(
            _RELEVANT.filter(_IS_OF_SESSION, session__in=part, position__lte=position)
        )
    ]
    return sorted(entries)


def load_replaced_plans(effects: Iterable[UUID]) -> dict[UUID, list[dict[str, Any]]]:
    """Return the facts of replaced plans by effect; `by` is the position of the replacing plan.

    Plans that were replaced after a cut are included: they were current until then.
    """
    plans_by_effect: dict[UUID, list[dict[str, Any]]] = {}
    for part in split_ids(effects):
        entries = Entry.objects.filter(effect__in=part, kind=REPLANNED, lane="system")
        for effect, facts in entries.order_by("position").values_list("effect", "facts"):
            if effect is not None:
                plans_by_effect.setdefault(effect, []).append(orjson.loads(facts))
    return plans_by_effect


def find_effects_with_entries_since(effects: Iterable[UUID], position: int) -> set[UUID]:
    """Return the ids of `effects` with entries after `position`."""
    effect_ids: set[UUID | None] = set()
    for part in split_ids(effects):
        entries = _RELEVANT.filter(effect__in=part, position__gt=position)
        effect_ids |= set(entries.order_by().values_list("effect", flat=True).distinct())
    return {effect_id for effect_id in effect_ids if effect_id is not None}


def group_batches(entries: Iterable[PastEntry]) -> Iterator[list[PastEntry]]:
    """Group entries as they were folded: the reports of one batch together, all others alone."""
    run: list[PastEntry] = []
    for entry in entries:
        is_in_batch = entry.lane == "evidence" and entry.kind in effect_state.REPORTABLE_KINDS
        if run and not (is_in_batch and entry.received_us == run[-1].received_us):
            yield run
            run = []
        run.append(entry)
        if not is_in_batch:
            yield run
            run = []
    if run:
        yield run


def split_ids(ids: Iterable[UUID]) -> Iterator[list[UUID]]:
    """Yield the sorted ids in parts, as many at a time as a statement takes."""
    listed = sorted(set(ids))
    for start in range(0, len(listed), IDS_PER_QUERY):
        yield listed[start : start + IDS_PER_QUERY]


def _load_entries(entries: Any) -> list[PastEntry]:
    rows = entries.order_by("position").values_list(*_ENVELOPE, "facts")[: MAX_REBUILD_ENTRIES + 1]
    loaded = [PastEntry._make((*envelope, orjson.loads(facts))) for *envelope, facts in rows]
    if len(loaded) > MAX_REBUILD_ENTRIES:
        raise CutError(TOO_MANY_EVENTS)
    return loaded
