"""Foreign items: reports of agents that may not write to the session. They become claims.

Claims have their own lane and change no state. Reports of an agent about its own attempts always
count, even after another agent has taken the lease (docs/decisions/0025-who-may-write.md).
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from api.events.parse import BatchItem
from journal.models import Entry
from ledger.models import Attempt, Effect
from sessions import tasks
from sessions import writers as sessions_writers
from sessions.writers import WriterContext, WriterStatus

CLAIM_NOTES: Final = {
    WriterStatus.OTHER_AGENT: (
        "Recorded as a claim; changes nothing. The session belongs to another agent."
    ),
    WriterStatus.LEASE_LOST: "Recorded as a claim; changes nothing. Another worker holds the "
    "lease.",
}
ATTEMPT_KINDS: Final = frozenset(
    {"effect.dispatched", "effect.acknowledged", "effect.failed", "effect.probed"}
)


class EffectPlan(NamedTuple):
    """The agent that planned an effect, None while its plan has not arrived, and the task."""

    planner: UUID | None = None
    task: UUID | None = None


_NO_PLAN: Final = EffectPlan()


class SenderContext(NamedTuple):
    """What decides whether the sender of a batch may write to the sessions of its items."""

    writers: Mapping[UUID, WriterContext]  # by stored session
    unreported: Set[UUID]  # stored sessions for which no agent has written yet
    plans: Mapping[UUID, EffectPlan] = {}  # by effect, where an item is in doubt
    stored_attempts: Set[tuple[UUID, int]] = frozenset()  # of effects in doubt
    own_attempts: Set[tuple[UUID | None, int | None]] = frozenset()  # that the sender dispatched

    def is_unowned(self, session: UUID) -> bool:
        """Return whether the session belongs to the first agent that writes to it."""
        return session in self.unreported or session not in self.writers


def load_sender_context(items: Sequence[BatchItem]) -> SenderContext:
    """Load what decides for the sender of `items`.

    One query if all items belong to the sender's own sessions; up to four more otherwise.
    """
    writers = sessions_writers.load_writer_contexts({item.session for item in items})
    writers_only = SenderContext(writers, frozenset())
    doubtful = [
        (item, _compare_with_writers(item, writers_only))
        for item in items
        if not _is_own_session(item, writers_only)
    ]
    foreign = {item.session for item, status in doubtful if status is WriterStatus.OTHER_AGENT}
    context = SenderContext(writers, sessions_writers.find_unreported_sessions(foreign))
    in_doubt = [
        item
        for item, status in doubtful
        if item.session not in context.unreported
        and (
            status is not WriterStatus.SPEAKS
            or any(lease.task is not None for lease in writers[item.session].leases)
        )
    ]
    if not in_doubt:
        return context
    effects = {item.effect for item in in_doubt if item.effect is not None}
    rows = Effect.objects.filter(id__in=effects).values_list("id", "agent", "task", "planned_mark")
    context = context._replace(
        plans={
            effect: EffectPlan(agent if mark else None, task) for effect, agent, task, mark in rows
        }
    )
    about_attempts = [
        item
        for item in in_doubt
        if item.effect is not None
        and item.envelope.kind in ATTEMPT_KINDS
        and _compare_with_writers(item, context) is not WriterStatus.SPEAKS
    ]
    if not about_attempts:
        return context
    effects = {item.effect for item in about_attempts if item.effect is not None}
    stored = Attempt.objects.filter(effect__in=effects).values_list("effect", "number")
    dispatched = Entry.objects.filter(
        effect__in=effects,
        kind="effect.dispatched",
        actor=about_attempts[0].origin.actor,
        lane__in=("command", "evidence"),
    ).values_list("effect", "attempt")
    return context._replace(stored_attempts=set(stored), own_attempts=set(dispatched))


def decide_writer_statuses(items: Sequence[BatchItem], context: SenderContext) -> list[BatchItem]:
    """Return the items, those that the sender may not report as claims. Pure."""
    statuses = [(item, _decide_writer_status(item, context)) for item in items]
    return [
        item
        if status is WriterStatus.SPEAKS
        else item._replace(writer_status=status, origin=replace(item.origin, lane="claim"))
        for item, status in statuses
    ]


def _decide_writer_status(item: BatchItem, context: SenderContext) -> WriterStatus:
    if _is_own_session(item, context):
        return WriterStatus.SPEAKS
    status = _compare_with_writers(item, context)
    is_allowed = status is WriterStatus.SPEAKS or _is_about_own_attempt(item, status, context)
    return WriterStatus.SPEAKS if is_allowed else status


def _is_own_session(item: BatchItem, context: SenderContext) -> bool:
    """Return whether the sender may write to the session whatever the item says."""
    if context.is_unowned(item.session):
        return True
    writer = context.writers[item.session]
    return not writer.leases and writer.agent == item.origin.agent


def _compare_with_writers(item: BatchItem, context: SenderContext) -> WriterStatus:
    writer = context.writers[item.session]
    origin, sent_epoch = item.origin, item.origin.lease_epoch
    plan = context.plans.get(item.effect, _NO_PLAN) if item.effect is not None else _NO_PLAN
    key = getattr(item.fields, "task", None)
    task = plan.task or (tasks.derive_task_id(item.session, key) if key else None)
    status = writer.decide_status(origin.agent, origin.team, sent_epoch, task, plan.planner)
    current_epoch = writer.find_epoch(task)
    is_stale = sent_epoch is not None and current_epoch is not None and sent_epoch < current_epoch
    return WriterStatus.LEASE_LOST if status is WriterStatus.SPEAKS and is_stale else status


def _is_about_own_attempt(item: BatchItem, status: WriterStatus, context: SenderContext) -> bool:
    """Return whether an item is an agent's report about its own attempt.

    After losing the lease, an agent may also report plans and attempts that no other agent has
    recorded.
    """
    kind, effect, number = item.envelope.kind, item.effect, item.envelope.attempt or 1
    if effect is None:
        return False
    if (effect, number) in context.own_attempts and kind in ATTEMPT_KINDS:
        return True
    if status is not WriterStatus.LEASE_LOST or (
        kind not in ATTEMPT_KINDS and kind != "effect.planned"
    ):
        return False
    is_planner = effect not in context.plans or context.plans[effect].planner == item.origin.agent
    return is_planner and (effect, number) not in context.stored_attempts
