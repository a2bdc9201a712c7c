"""Fences: the least epoch under which a session, or a task with a lease of its own, may be written.

A write that names a task which has or had a lease is fenced by that; every other by the session's. Where nothing was
ever leased there is no fence. An effect's answer is never turned away: it is compared with the epoch of whoever came
last, and kept with a mark.
"""

from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from journal import entries, sql
from journal.entries import SYSTEM_SOURCE, Draft
from journal.ids import derived
from journal.sql import vendor_id
from sessions.origin import Origin

LOST: Final = "This lease is no longer yours under that epoch; stop this work, and acquire the lease again."
NEEDED: Final = "This session is worked on under a lease; send lease_epoch, the epoch of the lease that you hold."


class Stale(NamedTuple):
    """A write under another epoch than the one that stands, or under none where one is needed."""

    given: int | None
    present: int

    @property
    def sentence(self) -> str:
        """What to do."""
        return NEEDED if self.given is None else LOST


class Overtaken(Exception):
    """Somebody was quicker to take the lease; the door runs the transaction again, and then hears of it."""


NOTHING: Final = UUID(int=0)
# The fence, for a statement that reads other things too; its parameters are those of `place`.
FENCE_SQL: Final = (
    "COALESCE((SELECT CASE WHEN released_at_us IS NULL THEN epoch ELSE epoch + 1 END"
    " FROM agent_sessions_lease WHERE id = %s), (SELECT fence FROM agent_sessions_session WHERE id = %s))"
)
_EPOCH: Final = (
    "SELECT COALESCE((SELECT epoch FROM agent_sessions_lease WHERE id = %s),"
    " (SELECT epoch FROM agent_sessions_lease WHERE id = %s))"
)


def lease_id(project: UUID, kind: str, name: str) -> UUID:
    """The id of the lease on what `kind` and `name` say, whether or not there is one."""
    return derived(project, "lease", kind, name)


def place(project: UUID, session: UUID, task: UUID | None) -> list[Any]:
    """The parameters of FENCE_SQL."""
    of_task = NOTHING if task is None else lease_id(project, "task", str(task))
    return [vendor_id(of_task), vendor_id(session)]


def compare(given: int | None, present: int | None, *, needed: bool = False) -> Stale | None:
    """What is wrong with a command under `given` where `present` is the fence; a missing one only where `needed`."""
    if present is None or given == present or (given is None and not needed):
        return None
    return Stale(given, present)


def check(project: UUID, session: UUID, given: int | None, task: UUID | None = None) -> Stale | None:
    """What is wrong with a command about a session, whose row is locked; no statement where no epoch came with it."""
    if given is None:
        return None
    return compare(given, sql.rows(f"SELECT {FENCE_SQL}", place(project, session, task))[0][0])


def outdated(project: UUID, session: UUID, given: int | None, task: UUID | None = None) -> Stale | None:
    """Whether an answer or a report comes from a holder after whom another came."""
    if given is None:
        return None
    present = epoch(project, session, task)
    return Stale(given, present) if present is not None and given < present else None


def epoch(project: UUID, session: UUID, task: UUID | None = None) -> int | None:
    """The epoch of whoever came last, also where the lease was released; None where there never was one."""
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
    """The entry that says of a fact that a fenced writer sent it: one that was kept, or a command that was refused.

    The text of what was refused goes into it, since it stands nowhere else.
    """
    facts = {"given": stale.given, "present": stale.present, "kept": kept, "kind": kind}
    text = {"key": origin.key, "source": origin.source, **facts} if kept else {"sent": origin.text, **facts}
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
    """Keep a trace of a command that is refused for its epoch; its key is not consumed."""
    draft = fenced(origin, session, stale, kept=False, effect=effect, subject=subject, kind=kind)
    entries.append([draft], origin.received_us)


def as_text(facts: dict[str, Any]) -> str:
    """Facts as the book keeps them: JSON with sorted keys."""
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()
