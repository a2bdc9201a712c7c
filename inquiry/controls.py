"""The four controls over a worker's picture of its work: what each looks at, and the book of when one fired.

*Stale context*: a handoff waits on something that has been resolved. *Completion blindness*: work goes on for a task
that is done. *State drift*: two sources tell different values of one fact, and both are fresh. *Handoff overload*: a
handoff is larger than the next worker will read. `standing` only reads. `fire` writes each finding down once, as
`control.fired`; the doors call it when a fact arrives that may show one, and the sweeper for what only time shows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, Subquery

from approvals.models import Gate
from inquiry.indexes import IS_OF_A_CONTROL
from journal import entries
from journal.models import Entry
from ledger.models import Effect
from ledger.settling import MAY_BE_OPEN
from ledger.states import OPEN as OPEN_EFFECTS
from sessions import facts, handoffs
from sessions.models import Session
from sessions.models_messages import Message
from sessions.models_state import Handoff

STALE_CONTEXT: Final = "stale_context"
COMPLETION_BLINDNESS: Final = "completion_blindness"
STATE_DRIFT: Final = "state_drift"
HANDOFF_OVERLOAD: Final = "handoff_overload"
NAMES: Final = (STALE_CONTEXT, COMPLETION_BLINDNESS, STATE_DRIFT, HANDOFF_OVERLOAD)
MOST: Final = 20  # findings of one kind that are told
_OURS: Final = Q(IS_OF_A_CONTROL, lane="system")  # an agent may report an entry of any kind, and it stays its word


@dataclass(frozen=True, slots=True)
class Finding:
    """One control that fires: which, what it is about (ids and handles), and the sentence that says it."""

    control: str
    key: str  # tells this finding from others of its control
    sentence: str
    about: dict[str, Any] = field(default_factory=dict)
    effect: UUID | None = None
    subject: UUID | None = None

    def told(self) -> dict[str, Any]:
        """The finding in an answer."""
        return {"control": self.control, "sentence": self.sentence, **self.about}


def standing(session: Session, now_us: int, handoff: Any = None, known: Sequence[Any] | None = None) -> list[Finding]:
    """What fires now. `handoff` (the one that waits to be accepted) and `known` (fresh facts) spare their queries.

    Up to five queries, fewer where there is no handoff; one more where very many facts are fresh.
    """
    if handoff is None:
        handoff = handoffs.unaccepted(session)
    if known is None:
        known = facts.fresh(session, now_us)
    found = _drift(facts.drift(session, now_us, known)) + _blind(session)
    if handoff is not None:
        found += _overload(handoff) + _stale(session, handoff, now_us)
    return found


def fire(session: Session, findings: Iterable[Finding], received_us: int) -> int:
    """Write down what is not in the book yet, inside the caller's transaction; returns how many findings were new."""
    drafts = [_draft(session, one) for one in findings]
    fates = entries.append(drafts, received_us) if drafts else []
    return sum(fate.status is entries.Status.CREATED for fate in fates)


def watch(session: UUID, received_us: int) -> int:
    """Look at one session and write down what fires, inside the caller's transaction; returns how much was new."""
    row = Session.objects.get(id=session)
    return fire(row, standing(row, received_us), received_us)


def sweep(now_us: int) -> int:
    """Let stale context fire for handoffs that still wait, a transaction for each; returns how much was new.

    What a handoff waits on is settled without a word to its session, so that nobody else would notice. Of those that
    name something, a few are looked at in each run, the longest unsaid first.
    """
    waiting = Handoff.objects.filter(accept_by_us__isnull=False, project__archive=False).order_by("-opened_position")
    named = [row for row in waiting[:_LOOKED_THROUGH] if any(thing.get("ref") for thing in row.waits_on)]
    said = Counter(
        Entry.objects.filter(_OURS, session__in={row.session_id for row in named})
        .filter(subject__in=[row.id for row in named])
        .values_list("subject", flat=True)
    )
    new = 0
    for row in sorted(named, key=lambda one: said[one.id])[:_AT_ONCE]:
        if said[row.id] < sum(bool(thing.get("ref")) for thing in row.waits_on):
            with transaction.atomic():
                session = Session.objects.get(id=row.session_id)
                new += fire(session, _stale(session, row, now_us), now_us)
    return new


_LOOKED_THROUGH: Final = 500
_AT_ONCE: Final = 20


def fired(session: Session, limit: int) -> list[dict[str, Any]]:
    """The newest entries of controls that fired in the session, with their words and positions. One query."""
    rows = Entry.objects.filter(_OURS, session=session.id).select_related("body").order_by("-position")
    return [{"position": row.position, "received_us": row.received_us, **_words(row)} for row in rows[:limit]]


def how_often() -> Subquery:
    """For a query of sessions: how many findings the book has of each."""
    of_session = Entry.objects.filter(_OURS, session=OuterRef("id")).order_by().values("session")
    return Subquery(of_session.annotate(number=Count("position")).values("number"))


def _words(row: Entry) -> dict[str, Any]:
    told: dict[str, Any] = orjson.loads(row.facts)
    body = getattr(row, "body", None)
    if body is not None:
        told = {**orjson.loads(body.text), **told}
    return told


def _draft(session: Session, one: Finding) -> entries.Draft:
    facts_of_it = {"control": one.control, **one.about}
    return entries.Draft(
        project=session.project_id,
        source=entries.SYSTEM_SOURCE,
        event_id=entries.keyed_digest("control", str(session.id), one.control, one.key),
        kind="control.fired",
        lane="system",
        actor=entries.SYSTEM_SOURCE,
        # The sentence may change with the release, and what fired once stays one entry: it is no part of the text.
        text=orjson.dumps({"control": one.control, "key": one.key}, option=orjson.OPT_SORT_KEYS).decode(),
        facts=orjson.dumps(facts_of_it, option=orjson.OPT_SORT_KEYS).decode(),
        session=session.id,
        effect=one.effect,
        subject=one.subject,
    )


def _overload(handoff: Any) -> list[Finding]:
    if handoff.size <= handoffs.BUDGET:
        return []
    sentence = (
        f"The handoff has {handoff.size:,} bytes, and the next worker is meant to read {handoffs.BUDGET:,};"
        " what matters most may be missed."
    )
    about = {"handoff": str(handoff.id), "bytes": handoff.size, "budget": handoffs.BUDGET}
    return [Finding(HANDOFF_OVERLOAD, str(handoff.id), sentence, about, subject=handoff.id)]


def _drift(drifting: Mapping[str, Sequence[Any]]) -> list[Finding]:
    found = []
    for name, rows in list(drifting.items())[:MOST]:
        told = sorted(rows, key=lambda row: str(row.source))
        sources = [row.source for row in told]
        key = "|".join([name, *(f"{row.source}={row.digest}" for row in told)])
        sentence = (
            f"{len(told)} sources tell different values of {name}, and all of them are fresh: verify before acting."
        )
        about = {"fact": name, "sources": sources, "positions": [row.position for row in told]}
        found.append(Finding(STATE_DRIFT, key, sentence, about))
    return found


def _blind(session: Session) -> list[Finding]:
    """Effects that may still run although the task they belong to is done."""
    going = (
        Effect.objects.filter(MAY_BE_OPEN, session=session, state__in=OPEN_EFFECTS, task__state="done")
        .exclude(state="failed", outcome="error")
        .exclude(leave="refused")
        .select_related("task")
        .order_by("-opened_position")
    )
    found = []
    for effect in going[:MOST]:
        sentence = f"{effect} is open, and its task {effect.task} is done: it may repeat what was finished."
        about = {"effect": str(effect.id), "handle": str(effect), "task": str(effect.task_id)}
        found.append(
            Finding(COMPLETION_BLINDNESS, str(effect.id), sentence, about, effect=effect.id, subject=effect.task_id)
        )
    return found


def _stale(session: Session, handoff: Any, now_us: int) -> list[Finding]:
    """What the handoff waits on and is not open any more."""
    wanted: dict[str, list[UUID]] = {"gate": [], "effect": [], "message": []}
    for thing in handoff.waits_on:
        if thing.get("kind") in wanted and thing.get("ref"):
            try:
                wanted[thing["kind"]].append(UUID(thing["ref"]))
            except ValueError:
                continue
    over: list[tuple[str, Any, str]] = []
    project = session.project_id
    if wanted["gate"]:
        gates = Gate.objects.filter(project=project, id__in=wanted["gate"])
        ruled = gates.exclude(status="pending")
        over += [("gate", row, f"was {row.status.replace('_', ' ')}") for row in ruled]
        late = gates.filter(status="pending", decide_by_us__lt=now_us)
        over += [("gate", row, "has expired") for row in late]
    if wanted["effect"]:
        effects = Effect.objects.filter(project=project, id__in=wanted["effect"])
        settled = effects.exclude(state__in=("planned", "dispatched")).exclude(outcome="unknown")
        over += [("effect", row, f"is {row.state}") for row in settled]
    if wanted["message"]:
        reply = Message.objects.filter(project=project, in_reply_to=OuterRef("id"))
        answered = Message.objects.filter(Exists(reply), project=project, id__in=wanted["message"])
        over += [("message", row, "was answered") for row in answered]
    return [
        Finding(
            STALE_CONTEXT,
            f"{handoff.id}|{kind}|{row.id}",
            f"The handoff waits on {kind} {row}, which {became}: what it says of it is out of date.",
            {"handoff": str(handoff.id), "kind": kind, "ref": str(row.id), "became": became},
            effect=row.id if kind == "effect" else None,
            subject=handoff.id,
        )
        for kind, row, became in over[:MOST]
    ]
