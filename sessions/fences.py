"""Epoch fencing: the lowest lease epoch that may write a session or a task.

A write that names a task with a lease, now or earlier, is fenced by that lease; every other write
by the session's. Where nothing was ever leased there is no fence. The outcome of an effect is never
rejected: its epoch is compared with the latest epoch, and a late one is stored with a flag.
"""

from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from journal import entries, sql
from journal.entries import SYSTEM_SOURCE, Draft
from journal.ids import derived
from journal.sql import vendor_id
from sessions.origin import Origin

LOST: Final = "You no longer hold this lease. Stop this work and acquire the lease again."
NEEDED: Final = "This session is leased. Send `lease_epoch`, the epoch of the lease that you hold."


class Stale(NamedTuple):
    """A write under another epoch than the current one, or without a required epoch."""

    given: int | None
    present: int

    @property
    def sentence(self) -> str:
        """Return the error text: what is wrong and what to do."""
        return NEEDED if self.given is None else LOST


class Overtaken(Exception):
    """Another process took the lease first. The endpoint runs the transaction again."""


NOTHING: Final = UUID(int=0)
# The fence as an SQL expression for larger statements. `place` returns its parameters.
FENCE_SQL: Final = (
    "COALESCE((SELECT CASE WHEN released_at_us IS NULL THEN epoch ELSE epoch + 1 END"
    " FROM agent_sessions_lease WHERE id = %s),"
    " (SELECT fence FROM agent_sessions_session WHERE id = %s))"
)
_EPOCH: Final = (
    "SELECT COALESCE((SELECT epoch FROM agent_sessions_lease WHERE id = %s),"
    " (SELECT epoch FROM agent_sessions_lease WHERE id = %s))"
)


def lease_id(project: UUID, kind: str, name: str) -> UUID:
    """Derive the id of the lease on a subject, stored or not."""
    return derived(project, "lease", kind, name)


def place(project: UUID, session: UUID, task: UUID | None) -> list[Any]:
    """Return the parameters of FENCE_SQL."""
    of_task = NOTHING if task is None else lease_id(project, "task", str(task))
    return [vendor_id(of_task), vendor_id(session)]


def compare(given: int | None, present: int | None, *, needed: bool = False) -> Stale | None:
    """Compare a command's epoch with the fence `present`; None when it may write.

    A missing epoch is wrong only where `needed`.
    """
    if present is None or given == present or (given is None and not needed):
        return None
    return Stale(given, present)


def check(
    project: UUID, session: UUID, given: int | None, task: UUID | None = None
) -> Stale | None:
    """Check a command's epoch for a locked session; None when it may write.

    Runs no statement for a command without an epoch.
    """
    if given is None:
        return None
    return compare(given, sql.rows(f"SELECT {FENCE_SQL}", place(project, session, task))[0][0])


def outdated(
    project: UUID, session: UUID, given: int | None, task: UUID | None = None
) -> Stale | None:
    """Return what is stale when an earlier lease holder reports."""
    if given is None:
        return None
    present = epoch(project, session, task)
    return Stale(given, present) if present is not None and given < present else None


def epoch(project: UUID, session: UUID, task: UUID | None = None) -> int | None:
    """Return the latest lease epoch, released or not; None without any lease."""
    of_task = NOTHING if task is None else lease_id(project, "task", str(task))
    of_session = lease_id(project, "session", str(session))
    present: int | None = sql.rows(_EPOCH, [vendor_id(of_task), vendor_id(of_session)])[0][0]
    return present


def fenced(
    origin: Origin,
    session: UUID | None,
    stale: Stale,
    *,
    kept: bool,
    effect: UUID | None = None,
    attempt: int | None = None,
    subject: UUID | None = None,
    kind: str = "",
) -> Draft:
    """Build the entry that records a fenced write: stored late, or a rejected command.

    The text of a rejected command goes into this entry, because no other entry holds it.
    """
    facts = {"given": stale.given, "present": stale.present, "kept": kept, "kind": kind}
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
        text=as_text(text),
        facts=as_text({name: value for name, value in facts.items() if value not in (None, "")}),
        session=session,
        effect=effect,
        attempt=attempt,
        subject=subject,
        claimed_source=origin.source,
        lease_epoch=stale.given,
    )


def refuse(
    origin: Origin,
    session: UUID | None,
    stale: Stale,
    *,
    kind: str = "",
    effect: UUID | None = None,
    subject: UUID | None = None,
) -> None:
    """Journal a command that is rejected for its epoch. Its key is not consumed."""
    draft = fenced(origin, session, stale, kept=False, effect=effect, subject=subject, kind=kind)
    entries.append([draft], origin.received_us)


def as_text(facts: dict[str, Any]) -> str:
    """Return facts as the journal stores them: JSON with sorted keys."""
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()
