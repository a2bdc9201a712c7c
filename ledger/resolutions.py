"""Resolutions: what people state about an effect of unknown outcome.

The answers: it happened, it did not, compensate it, or abandon it. A resolution is about the past
and never permits another attempt. If several people answer, the first one counts; the others see a
changed effect. Each is an entry `effect.resolved`, which the fold applies.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db.models import F, OuterRef, Subquery

from journal import brought, entries
from journal.clock import now_us
from journal.entries import SYSTEM_SOURCE
from journal.ids import uuid7
from journal.models import Entry
from journal.order import person_key
from ledger import cases, effects, fold, undoing, verdicts
from ledger.fold import Fact, Observation
from ledger.leaves import Refusal
from ledger.models import Effect
from ledger.rows import AttemptRow, EffectRow
from ledger.states import RESOLUTIONS
from ledger.tried import load_attempts
from ledger.verdicts import Case, Verdict
from sessions.models import Person
from sessions.people import REPLACE_IT_FIRST, has_own_password, pseudonym_of

ANSWERS: Final = RESOLUTIONS[1:]
LEAST_RATIONALE: Final = 10
HISTORY: Final = "Imported from a bundle: only the original Gatebook can record its outcome."
MOST_RATIONALE: Final = 4000
MOST_EVIDENCE: Final = 4000
MOST_REFERENCE: Final = 300


@dataclass(frozen=True, slots=True)
class Word:
    """A person's answer about the effect as their page showed it (`seen_version`).

    `insists`: they answer although others could still know. `step_up`: how they re-authenticated.
    """

    answer: str
    rationale: str
    seen_version: int
    reference: str = ""
    evidence: str = ""
    insists: bool = False
    step_up: str = "none"


@dataclass(slots=True)
class Resolved:
    """The result of a resolution. `position` is that of its entry."""

    effect: EffectRow
    refusal: Refusal | None = None
    position: int = 0


class Standing(NamedTuple):
    """Whether people may resolve an effect now.

    `refused`: why not. `against`: why to wait unless they insist. `only`: the answers that apply.
    """

    refused: str = ""
    against: str = ""
    only: tuple[str, ...] = ANSWERS


def standing(case: Case, decision: Verdict, deadline_us: int | None, now: int) -> Standing:
    """Return whether people may resolve `case`, given its verdict. Pure."""
    unblocked = verdicts.verdict(replace(case, on_hold=False, lease_elsewhere=False), now)
    if case.state in ("compensated", "superseded"):
        return Standing(f"Nothing to resolve: the effect is {case.state}.")
    if case.state == "acknowledged" and case.outcome != "unknown":
        # Its compensation failed, so a person may let it stand.
        if unblocked.reason == "UNDO_FAILED":
            return Standing(only=("happened",))
        return Standing("Its outcome is known: it was acknowledged.")
    is_rejected = (
        case.state == "failed" and case.failure_reason == "rejected" and not case.earlier_in_doubt
    )
    if is_rejected or case.attempts == 0:
        # Nothing happened, and no attempt is allowed: it can only be abandoned.
        if unblocked.answer == "escalate":
            return Standing(only=("abandoned",))
        if case.attempts == 0:
            return Standing("It was never dispatched, so it cannot have happened.")
        return Standing("Its last attempt did not happen. An agent may request another.")
    if case.compensation is not None:
        return Standing("Its compensation is open. Resolve the compensation instead.")
    if case.state == "dispatched" and deadline_us is not None and now <= deadline_us:
        if unblocked.answer != "escalate":
            return Standing("Its deadline has not passed, and agents can still check the outcome.")
        return Standing(against="Its deadline has not passed; a report may still arrive.")
    if decision.reason == "LEASE_HELD":
        return Standing(against="A live worker holds the lease and may still know.")
    if unblocked.reason == "RESOLVED":
        return Standing(
            against="Its compensation was already requested; another answer replaces that request."
        )
    if unblocked.answer != "escalate":
        return Standing(against="The verdict table can settle this without a person.")
    if unblocked.reason == "UNDO_FAILED":  # requesting the same compensation again changes nothing
        return Standing(only=("happened", "not_happened", "abandoned"))
    return Standing()


def resolve(project: UUID, effect: UUID, resolution: Word, user: User) -> Resolved:
    """Record a person's resolution of the last attempt. Must run inside a transaction.

    Refusals: stale_view (the effect changed since the page was made), not_asked, insist,
    rationale_required, reference, own_password. Raises LookupError when the project has no such
    effect.
    """
    row = effects.load([effect]).get(effect)
    if row is None or row.project_id != project:
        raise LookupError(effect)
    now = now_us()  # after the lock: whoever waited for the row comes second
    stored = Effect.objects.get(id=effect)
    if stored.imported:
        return Resolved(row, Refusal("not_asked", HISTORY))
    if not has_own_password(user):
        return Resolved(row, Refusal("own_password", REPLACE_IT_FIRST))
    case, decision = judged(stored, now)
    refusal = _check_resolution(row, resolution, standing(case, decision, row.deadline_us, now))
    if refusal is not None:
        return Resolved(row, refusal)
    attempts = load_attempts([effect]).get(effect, {})
    position = _record(row, resolution, decision, user, now)
    _apply_resolution(row, attempts, position, resolution, now)
    return Resolved(row, None, position)


def judged(effect: Effect, now: int) -> tuple[Case, Verdict]:
    """Return the case and verdict of an effect for a caller without a lease."""
    evaluation = cases.judge(effect.project_id, [effect], now)[effect.id]
    return evaluation.case, evaluation.verdict


def is_by(effect: Effect | EffectRow, user: User) -> bool:
    """True if `user` resolved the effect, or the effect that this one compensates.

    No query for effects without a resolution, which are nearly all.
    """
    effect_ids = [
        identity
        for identity in (effect.id if effect.resolved_mark else None, effect.compensates_id)
        if identity is not None
    ]
    if not effect_ids:
        return False
    resolutions = Entry.objects.filter(effect__in=effect_ids, kind=fold.RESOLVED, lane="system")
    return resolutions.filter(actor=pseudonym_of(user)).exists()


@dataclass(frozen=True, slots=True)
class Said:
    """A stored resolution: answer, person, time and rationale. An erased text is None."""

    answer: str
    who: str
    actor: str  # the person's pseudonym
    at_us: int
    position: int
    attempt: int | None
    rationale: str | None
    reference: str
    evidence: str


def told(effect: Effect) -> list[Said]:
    """Return the resolutions of `effect`, latest first; no query if there are none."""
    if not effect.resolved_mark:
        return []
    person = Person.objects.filter(pseudonym=OuterRef("actor")).values("user__username")[:1]
    entries = Entry.objects.filter(
        project=effect.project_id, effect=effect.id, kind=fold.RESOLVED, lane="system"
    )
    rows = entries.annotate(who=Subquery(person), text=F("body__text")).order_by("-position")
    return [_from_entry(entry) for entry in rows]


def _from_entry(entry: Any) -> Said:
    texts = orjson.loads(entry.text) if entry.text is not None else {}
    return Said(
        answer=orjson.loads(entry.facts)["answer"],
        who=entry.who or entry.actor,
        actor=entry.actor,
        at_us=brought.received_us(entry.source, entry.facts, entry.received_us),
        position=entry.position,
        attempt=entry.attempt,
        rationale=texts.get("rationale"),
        reference=texts.get("reference", ""),
        evidence=texts.get("evidence", ""),
    )


def _check_resolution(row: EffectRow, resolution: Word, prompt: Standing) -> Refusal | None:
    if row.version != resolution.seen_version:
        return Refusal(
            "stale_view",
            "The effect changed since this page was loaded. Review the changes, then answer.",
        )
    if prompt.refused:
        return Refusal("not_asked", prompt.refused)
    if resolution.answer not in prompt.only:
        return Refusal(
            "not_asked", f"This answer does not apply. Choose {' or '.join(prompt.only)}."
        )
    if prompt.against and not resolution.insists:
        return Refusal("insist", f"{prompt.against} Confirm that you answer anyway, or wait.")
    return wanting(resolution)


def wanting(resolution: Word) -> Refusal | None:
    """Return the refusal of an invalid rationale, reference or evidence, if any."""
    if not LEAST_RATIONALE <= len(resolution.rationale) <= MOST_RATIONALE:
        sentence = (
            f"Explain how you know, in {LEAST_RATIONALE} to {MOST_RATIONALE} characters."
            " Others will rely on it."
        )
        return Refusal("rationale_required", sentence)
    if len(resolution.reference) > MOST_REFERENCE or not resolution.reference.isprintable():
        return Refusal(
            "reference",
            f"A reference is one line of at most {MOST_REFERENCE} printable characters.",
        )
    if len(resolution.evidence) > MOST_EVIDENCE:
        return Refusal(
            "evidence",
            f"Evidence has at most {MOST_EVIDENCE} characters. Store longer evidence elsewhere.",
        )
    return None


def _record(row: EffectRow, resolution: Word, decision: Verdict, user: User, now: int) -> int:
    facts = {
        "answer": resolution.answer,
        "seen": resolution.seen_version,
        "row": decision.row,
        "reason": decision.reason,
        "table": verdicts.VERSION,
        "insists": resolution.insists,
        "step_up": resolution.step_up,
        # A replay reads no bodies, and this reference takes precedence over those of agents.
        "named": bool(resolution.reference),
    }
    texts = {
        "reference": resolution.reference,
        "rationale": resolution.rationale,
        "evidence": resolution.evidence,
    }
    appended = entries.record(
        row.project_id,
        fold.RESOLVED,
        event_id=uuid7().hex,
        text=_json({"kind": fold.RESOLVED, "effect": row.id, **facts, **texts}),
        received_us=now,
        actor=pseudonym_of(user),
        facts=_json(facts),
        session=row.session_id,
        effect=row.id,
        attempt=row.attempt_count or None,
    )
    return appended.position


def _apply_resolution(
    row: EffectRow, attempts: dict[int, AttemptRow], position: int, resolution: Word, now: int
) -> None:
    fact = Fact(
        kind=fold.RESOLVED,
        mark=person_key(row.attempt_count, position, SYSTEM_SOURCE, row.id.hex),
        lane="system",
        key=row.id.hex,
        position=position,
        received_us=now,
        told_us=now,
        attempt=row.attempt_count,
        values={"answer": resolution.answer, "external_reference": resolution.reference},
    )
    rows, attempts_by_effect = {row.id: row}, {row.id: attempts}
    compensations_before = undoing.of(rows, attempts_by_effect)
    names = fold.apply(row, attempts, fact, _never_observe) + undoing.settle(
        row, rows, attempts_by_effect
    )
    target_violations = undoing.carry(rows, attempts_by_effect, compensations_before)
    effects.write(
        rows.values(),
        [attempt for numbered in attempts_by_effect.values() for attempt in numbered.values()],
    )
    effects.tell(
        [
            effects.Breach(*violation)
            for violation in [*((row, name) for name in names), *target_violations]
        ],
        now,
    )


def _never_observe(leave: str, imports: bool, judged: str) -> Observation:
    """Raise: a resolution never observes permission."""
    raise AssertionError("a resolution observes nothing")


def _json(value: dict[str, object]) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
