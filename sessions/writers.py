"""Who may write for a session. Writes nothing.

See docs/decisions/0025-who-may-write.md.

The session's agent, agents of its team and the holder of its live lease may. While another agent
holds the lease, the session's own agent and its team may not: they have lost it. What any other
agent reports is a claim.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection

from db import clock, raw_sql
from db.raw_sql import read_uuid, vendor_id
from journal.entries import Draft, Origin
from journal.models import Entry
from sessions.fencing import NO_ID, build_fenced_entry


class WriterStatus(StrEnum):
    """Whether an agent may write for a session."""

    SPEAKS = "speaks"
    LEASE_LOST = "lease_lost"  # the agent is related, but another agent holds the lease now
    OTHER_AGENT = "other_agent"


class SessionLease(NamedTuple):
    """A lease in a session. `task` is None for the lease of the session itself."""

    task: UUID | None
    agent: UUID
    epoch: int
    is_live: bool


class WriterContext(NamedTuple):
    """What decides who may write for a session: its agent, team and leases."""

    agent: UUID
    team: str
    leases: tuple[SessionLease, ...]

    def find_live_lease(self, task: UUID | None) -> SessionLease | None:
        """Return the live lease of a task, else that of the session."""
        leases = [lease for lease in self.leases if lease.is_live and lease.task in (None, task)]
        return max(leases, key=lambda lease: lease.task is not None, default=None)

    def find_epoch(self, task: UUID | None) -> int | None:
        """Return the epoch that fences facts about a task, else facts about the session."""
        leases = [lease for lease in self.leases if lease.task in (None, task)]
        lease = max(leases, key=lambda lease: lease.task is not None, default=None)
        return None if lease is None else lease.epoch

    def decide_status(
        self,
        agent: UUID,
        team: str,
        sent_epoch: int | None,
        task: UUID | None = None,
        planner: UUID | None = None,
    ) -> WriterStatus:
        """Return whether `agent`, which sends `sent_epoch`, may write. Pure.

        `planner` is the agent that planned or requested the effect in question.
        """
        is_related = agent in (self.agent, planner) or bool(team and team == self.team)
        lease = self.find_live_lease(task)
        is_holder = lease is not None and lease.agent == agent
        if lease is not None and is_holder and (is_related or sent_epoch == lease.epoch):
            return WriterStatus.SPEAKS
        if not is_related:
            return WriterStatus.OTHER_AGENT
        is_lost = lease is not None and not is_holder
        return WriterStatus.LEASE_LOST if is_lost else WriterStatus.SPEAKS


_SELECT_CONTEXTS: Final = """SELECT session.id, session.agent_id, owner.team,
  lease.id, lease.task_id, lease.agent_id, lease.epoch,
  lease.released_at_us IS NULL AND lease.expires_at_us > {now}
FROM agent_sessions_session session JOIN accounts_agent owner ON owner.id = session.agent_id
LEFT JOIN agent_sessions_lease lease ON lease.session_id = session.id{only}
WHERE session.id IN ({marks})"""
_ONLY: Final = " AND (lease.task_id IS NULL OR lease.task_id = %s)"
_AT_ONCE: Final = 500  # sessions in one statement


def load_writer_contexts(sessions: Collection[UUID]) -> dict[UUID, WriterContext]:
    """Load what decides for each stored session. One query per 500 sessions."""
    return _load_contexts(sessions, "", [])


def _load_contexts(
    sessions: Collection[UUID], condition: str, parameters: list[Any]
) -> dict[UUID, WriterContext]:
    contexts: dict[UUID, WriterContext] = {}
    ordered = sorted(sessions)
    for start in range(0, len(ordered), _AT_ONCE):
        part = ordered[start : start + _AT_ONCE]
        marks = ", ".join(["%s"] * len(part))
        text = _SELECT_CONTEXTS.format(
            now=clock.NOW_SQL[connection.vendor], only=condition, marks=marks
        )
        rows = raw_sql.fetch_rows(text, [*parameters, *map(vendor_id, part)])
        for session, agent, team, lease, task, holder, epoch, is_live in rows:
            identity = read_uuid(session)
            context = contexts.get(identity) or WriterContext(read_uuid(agent), team, ())
            if lease is not None:
                holding = SessionLease(
                    None if task is None else read_uuid(task),
                    read_uuid(holder),
                    epoch,
                    bool(is_live),
                )
                context = context._replace(leases=(*context.leases, holding))
            contexts[identity] = context
    return contexts


def find_unreported_sessions(sessions: Collection[UUID], but: str = "") -> set[UUID]:
    """Return the sessions that were only named, and for which no agent has written.

    Entries of the actor `but` do not count.
    """
    if not sessions:
        return set()
    spoken = Entry.objects.filter(session__in=list(sessions), lane__in=("command", "evidence"))
    if but:
        spoken = spoken.exclude(actor=but)
    spoken = spoken.exclude(kind__startswith="message.")  # messages only refer to a session
    return set(sessions) - set(spoken.values_list("session", flat=True).distinct())


class WriterNotAllowed(Exception):
    """A command its agent may not send: transaction undone, `draft` journalled."""

    def __init__(
        self, origin: Origin, draft: Draft, standing: WriterStatus, session: UUID, task: UUID | None
    ) -> None:
        super().__init__(standing)
        self.origin, self.draft, self.standing = origin, draft, standing
        self.session, self.task = session, task


def load_writer_status(
    origin: Origin, session: UUID, task: UUID | None = None, also: UUID | None = None
) -> WriterStatus:
    """Return whether a command's sender may write for a stored session. One query."""
    return _load_status_and_epoch(origin, session, task, also)[0]


def _load_status_and_epoch(
    origin: Origin, session: UUID, task: UUID | None, also: UUID | None
) -> tuple[WriterStatus, int | None]:
    """Return whether the sender may write, and the epoch that fences the command."""
    context = _load_contexts([session], _ONLY, [vendor_id(task or NO_ID)]).get(session)
    if context is None:
        return WriterStatus.SPEAKS, None
    status = context.decide_status(origin.agent, origin.team, origin.lease_epoch, task, also)
    return status, context.find_epoch(task)


def load_opener_status(origin: Origin, session: UUID) -> WriterStatus:
    """Return whether an agent may open a stored session.

    A session that others have only named may be opened by any agent.
    """
    standing = load_writer_status(origin, session)
    return (
        WriterStatus.SPEAKS
        if standing is WriterStatus.OTHER_AGENT and find_unreported_sessions([session])
        else standing
    )


def require_writer(
    origin: Origin,
    session: UUID,
    kind: str,
    *,
    task: UUID | None = None,
    effect: UUID | None = None,
    also: UUID | None = None,
) -> None:
    """Raise WriterNotAllowed unless the sender of a command may write for the session.

    Where the sender gave another epoch than the current one, fencing (sessions/fencing.py) reports
    the stale epoch instead.
    """
    standing, epoch = _load_status_and_epoch(origin, session, task, also)
    if standing is not WriterStatus.LEASE_LOST or origin.lease_epoch in (None, epoch):
        reject_writer(origin, session, kind, standing, task=task, effect=effect)


def reject_writer(
    origin: Origin,
    session: UUID,
    kind: str,
    standing: WriterStatus,
    *,
    task: UUID | None = None,
    effect: UUID | None = None,
    attempt: int | None = None,
) -> None:
    """Raise WriterNotAllowed unless `standing` allows the write."""
    if standing is WriterStatus.SPEAKS:
        return
    draft = build_fenced_entry(
        origin,
        session,
        None,
        kept=False,
        effect=effect,
        attempt=attempt,
        subject=task,
        kind=kind,
        standing=standing.value,
    )
    raise WriterNotAllowed(origin, draft, standing, session, task)
