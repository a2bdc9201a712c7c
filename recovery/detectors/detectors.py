"""Run the four detectors of outdated or conflicting session state, each in its own module.

`active_findings` only reads. `record_findings` records each finding once as `control.fired`.
Endpoints call it for entries that may show a finding, the sweeper for findings that only time
shows.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Count, OuterRef, Q, Subquery

from journal import entries
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_CONTROL
from recovery.detectors.completion_blindness import (
    COMPLETION_BLINDNESS,
    find_completion_blindness,
)
from recovery.detectors.control_finding import ControlFinding
from recovery.detectors.handoff_overload import HANDOFF_OVERLOAD, find_handoff_overload
from recovery.detectors.stale_context import STALE_CONTEXT, find_stale_context
from recovery.detectors.state_drift import STATE_DRIFT, find_state_drift
from sessions import facts, handoffs
from sessions.models import Handoff, Session

CONTROL_NAMES: Final = (STALE_CONTEXT, COMPLETION_BLINDNESS, STATE_DRIFT, HANDOFF_OVERLOAD)
_OURS: Final = Q(
    IS_OF_A_CONTROL, lane="system"
)  # agents may report entries of any kind; only the system lane counts


def active_findings(
    session: Session, now_us: int, handoff: Any = None, fresh_facts: Sequence[Any] | None = None
) -> list[ControlFinding]:
    """Return the active findings.

    `handoff` (the one not yet accepted) and `fresh_facts` save their queries. Up to five queries,
    fewer without a handoff; one more with very many fresh facts.
    """
    if handoff is None:
        handoff = handoffs.load_unaccepted_handoff(session)
    if fresh_facts is None:
        fresh_facts = facts.load_fresh_facts(session, now_us)
    findings = find_state_drift(
        facts.load_conflicting_facts(session, now_us, fresh_facts)
    ) + find_completion_blindness(session)
    if handoff is not None:
        findings += find_handoff_overload(handoff) + find_stale_context(session, handoff, now_us)
    return findings


def record_findings(session: Session, findings: Iterable[ControlFinding], received_us: int) -> int:
    """Record new findings in the caller's transaction; return how many were new."""
    drafts = [_finding_entry(session, finding) for finding in findings]
    results = entries.append_entries(drafts, received_us) if drafts else []
    return sum(result.status is entries.AppendStatus.CREATED for result in results)


def check_session_controls(session: UUID, received_us: int) -> int:
    """Check one session and record its findings in the caller's transaction.

    Return how many were new.
    """
    row = Session.objects.get(id=session)
    return record_findings(row, active_findings(row, received_us), received_us)


def sweep_stale_handoffs(now_us: int) -> int:
    """Record stale context of open handoffs, one transaction each.

    Return how many were new.

    What a handoff waits on may be settled without an entry in its session. Each run checks a few
    handoffs with references, those with the fewest findings first.
    """
    waiting = Handoff.objects.filter(accept_by_us__isnull=False, project__archive=False).order_by(
        "-opened_position"
    )
    with_references = [
        row for row in waiting[:_LOOKED_THROUGH] if any(thing.get("ref") for thing in row.waits_on)
    ]
    finding_counts = Counter(
        Entry.objects.filter(_OURS, session__in={row.session_id for row in with_references})
        .filter(subject__in=[row.id for row in with_references])
        .values_list("subject", flat=True)
    )
    new = 0
    for row in sorted(with_references, key=lambda handoff: finding_counts[handoff.id])[:_AT_ONCE]:
        if finding_counts[row.id] < sum(bool(thing.get("ref")) for thing in row.waits_on):
            with transaction.atomic():
                session = Session.objects.get(id=row.session_id)
                new += record_findings(session, find_stale_context(session, row, now_us), now_us)
    return new


_LOOKED_THROUGH: Final = 500
_AT_ONCE: Final = 20


def finding_count_subquery() -> Subquery:
    """Return a subquery for sessions: the number of recorded findings."""
    of_session = Entry.objects.filter(_OURS, session=OuterRef("id")).order_by().values("session")
    return Subquery(of_session.annotate(number=Count("position")).values("number"))


_TEXTS_OF_AGENTS: Final = frozenset({"fact", "sources"})


def _finding_entry(session: Session, finding: ControlFinding) -> entries.Draft:
    # Agents choose these texts: they are in the body, which can be erased, and never in the facts.
    about = {name: value for name, value in finding.about.items() if name not in _TEXTS_OF_AGENTS}
    return entries.Draft(
        project=session.project_id,
        source=entries.SYSTEM_SOURCE,
        event_id=entries.keyed_digest("control", str(session.id), finding.control, finding.key),
        kind="control.fired",
        lane="system",
        actor=entries.SYSTEM_SOURCE,
        # Not part of the text: the sentence may change with a release, but the entry must stay the
        # same.
        text=entries.dump_sorted_json({"control": finding.control, "key": finding.key}),
        facts=entries.dump_sorted_json({"control": finding.control, **about}),
        session=session.id,
        effect=finding.effect,
        subject=finding.subject,
    )
