"""Who may write for a session, and the fence: the lowest lease epoch that may write.

See docs/decisions/0025-who-may-write.md. Writes no table; journals rejected writes.

The session's agent, agents of its team and the holder of its live lease may. While another agent
holds the lease, the session's own agent and its team may not: they have lost it. What any other
agent reports is a claim.

A write that names a task with a lease, now or earlier, is fenced by that lease; every other write
by the session's. Where nothing was ever leased there is no fence. The outcome of an effect is never
rejected: its epoch is compared with the latest epoch, and a late one is stored with a flag.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection

from db import clock, raw_sql
from db.ids import derive_uuid
from db.raw_sql import read_uuid, vendor_id
from journal import entries
from journal.entries import SYSTEM_SOURCE, Draft, Origin
from journal.models import Entry

LEASE_LOST_TEXT: Final = (
    "You no longer hold this lease. Stop this work and acquire the lease again."
)
HELD_BY_ANOTHER_TEXT: Final = (
    "Another worker holds the lease. Stop this work and acquire the lease again."
)
EPOCH_NEEDED_TEXT: Final = (
    "This session is leased. Send `lease_epoch`, the epoch of the lease that you hold."
)


class StaleEpoch(NamedTuple):
    """A write under another epoch than the current one, or without a required epoch."""

    given: int | None
    present: int

    @property
    def sentence(self) -> str:
        """Return the error text: what is wrong and what to do."""
        return EPOCH_NEEDED_TEXT if self.given is None else LEASE_LOST_TEXT


class LeaseTakenConcurrently(Exception):
    """Another process took the lease first. The endpoint runs the transaction again."""


NO_ID: Final = UUID(int=0)
# The fence as an SQL expression for larger statements. `fence_parameters` returns its parameters.
FENCE_SQL: Final = (
    "COALESCE((SELECT CASE WHEN released_at_us IS NULL THEN epoch ELSE epoch + 1 END"
    " FROM agent_sessions_lease WHERE id = %s),"
    " (SELECT fence FROM agent_sessions_session WHERE id = %s))"
)
_EPOCH: Final = (
    "SELECT COALESCE((SELECT epoch FROM agent_sessions_lease WHERE id = %s),"
    " (SELECT epoch FROM agent_sessions_lease WHERE id = %s))"
)


def derive_lease_id(project: UUID, kind: str, name: str) -> UUID:
    """Derive the id of the lease on a subject, stored or not."""
    return derive_uuid(project, "lease", kind, name)


def fence_parameters(project: UUID, session: UUID, task: UUID | None) -> list[Any]:
    """Return the parameters of FENCE_SQL."""
    of_task = NO_ID if task is None else derive_lease_id(project, "task", str(task))
    return [vendor_id(of_task), vendor_id(session)]


def compare_epoch(
    given: int | None, present: int | None, *, needed: bool = False
) -> StaleEpoch | None:
    """Compare a command's epoch with the fence `present`; None when it may write.

    A missing epoch is wrong only where `needed`.
    """
    if present is None or given == present or (given is None and not needed):
        return None
    return StaleEpoch(given, present)


def check_epoch(
    project: UUID, session: UUID, given: int | None, task: UUID | None = None
) -> StaleEpoch | None:
    """Check a command's epoch for a locked session; None when it may write.

    Runs no statement for a command without an epoch.
    """
    if given is None:
        return None
    return compare_epoch(
        given,
        raw_sql.fetch_rows(f"SELECT {FENCE_SQL}", fence_parameters(project, session, task))[0][0],
    )


def find_outdated_epoch(
    project: UUID, session: UUID, given: int | None, task: UUID | None = None
) -> StaleEpoch | None:
    """Return what is stale when an earlier lease holder reports."""
    if given is None:
        return None
    present = load_latest_epoch(project, session, task)
    return StaleEpoch(given, present) if present is not None and given < present else None


def load_latest_epoch(project: UUID, session: UUID, task: UUID | None = None) -> int | None:
    """Return the latest lease epoch, released or not; None without any lease."""
    of_task = NO_ID if task is None else derive_lease_id(project, "task", str(task))
    of_session = derive_lease_id(project, "session", str(session))
    present: int | None = raw_sql.fetch_rows(_EPOCH, [vendor_id(of_task), vendor_id(of_session)])[
        0
    ][0]
    return present


def build_fenced_entry(
    origin: Origin,
    session: UUID | None,
    stale: StaleEpoch | None,
    *,
    kept: bool,
    effect: UUID | None = None,
    attempt: int | None = None,
    subject: UUID | None = None,
    kind: str = "",
    standing: str = "",
) -> Draft:
    """Build the entry that records a fenced write: stored late, or a rejected command.

    The text of a rejected command goes into this entry, because no other entry holds it. Without a
    stale epoch, `standing` says why the agent may not write.
    """
    facts: dict[str, Any] = {"given": origin.lease_epoch, "kept": kept, "kind": kind}
    if stale is None:
        facts["standing"] = standing
    else:
        facts |= {"given": stale.given, "present": stale.present}
    text = (
        {"key": origin.key, "source": origin.source, **facts}
        if kept
        else {"sent": origin.text, **facts}
    )
    return Draft(
        project=origin.project,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest("fenced", origin.source, origin.key, origin.text),
        kind="integrity.fenced",
        lane="system",
        actor=origin.actor,
        text=entries.dump_sorted_json(text),
        facts=entries.dump_sorted_json(
            {name: value for name, value in facts.items() if value not in (None, "")}
        ),
        session=session,
        effect=effect,
        attempt=attempt,
        subject=subject,
        claimed_source=origin.source,
        lease_epoch=None if stale is None else stale.given,
    )


def record_fenced_command(
    origin: Origin,
    session: UUID | None,
    stale: StaleEpoch,
    *,
    kind: str = "",
    effect: UUID | None = None,
    subject: UUID | None = None,
) -> None:
    """Journal a command that is rejected for its epoch. Its key is not consumed."""
    draft = build_fenced_entry(
        origin, session, stale, kept=False, effect=effect, subject=subject, kind=kind
    )
    entries.append_entries([draft], origin.received_us)


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

    Where the sender gave another epoch than the current one, `check_epoch` reports it instead.
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
