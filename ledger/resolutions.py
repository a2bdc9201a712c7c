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

from accounts.models import Person
from accounts.people import OWN_PASSWORD_REQUIRED_TEXT, ensure_pseudonym, has_own_password
from db.clock import now_us
from db.ids import new_uuid7
from journal import entries
from journal.entries import SYSTEM_SOURCE
from journal.entry_times import read_stated_us
from journal.models import Entry
from journal.order_keys import make_resolution_key
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.models import Effect
from ledger.refusals import Refusal
from ledger.states import RESOLUTIONS
from ledger.store import reader, writer
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.store.reader import load_attempts
from ledger.verdicts import evaluate, table
from ledger.verdicts.table import Verdict, VerdictInput

ANSWERS: Final = RESOLUTIONS[1:]
MIN_RATIONALE: Final = 10
IMPORTED_EFFECT: Final = (
    "Imported from a bundle: only the original Gatebook can record its outcome."
)
MAX_RATIONALE: Final = 4000
MAX_EVIDENCE: Final = 4000
MAX_REFERENCE: Final = 300


@dataclass(frozen=True, slots=True)
class ResolutionInput:
    """A person's answer about the effect as their page showed it (`seen_version`).

    `insists`: they answer although others could still know. `step_up`: how they re-authenticated;
    `password_at_us` and `password_for`: when they typed the password, for this answer or an earlier
    one (`this`, `earlier`).
    """

    answer: str
    rationale: str
    seen_version: int
    reference: str = ""
    evidence: str = ""
    insists: bool = False
    step_up: str = "none"
    password_at_us: int | None = None
    password_for: str = ""


@dataclass(slots=True)
class ResolutionResult:
    """The result of a resolution. `position` is that of its entry."""

    effect: EffectRow
    refusal: Refusal | None = None
    position: int = 0


class ResolvePrompt(NamedTuple):
    """Whether people may resolve an effect now.

    `refused`: why not. `against`: why to wait unless they insist. `only`: the answers that apply.
    """

    refused: str = ""
    against: str = ""
    only: tuple[str, ...] = ANSWERS


def evaluate_prompt(
    case: VerdictInput, decision: Verdict, deadline_us: int | None, now: int
) -> ResolvePrompt:
    """Return whether people may resolve `case`, given its verdict. Pure."""
    unblocked = table.decide_verdict(replace(case, is_stopped=False, lease_elsewhere=False), now)
    if case.state in ("compensated", "superseded"):
        return ResolvePrompt(f"Nothing to resolve: the effect is {case.state}.")
    if case.state == "acknowledged" and case.outcome != "unknown":
        # Its compensation failed, so a person may let it stand.
        if unblocked.reason == "UNDO_FAILED":
            return ResolvePrompt(only=("happened",))
        return ResolvePrompt("Its outcome is known: it was acknowledged.")
    is_rejected = (
        case.state == "failed" and case.failure_reason == "rejected" and not case.earlier_in_doubt
    )
    if is_rejected or case.attempts == 0:
        # Nothing happened, and no attempt is allowed: it can only be abandoned.
        if unblocked.answer == "escalate":
            return ResolvePrompt(only=("abandoned",))
        if case.attempts == 0:
            return ResolvePrompt("It was never dispatched, so it cannot have happened.")
        return ResolvePrompt("Its last attempt did not happen. An agent may request another.")
    if case.compensation is not None:
        return ResolvePrompt("Its compensation is open. Resolve the compensation instead.")
    if case.state == "dispatched" and deadline_us is not None and now <= deadline_us:
        if unblocked.answer != "escalate":
            return ResolvePrompt(
                "Its deadline has not passed, and agents can still check the outcome."
            )
        return ResolvePrompt(against="Its deadline has not passed; a report may still arrive.")
    if decision.reason == "LEASE_HELD":
        return ResolvePrompt(against="A live worker holds the lease and may still know.")
    if unblocked.reason == "RESOLVED":
        return ResolvePrompt(
            against="Its compensation was already requested; another answer replaces that request."
        )
    if unblocked.answer != "escalate":
        return ResolvePrompt(against="The verdict table can settle this without a person.")
    if unblocked.reason == "UNDO_FAILED":  # requesting the same compensation again changes nothing
        return ResolvePrompt(only=("happened", "not_happened", "abandoned"))
    return ResolvePrompt()


def record_resolution(
    project: UUID, effect: UUID, resolution: ResolutionInput, user: User
) -> ResolutionResult:
    """Record a person's resolution of the last attempt. Must run inside a transaction.

    Refusals: own_password, stale_view (the effect changed since the page was made), not_asked,
    answer, insist, rationale_required, reference, evidence. Raises LookupError when the project has
    no such effect.
    """
    row = reader.lock_effects([effect]).get(effect)
    if row is None or row.project_id != project:
        raise LookupError(effect)
    now = now_us()  # after the lock: a transaction that waited for the row comes second
    stored = Effect.objects.get(id=effect)
    if stored.imported:
        return ResolutionResult(row, Refusal("not_asked", IMPORTED_EFFECT))
    if not has_own_password(user):
        return ResolutionResult(row, Refusal("own_password", OWN_PASSWORD_REQUIRED_TEXT))
    case, verdict = evaluate_effect(stored, now)
    prompt = evaluate_prompt(case, verdict, row.deadline_us, now)
    refusal = decide_resolution(row.version, prompt, resolution)
    if refusal is not None:
        return ResolutionResult(row, refusal)
    attempts = load_attempts([effect]).get(effect, {})
    position = _record(row, resolution, verdict, user, now)
    _apply_resolution(row, attempts, position, resolution, now)
    return ResolutionResult(row, None, position)


def evaluate_effect(effect: Effect, now: int) -> tuple[VerdictInput, Verdict]:
    """Return the case and verdict of an effect for a caller without a lease."""
    evaluation = evaluate.evaluate_effects(effect.project_id, [effect], now)[effect.id]
    return evaluation.case, evaluation.verdict


def is_resolved_by(effect: Effect | EffectRow, user: User) -> bool:
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
    resolutions = Entry.objects.filter(
        effect__in=effect_ids, kind=effect_state.RESOLVED, lane="system"
    )
    return resolutions.filter(actor=ensure_pseudonym(user)).exists()


@dataclass(frozen=True, slots=True)
class Resolution:
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
    step_up: str = "none"
    password_at_us: int | None = None  # None also for resolutions that did not record it
    password_for: str = ""


def load_resolutions(effect: Effect) -> list[Resolution]:
    """Return the resolutions of `effect`, latest first; no query if there are none."""
    if not effect.resolved_mark:
        return []
    person = Person.objects.filter(pseudonym=OuterRef("actor")).values("user__username")[:1]
    entries = Entry.objects.filter(
        project=effect.project_id, effect=effect.id, kind=effect_state.RESOLVED, lane="system"
    )
    rows = entries.annotate(who=Subquery(person), text=F("body__text")).order_by("-position")
    return [_from_entry(entry) for entry in rows]


def _from_entry(entry: Any) -> Resolution:
    texts = orjson.loads(entry.text) if entry.text is not None else {}
    facts = orjson.loads(entry.facts)
    return Resolution(
        answer=facts["answer"],
        who=entry.who or entry.actor,
        actor=entry.actor,
        at_us=read_stated_us(entry),
        position=entry.position,
        attempt=entry.attempt,
        rationale=texts.get("rationale"),
        reference=texts.get("reference", ""),
        evidence=texts.get("evidence", ""),
        step_up=facts.get("step_up", "none"),
        password_at_us=facts.get("password_at_us"),
        password_for=facts.get("password_for", ""),
    )


def decide_resolution(
    version: int, prompt: ResolvePrompt, resolution: ResolutionInput
) -> Refusal | None:
    """Return why `resolution` of an effect with `version` is refused, or None. Pure."""
    if version != resolution.seen_version:
        return Refusal(
            "stale_view",
            "The effect changed after this page was loaded. Check the changes, then answer.",
        )
    if prompt.refused:
        return Refusal("not_asked", prompt.refused)
    if resolution.answer not in prompt.only:
        return Refusal("answer", "Choose one of the answers.")
    if prompt.against and not resolution.insists:
        return Refusal("insist", f"{prompt.against} Tick “Record my answer anyway”, or wait.")
    return _check_texts(resolution)


def _check_texts(resolution: ResolutionInput) -> Refusal | None:
    """Return the refusal of an invalid rationale, reference or evidence, if any."""
    if not MIN_RATIONALE <= len(resolution.rationale) <= MAX_RATIONALE:
        sentence = (
            f"Explain how you know, in {MIN_RATIONALE} to {MAX_RATIONALE} characters."
            " Others will rely on it."
        )
        return Refusal("rationale_required", sentence)
    if len(resolution.reference) > MAX_REFERENCE or not resolution.reference.isprintable():
        return Refusal(
            "reference",
            f"A reference is one line of at most {MAX_REFERENCE} printable characters.",
        )
    if len(resolution.evidence) > MAX_EVIDENCE:
        return Refusal(
            "evidence",
            f"Evidence has at most {MAX_EVIDENCE} characters. Store longer evidence elsewhere.",
        )
    return None


def _record(
    row: EffectRow, resolution: ResolutionInput, decision: Verdict, user: User, now: int
) -> int:
    facts: dict[str, Any] = {
        "answer": resolution.answer,
        "seen": resolution.seen_version,
        "row": decision.row,
        "reason": decision.reason,
        "table": table.TABLE_VERSION,
        "insists": resolution.insists,
        "step_up": resolution.step_up,
        # A replay reads no bodies, and this reference takes precedence over those of agents.
        "named": bool(resolution.reference),
    }
    if resolution.password_at_us is not None:
        facts["password_at_us"] = resolution.password_at_us
        facts["password_for"] = resolution.password_for
    texts = {
        "reference": resolution.reference,
        "rationale": resolution.rationale,
        "evidence": resolution.evidence,
    }
    appended = entries.record_system_entry(
        row.project_id,
        effect_state.RESOLVED,
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json(
            {"kind": effect_state.RESOLVED, "effect": row.id, **facts, **texts}
        ),
        received_us=now,
        actor=ensure_pseudonym(user),
        facts=entries.dump_sorted_json(facts),
        session=row.session_id,
        effect=row.id,
        attempt=row.attempt_count or None,
    )
    return appended.position


def _apply_resolution(
    row: EffectRow,
    attempts: dict[int, AttemptRow],
    position: int,
    resolution: ResolutionInput,
    now: int,
) -> None:
    fact = Fact(
        kind=effect_state.RESOLVED,
        mark=make_resolution_key(row.attempt_count, position, SYSTEM_SOURCE, row.id.hex),
        lane="system",
        key=row.id.hex,
        position=position,
        received_us=now,
        told_us=now,
        attempt=row.attempt_count,
        values={"answer": resolution.answer, "external_reference": resolution.reference},
    )
    writer.apply_fact(row, attempts, fact)
