"""What people say of an effect of which nobody can know: it happened, it did not, compensate it, or abandon it.

It is a word about the past and never leave for the future. Of several people one is heard: whoever's page showed the
effect as it still is. The word is an entry `effect.resolved`; what it does, the fold says.
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
HISTORY: Final = (
    "A bundle brought it: what became of it is said in the book of origin, and shown here."
)
MOST_RATIONALE: Final = 4000
MOST_EVIDENCE: Final = 4000
MOST_REFERENCE: Final = 300


@dataclass(frozen=True, slots=True)
class Word:
    """What a person says, and of what: `seen_version` is that of the effect which their page showed.

    `insists` is their saying that they answer although others could still know; `step_up` the proof they gave.
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
    """What became of a word. `position` is that of its entry."""

    effect: EffectRow
    refusal: Refusal | None = None
    position: int = 0


class Standing(NamedTuple):
    """Whether people are asked about an effect now.

    `refused` says why they are not; `against` why they should wait, and so must insist; `only` the answers that fit.
    """

    refused: str = ""
    against: str = ""
    only: tuple[str, ...] = ANSWERS


def standing(case: Case, decision: Verdict, deadline_us: int | None, now: int) -> Standing:
    """Whether people may answer what `case` is, of which `found` is the verdict. Pure."""
    bare = verdicts.verdict(replace(case, on_hold=False, lease_elsewhere=False), now)
    if case.state in ("compensated", "superseded"):
        return Standing(f"It is {case.state}; there is nothing left to say.")
    if case.state == "acknowledged" and case.outcome != "unknown":
        # it was to be undone, and that came to nothing: it can be let stand
        if bare.reason == "UNDO_FAILED":
            return Standing(only=("happened",))
        return Standing("It is known what became of it: it was acknowledged.")
    clean = (
        case.state == "failed" and case.failure_reason == "rejected" and not case.earlier_in_doubt
    )
    if clean or case.attempts == 0:
        # nothing of it happened, and nobody may do it: it can only be let go
        if bare.answer == "escalate":
            return Standing(only=("abandoned",))
        if case.attempts == 0:
            return Standing("It was never dispatched, so nothing of it can have happened.")
        return Standing(
            "It is known that its last attempt did not happen; an agent may ask for another."
        )
    if case.compensation is not None:
        return Standing(
            "Its compensation is under way, and decides. If nobody knows of that, answer there."
        )
    if case.state == "dispatched" and deadline_us is not None and now <= deadline_us:
        if bare.answer != "escalate":
            return Standing(
                "It is under way: its deadline has not passed, and agents can still find out."
            )
        return Standing(against="Its deadline has not passed: an answer may be on its way.")
    if decision.reason == "LEASE_HELD":
        return Standing(against="A worker that is alive holds the lease, and may still know.")
    if bare.reason == "RESOLVED":
        return Standing(
            against="Somebody has asked for its compensation already; another answer takes its place."
        )
    if bare.answer != "escalate":
        return Standing(against="The table can settle this without people, as the verdict says.")
    if bare.reason == "UNDO_FAILED":  # to ask for the same again would change nothing
        return Standing(only=("happened", "not_happened", "abandoned"))
    return Standing()


def resolve(project: UUID, effect: UUID, resolution: Word, user: User) -> Resolved:
    """Take a person's word on the last attempt of an effect. Must run inside a transaction.

    Refusals: stale_view (the effect is another than the page showed), not_asked, insist, rationale_required,
    reference, own_password. Raises LookupError when the project has no such effect.
    """
    row = effects.load([effect]).get(effect)
    if row is None or row.project_id != project:
        raise LookupError(effect)
    now = now_us()  # only now: whoever waited for the row speaks after whoever had it
    stored = Effect.objects.get(id=effect)
    if stored.imported:
        return Resolved(row, Refusal("not_asked", HISTORY))
    if not has_own_password(user):
        return Resolved(row, Refusal("own_password", REPLACE_IT_FIRST))
    case, decision = judged(stored, now)
    refusal = _refused(row, resolution, standing(case, decision, row.deadline_us, now))
    if refusal is not None:
        return Resolved(row, refusal)
    attempts = load_attempts([effect]).get(effect, {})
    position = _record(row, resolution, decision, user, now)
    _fold(row, attempts, position, resolution, now)
    return Resolved(row, None, position)


def judged(effect: Effect, now: int) -> tuple[Case, Verdict]:
    """What is known of an effect, and what the table says of it to whoever holds no lease."""
    evaluation = cases.judge(effect.project_id, [effect], now)[effect.id]
    return evaluation.case, evaluation.verdict


def is_by(effect: Effect | EffectRow, user: User) -> bool:
    """True when `user` said what became of the effect, or of what it compensates: what follows is asked on their word.

    No query for the many effects of which nobody ever said anything.
    """
    about = [
        identity
        for identity in (effect.id if effect.resolved_mark else None, effect.compensates_id)
        if identity is not None
    ]
    if not about:
        return False
    resolutions = Entry.objects.filter(effect__in=about, kind=fold.RESOLVED, lane="system")
    return resolutions.filter(actor=pseudonym_of(user)).exists()


@dataclass(frozen=True, slots=True)
class Said:
    """A word that was taken: the answer, by whom and when, and how they knew. What was erased is None."""

    answer: str
    who: str
    actor: str  # the pseudonym of who
    at_us: int
    position: int
    attempt: int | None
    rationale: str | None
    reference: str
    evidence: str


def told(effect: Effect) -> list[Said]:
    """What people said of `effect`, the latest first. No query where nobody ever did."""
    if not effect.resolved_mark:
        return []
    person = Person.objects.filter(pseudonym=OuterRef("actor")).values("user__username")[:1]
    entries = Entry.objects.filter(
        project=effect.project_id, effect=effect.id, kind=fold.RESOLVED, lane="system"
    )
    rows = entries.annotate(who=Subquery(person), text=F("body__text")).order_by("-position")
    return [_said(entry) for entry in rows]


def _said(entry: Any) -> Said:
    words = orjson.loads(entry.text) if entry.text is not None else {}
    return Said(
        answer=orjson.loads(entry.facts)["answer"],
        who=entry.who or entry.actor,
        actor=entry.actor,
        at_us=brought.received_us(entry.source, entry.facts, entry.received_us),
        position=entry.position,
        attempt=entry.attempt,
        rationale=words.get("rationale"),
        reference=words.get("reference", ""),
        evidence=words.get("evidence", ""),
    )


def _refused(row: EffectRow, resolution: Word, prompt: Standing) -> Refusal | None:
    if row.version != resolution.seen_version:
        return Refusal(
            "stale_view",
            "The effect changed since your page was made. Look at what is new, then answer.",
        )
    if prompt.refused:
        return Refusal("not_asked", prompt.refused)
    if resolution.answer not in prompt.only:
        return Refusal(
            "not_asked", f"This answer does not fit here: choose {' or '.join(prompt.only)}."
        )
    if prompt.against and not resolution.insists:
        return Refusal("insist", f"{prompt.against} Tick that you answer all the same, or wait.")
    return wanting(resolution)


def wanting(resolution: Word) -> Refusal | None:
    """What is missing of the words themselves."""
    if not LEAST_RATIONALE <= len(resolution.rationale) <= MOST_RATIONALE:
        sentence = f"Say how you know, in {LEAST_RATIONALE} to {MOST_RATIONALE} characters; others will rely on it."
        return Refusal("rationale_required", sentence)
    if len(resolution.reference) > MOST_REFERENCE or not resolution.reference.isprintable():
        return Refusal(
            "reference",
            f"A reference is one line of at most {MOST_REFERENCE} printable characters.",
        )
    if len(resolution.evidence) > MOST_EVIDENCE:
        return Refusal(
            "evidence",
            f"Evidence has at most {MOST_EVIDENCE} characters; keep what is longer elsewhere.",
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
        # a replay reads no words, and this one goes before those of agents
        "named": bool(resolution.reference),
    }
    words = {
        "reference": resolution.reference,
        "rationale": resolution.rationale,
        "evidence": resolution.evidence,
    }
    appended = entries.record(
        row.project_id,
        fold.RESOLVED,
        event_id=uuid7().hex,
        text=_json({"kind": fold.RESOLVED, "effect": row.id, **facts, **words}),
        received_us=now,
        actor=pseudonym_of(user),
        facts=_json(facts),
        session=row.session_id,
        effect=row.id,
        attempt=row.attempt_count or None,
    )
    return appended.position


def _fold(
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
    rows, tried = {row.id: row}, {row.id: attempts}
    before = undoing.of(rows, tried)
    names = fold.apply(row, attempts, fact, _nothing_observed) + undoing.settle(row, rows, tried)
    elsewhere = undoing.carry(rows, tried, before)
    effects.write(
        rows.values(),
        [
            attempts_by_number
            for numbered in tried.values()
            for attempts_by_number in numbered.values()
        ],
    )
    effects.tell(
        [
            effects.Breach(*attempts_by_number)
            for attempts_by_number in [*((row, name) for name in names), *elsewhere]
        ],
        now,
    )


def _nothing_observed(leave: str, imports: bool, judged: str) -> Observation:
    """A word about the past moves no leave."""
    raise AssertionError("a resolution observes nothing")


def _json(value: dict[str, object]) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
