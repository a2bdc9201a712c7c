"""Detect outdated or conflicting session state, by four detectors.

A detector (`find_…`) returns what it finds as `ControlFinding`. `active_findings` runs them and
only reads. `record_findings` records each finding once as `control.fired`. Endpoints call it for
entries that may show a finding, the sweeper for findings that only time shows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, Subquery

from approvals.models import Gate
from journal import entries
from journal.models import Entry
from ledger.models import Effect
from ledger.open_effects import MAY_BE_OPEN
from ledger.partial_indexes import IS_OF_A_CONTROL
from ledger.states import OPEN_STATES as OPEN_EFFECTS
from sessions import facts, handoffs
from sessions.models import Handoff, Message, Session

STALE_CONTEXT: Final = "stale_context"
COMPLETION_BLINDNESS: Final = "completion_blindness"
STATE_DRIFT: Final = "state_drift"
HANDOFF_OVERLOAD: Final = "handoff_overload"
CONTROL_NAMES: Final = (STALE_CONTEXT, COMPLETION_BLINDNESS, STATE_DRIFT, HANDOFF_OVERLOAD)
MAX_FINDINGS: Final = 20  # findings of one kind that are returned
# Agents may report entries of any kind; only the system lane counts.
_OURS: Final = Q(IS_OF_A_CONTROL, lane="system")


@dataclass(frozen=True, slots=True)
class ControlFinding:
    """One active control with its sentence and what it is about (ids and handles)."""

    control: str
    key: str  # distinguishes findings of one control
    sentence: str
    about: dict[str, Any] = field(default_factory=dict)
    effect: UUID | None = None
    subject: UUID | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON."""
        return {"control": self.control, "sentence": self.sentence, **self.about}


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


def find_state_drift(drifting: Mapping[str, Sequence[Any]]) -> list[ControlFinding]:
    """Return the facts whose sources disagree."""
    findings = []
    for name, rows in list(drifting.items())[:MAX_FINDINGS]:
        values = sorted(rows, key=lambda row: str(row.source))
        sources = [row.source for row in values]
        key = "|".join([name, *(f"{row.source}={row.digest}" for row in values)])
        sentence = (
            f"{len(values)} sources report different current values of {name}. Check before acting."
        )
        about = {"fact": name, "sources": sources, "positions": [row.position for row in values]}
        findings.append(ControlFinding(STATE_DRIFT, key, sentence, about))
    return findings


def find_completion_blindness(session: Session) -> list[ControlFinding]:
    """Return effects that may still run although their task is done."""
    going = (
        Effect.objects.filter(
            MAY_BE_OPEN, session=session, state__in=OPEN_EFFECTS, task__state="done"
        )
        .exclude(state="failed", outcome="error")
        .exclude(permission="denied")
        .select_related("task")
        .order_by("-opened_position")
    )
    findings = []
    for effect in going[:MAX_FINDINGS]:
        sentence = (
            f"{effect} is open but its task {effect.task} is done. It may repeat finished work."
        )
        about = {"effect": str(effect.id), "handle": str(effect), "task": str(effect.task_id)}
        findings.append(
            ControlFinding(
                COMPLETION_BLINDNESS,
                str(effect.id),
                sentence,
                about,
                effect=effect.id,
                subject=effect.task_id,
            )
        )
    return findings


def find_handoff_overload(handoff: Any) -> list[ControlFinding]:
    """Return a finding if the handoff has more bytes than are recommended."""
    if handoff.size <= handoffs.HANDOFF_BUDGET_BYTES:
        return []
    sentence = (
        f"The handoff has {handoff.size:,} bytes; at most {handoffs.HANDOFF_BUDGET_BYTES:,} are "
        "recommended."
        " The next worker may miss what matters most."
    )
    about = {
        "handoff": str(handoff.id),
        "bytes": handoff.size,
        "budget": handoffs.HANDOFF_BUDGET_BYTES,
    }
    return [ControlFinding(HANDOFF_OVERLOAD, str(handoff.id), sentence, about, subject=handoff.id)]


def find_stale_context(session: Session, handoff: Any, now_us: int) -> list[ControlFinding]:
    """Return what the handoff waits on that is no longer open."""
    references: dict[str, list[UUID]] = {"gate": [], "effect": [], "message": []}
    for thing in handoff.waits_on:
        if thing.get("kind") in references and thing.get("ref"):
            try:
                references[thing["kind"]].append(UUID(thing["ref"]))
            except ValueError:
                continue
    over: list[tuple[str, Any, str]] = []
    project = session.project_id
    if references["gate"]:
        gates = Gate.objects.filter(project=project, id__in=references["gate"])
        ruled = gates.exclude(status="pending")
        over += [("gate", row, f"was {row.status.replace('_', ' ')}") for row in ruled]
        late = gates.filter(status="pending", decide_by_us__lt=now_us)
        over += [("gate", row, "has expired") for row in late]
    if references["effect"]:
        effects = Effect.objects.filter(project=project, id__in=references["effect"])
        settled = effects.exclude(state__in=("planned", "dispatched")).exclude(outcome="unknown")
        over += [("effect", row, f"is {row.state}") for row in settled]
    if references["message"]:
        reply = Message.objects.filter(project=project, in_reply_to=OuterRef("id"))
        answered = Message.objects.filter(
            Exists(reply), project=project, id__in=references["message"]
        )
        over += [("message", row, "was answered") for row in answered]
    return [
        ControlFinding(
            STALE_CONTEXT,
            f"{handoff.id}|{kind}|{row.id}",
            f"The handoff waits on {kind} {row}, which {became}. The handoff is out of date.",
            {"handoff": str(handoff.id), "kind": kind, "ref": str(row.id), "became": became},
            effect=row.id if kind == "effect" else None,
            subject=handoff.id,
        )
        for kind, row, became in over[:MAX_FINDINGS]
    ]


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
