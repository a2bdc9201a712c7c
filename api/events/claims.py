"""Claims: reported items whose agent may not write to their session.

Claims have their own lane and change no state. Reports of an agent about its own attempts always
count, even after another agent has taken the lease (docs/decisions/0025-who-may-write.md).
"""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from api.events.parse import BatchItem
from journal.models import Entry
from ledger.models import Attempt, Effect
from sessions import speakers, tasks
from sessions.speakers import WriterContext, WriterStatus

CLAIM_NOTES: Final = {
    WriterStatus.OTHER_AGENT: (
        "Recorded as a claim; changes nothing. The session belongs to another agent."
    ),
    WriterStatus.LEASE_LOST: "Recorded as a claim; changes nothing. Another worker holds the "
    "lease.",
}
_ATTEMPT_KINDS: Final = frozenset(
    {"effect.dispatched", "effect.acknowledged", "effect.failed", "effect.probed"}
)
_Plans = dict[UUID, tuple[UUID | None, UUID | None]]  # planner and task of an effect


def mark_claims(items: Sequence[BatchItem]) -> set[UUID]:
    """Move claims to the claim lane; return sessions that have no owner yet.

    Two queries if all items belong to the sender's own sessions; a few more otherwise.
    """
    for item in items:  # the transaction may be a retry
        item.standing, item.origin.lane = WriterStatus.SPEAKS, "evidence"
    rights = speakers.load_writer_contexts({item.session for item in items})
    weighed = {
        item.index: _compute_standing(item, rights[item.session])
        for item in items
        if item.session in rights
    }
    foreign = {
        item.session for item in items if weighed.get(item.index) is WriterStatus.OTHER_AGENT
    }
    unclaimed = speakers.find_unreported_sessions(foreign)
    doubtful = [
        item
        for item in items
        if item.session not in unclaimed
        and item.session in rights
        and (
            weighed[item.index] is not WriterStatus.SPEAKS or _has_task_lease(rights[item.session])
        )
    ]
    if doubtful:
        _mark_claims(doubtful, rights)
    return unclaimed | {item.session for item in items if item.session not in rights}


def _compute_standing(
    item: BatchItem, ground: WriterContext, task: UUID | None = None, planner: UUID | None = None
) -> WriterStatus:
    origin, sent_epoch = item.origin, item.origin.lease_epoch
    task = task or _get_task_id(item)
    standing = ground.weigh(origin.agent, origin.team, sent_epoch, task, planner)
    current_epoch = ground.epoch(task)
    is_stale = sent_epoch is not None and current_epoch is not None and sent_epoch < current_epoch
    return WriterStatus.LEASE_LOST if standing is WriterStatus.SPEAKS and is_stale else standing


def _get_task_id(item: BatchItem) -> UUID | None:
    key = getattr(item.fields, "task", None)
    return tasks.derive_task_id(item.session, key) if key else None


def _has_task_lease(ground: WriterContext) -> bool:
    return any(lease.task is not None for lease in ground.leases)


def _mark_claims(items: Sequence[BatchItem], rights: dict[UUID, WriterContext]) -> None:
    effects = {item.effect for item in items if item.effect is not None}
    plans: _Plans = {}
    rows = Effect.objects.filter(id__in=effects)
    for effect, agent, task, planned in rows.values_list("id", "agent", "task", "planned_mark"):
        plans[effect] = agent if planned else None, task
    weighed = []
    for item in items:
        planner, of_effect = (
            plans.get(item.effect, (None, None)) if item.effect is not None else (None, None)
        )
        standing = _compute_standing(item, rights[item.session], of_effect, planner)
        if standing is not WriterStatus.SPEAKS:
            weighed.append((item, standing))
    own_attempts = _OwnAttempts([item for item, _ in weighed], plans)
    for item, standing in weighed:
        if not own_attempts.has(item, standing):
            item.standing, item.origin.lane = standing, "claim"


class _OwnAttempts:
    """Ownership of the attempts that items report on."""

    def __init__(self, items: Iterable[BatchItem], plans: _Plans) -> None:
        about_attempts = [
            item
            for item in items
            if item.effect is not None and item.envelope.kind in _ATTEMPT_KINDS
        ]
        effects = {item.effect for item in about_attempts}
        self._plans = plans
        self._stored: set[tuple[UUID, int]] = set()
        self._own: set[tuple[UUID | None, int | None]] = set()
        if about_attempts:
            self._stored = set(
                Attempt.objects.filter(effect__in=effects).values_list("effect", "number")
            )
            entries = Entry.objects.filter(
                effect__in=effects, kind="effect.dispatched", actor=about_attempts[0].origin.actor
            )
            entries = entries.filter(lane__in=("command", "evidence"))
            self._own = set(entries.values_list("effect", "attempt"))

    def has(self, item: BatchItem, standing: WriterStatus) -> bool:
        """Return whether an item is an agent's report about its own attempt.

        After losing the lease, an agent may also report plans and attempts that no other agent has
        recorded.
        """
        kind, effect, number = item.envelope.kind, item.effect, item.envelope.attempt or 1
        if effect is None:
            return False
        if (effect, number) in self._own and kind in _ATTEMPT_KINDS:
            return True
        if standing is not WriterStatus.LEASE_LOST or (
            kind not in _ATTEMPT_KINDS and kind != "effect.planned"
        ):
            return False
        is_planner = effect not in self._plans or self._plans[effect][0] == item.origin.agent
        return is_planner and (effect, number) not in self._stored
