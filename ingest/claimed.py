"""Which items of a batch are claims: reported by an agent that may not speak for their session.

They are kept in a lane of their own, which nothing is derived from. What an agent says of its own attempts counts, also
once another agent has taken the lease (docs/decisions/0025-who-may-speak.md).
"""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from ingest.reported_items import Item
from journal.models import Entry
from ledger.models import Attempt, Effect
from sessions import speakers, tasks
from sessions.speakers import Ground, Standing

NOTES: Final = {
    Standing.OTHER_AGENT: "Kept as a claim: this session belongs to another agent, so the item changes nothing.",
    Standing.LEASE_LOST: "Kept as a claim: another worker holds the lease by now, so the item changes nothing.",
}
_OF_ATTEMPTS: Final = frozenset({"effect.dispatched", "effect.acknowledged", "effect.failed", "effect.probed"})
_Known = dict[UUID, tuple[UUID | None, UUID | None]]  # who planned an effect, and the task it is for


def mark(items: Sequence[Item]) -> set[UUID]:
    """Put the claims among `items` into the lane of claims; return the sessions that nobody has spoken for yet.

    Two queries where every item is of its sender's own session; a few more where one may not be.
    """
    for item in items:  # a transaction may be run again
        item.standing, item.origin.lane = Standing.SPEAKS, "evidence"
    grounds = speakers.read({item.session for item in items})
    weighed = {item.index: _weigh(item, grounds[item.session]) for item in items if item.session in grounds}
    foreign = {item.session for item in items if weighed.get(item.index) is Standing.OTHER_AGENT}
    unheard = speakers.are_unheard(foreign)
    doubtful = [
        item
        for item in items
        if item.session not in unheard
        and item.session in grounds
        and (weighed[item.index] is not Standing.SPEAKS or _has_task_lease(grounds[item.session]))
    ]
    if doubtful:
        _mark(doubtful, grounds)
    return unheard | {item.session for item in items if item.session not in grounds}


def _weigh(item: Item, ground: Ground, task: UUID | None = None, planner: UUID | None = None) -> Standing:
    origin, given = item.origin, item.origin.lease_epoch
    task = task or _task(item)
    found = ground.weigh(origin.agent, origin.team, given, task, planner)
    present = ground.epoch(task)
    is_stale = given is not None and present is not None and given < present
    return Standing.LEASE_LOST if found is Standing.SPEAKS and is_stale else found


def _task(item: Item) -> UUID | None:
    key = getattr(item.fields, "task", None)
    return tasks.identity(item.session, key) if key else None


def _has_task_lease(ground: Ground) -> bool:
    return any(lease.task is not None for lease in ground.leases)


def _mark(items: Sequence[Item], grounds: dict[UUID, Ground]) -> None:
    effects = {item.effect for item in items if item.effect is not None}
    known: _Known = {}
    rows = Effect.objects.filter(id__in=effects)
    for effect, agent, task, planned in rows.values_list("id", "agent", "task", "planned_mark"):
        known[effect] = agent if planned else None, task
    weighed = []
    for item in items:
        planner, of_effect = known.get(item.effect, (None, None)) if item.effect is not None else (None, None)
        standing = _weigh(item, grounds[item.session], of_effect, planner)
        if standing is not Standing.SPEAKS:
            weighed.append((item, standing))
    own = _Attempts([item for item, _ in weighed], known)
    for item, standing in weighed:
        if not own.has(item, standing):
            item.standing, item.origin.lane = standing, "claim"


class _Attempts:
    """Whose the attempts are that items speak of."""

    def __init__(self, items: Iterable[Item], known: _Known) -> None:
        told = [item for item in items if item.effect is not None and item.envelope.kind in _OF_ATTEMPTS]
        effects = {item.effect for item in told}
        self._known = known
        self._stored: set[tuple[UUID, int]] = set()
        self._own: set[tuple[UUID | None, int | None]] = set()
        if told:
            self._stored = set(Attempt.objects.filter(effect__in=effects).values_list("effect", "number"))
            entries = Entry.objects.filter(effect__in=effects, kind="effect.dispatched", actor=told[0].origin.actor)
            entries = entries.filter(lane__in=("command", "evidence"))
            self._own = set(entries.values_list("effect", "attempt"))

    def has(self, item: Item, standing: Standing) -> bool:
        """True for what an agent says of its own attempt.

        Whoever has lost the lease may also tell of an attempt, and of a plan, that it alone can know of.
        """
        kind, effect, number = item.envelope.kind, item.effect, item.envelope.attempt or 1
        if effect is None:
            return False
        if (effect, number) in self._own and kind in _OF_ATTEMPTS:
            return True
        if standing is not Standing.LEASE_LOST or (kind not in _OF_ATTEMPTS and kind != "effect.planned"):
            return False
        is_planner = effect not in self._known or self._known[effect][0] == item.origin.agent
        return is_planner and (effect, number) not in self._stored
