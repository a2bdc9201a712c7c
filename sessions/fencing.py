"""Epoch fencing: the lowest lease epoch that may write a session or a task.

A write that names a task with a lease, now or earlier, is fenced by that lease; every other write
by the session's. Where nothing was ever leased there is no fence. The outcome of an effect is never
rejected: its epoch is compared with the latest epoch, and a late one is stored with a flag.
"""

from typing import Any, Final, NamedTuple
from uuid import UUID

from db import raw_sql
from db.ids import derive_uuid
from db.raw_sql import vendor_id
from journal import entries
from journal.entries import SYSTEM_SOURCE, Draft, Origin

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
    stale epoch, `standing` says why the agent may not write (sessions/writers.py).
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
