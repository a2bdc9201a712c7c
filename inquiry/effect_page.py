"""What the effect page reads: the effect and its neighbours, its attempts, every fact of it, arguments and result."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Substr

from approvals.deadlines import current_status
from approvals.models import Gate
from inquiry import bodies, incident_page, repeating
from inquiry.bodies import Argument, Excerpt
from inquiry.bundles import history
from inquiry.indexes import IS_A_CLAIM
from inquiry.keyset import MAX_POSITION
from journal import brought, gists
from journal.clock import now_us
from journal.compiled import Compiled
from journal.models import LANES, Entry
from ledger import breaches, cases, declared, resolutions, same_calls, verdicts
from ledger.models import Attempt, Effect
from ledger.models_tools import Tool
from ledger.verdicts import Case, Verdict
from sessions.models import Artifact, Project

FACTS: Final = 50  # on one page, newest first
RELATED: Final = 20
ATTEMPTS: Final = 50


def effect(project: Project, effect_id: UUID) -> Effect | None:
    """The effect with all that its page names, or None when it is not this project's.

    `before_id` and `after_id` are its neighbours in the session, None at the ends; `in_incident` as of a session;
    `again` is true where another like it ran, `has_claims` where agents reported on it that may not speak for it,
    `named` where a same call of another session is named with it.
    """
    found: Effect | None = next(iter(_EFFECT.rows(project=project.id, effect=effect_id)), None)
    # A report may name any id as its parent's, and nothing crosses the wall.
    if found is not None and found.parent_effect is not None and found.parent_effect.project_id != project.id:
        found.parent_effect = None
    return found


def _effect(project: UUID, effect: UUID) -> "QuerySet[Any]":
    beside = Effect.objects.filter(session=OuterRef("session"))
    before = beside.filter(opened_position__lt=OuterRef("opened_position")).order_by("-opened_position")
    after = beside.filter(opened_position__gt=OuterRef("opened_position")).order_by("opened_position")
    claims = Entry.objects.filter(IS_A_CLAIM)
    joined = (
        *("session", "agent", "task", "repository", "parent_effect", "compensates"),
        *("session__owner", "session__on_behalf_of"),
    )
    return (
        Effect.objects.filter(project=project, id=effect)
        .select_related(*joined)
        .annotate(before_id=Subquery(before.values("id")[:1]), after_id=Subquery(after.values("id")[:1]))
        .annotate(in_incident=incident_page.is_member("effect"), again=repeating.is_again())
        .annotate(not_compared=repeating.not_compared("effect"))
        .annotate(has_claims=Exists(claims.filter(session=OuterRef("session"), effect=OuterRef("id"))))
        .annotate(named=same_calls.is_named(**same_calls.OF_EFFECT))
    )


_EFFECT: Final = Compiled(_effect, project=UUID, effect=UUID)


def attempts(effect: Effect) -> tuple[list[Attempt], int]:
    """The newest attempts, and the one whose answer stands, in order; and how many there are in all."""
    rows = Attempt.objects.filter(effect=effect).order_by("-number")
    found = list(rows[: ATTEMPTS + 1])
    if len(found) <= ATTEMPTS:
        return found[::-1], len(found)
    del found[ATTEMPTS:]
    if not any(one.acknowledged_mark for one in found):
        found += rows.filter(number__lt=found[-1].number).exclude(acknowledged_mark="")[:1]
    return found[::-1], rows.count()


def tool(effect: Effect) -> Tool | None:
    """What the operator declared of its tool; None means opaque and mutating."""
    return Tool.objects.filter(project=effect.project_id, name=effect.tool).first()


@dataclass(slots=True)
class Fact:
    """One entry of the journal about the effect. `body` is agent text, None when it was erased or never kept."""

    entry: Entry
    body: Excerpt | None
    erased_at_us: int | None
    erasure_reason: str
    lane: str  # what the lane means, in words
    known: bool  # False for a kind within the grammar that this Gatebook does not know

    @property
    def brought(self) -> bool:
        """True when a bundle brought it: another book wrote it down."""
        return brought.was_brought(self.entry.source)

    @property
    def violates(self) -> bool:
        """True for what should not have been: Gatebook's own word, which no agent's report can take."""
        return self.entry.lane == "system" and self.entry.kind.startswith("integrity.")


@dataclass(slots=True)
class Facts:
    """A page of facts, newest first. `older` and `newer` are positions for the neighbouring pages."""

    rows: list[Fact] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    at: int | None = None


_REPORTED: Final = frozenset(
    {
        *(f"effect.{verb}" for verb in ("planned", "dispatched", "acknowledged", "failed", "probed", "superseded")),
        *("artifact.recorded", "decision.recorded", "decision.concluded"),
    }
)
# What is known, by lane: the words of Gatebook and of people move nothing when an agent reports them.
KNOWN_KINDS: Final[dict[str, frozenset[str]]] = {
    "evidence": _REPORTED,
    "claim": _REPORTED,
    "command": _REPORTED | {"gate.cancelled"},
    "system": frozenset(
        {
            *(f"gate.{verb}" for verb in ("requested", "voted", "ruled", "extended", "used", "returned", "revoked")),
            *(f"gate.{verb}" for verb in ("expired", "lapsed", "cancelled")),
            *(f"effect.{verb}" for verb in ("named", "granted", "withheld", "replanned", "resolved", "failed")),
            *("exemption.used", "hold.set", "hold.lifted"),
            *("access.viewed", "erasure.executed"),
            *("integrity.conflict", "integrity.violation", "integrity.fenced"),
        }
    ),
}


def facts(effect: Effect, before: int | None = None, at: int | None = None) -> Facts:
    """A page of what the journal says of `effect`, in one query: newest, those below `before`, or from `at` down."""
    entries = _entries(effect.project_id).filter(effect=effect.id)
    if at is not None:
        entries = entries.filter(position__lte=at)
    elif before is not None:
        entries = entries.filter(position__lt=before)
    found = list(entries.order_by("-position")[: FACTS + 1])
    rows = [_fact(entry) for entry in found[:FACTS]]
    return Facts(
        rows,
        older=rows[-1].entry.position if len(found) > FACTS else None,
        newer=rows[0].entry.position if rows and (before is not None or at is not None) else None,
        at=at,
    )


def _entries(project: UUID) -> "QuerySet[Any]":
    return Entry.objects.filter(project=project).annotate(
        head=Substr("body__text", 1, bodies.SHOWN_BYTES),
        octets=bodies.Octets("body__text"),
        erased_at_us=F("erasure__erased_at_us"),
        erasure_reason=F("erasure__reason"),
    )


def _fact(entry: Any) -> Fact:
    entry.received_us = brought.received_us(entry.source, entry.facts, entry.received_us)
    return Fact(
        entry,
        bodies.excerpt_of_head(entry.head, entry.octets),
        entry.erased_at_us,
        entry.erasure_reason or "",
        LANES.get(entry.lane, entry.lane),
        entry.kind in KNOWN_KINDS[entry.lane],
    )


def stored_bodies(effect: Effect, position: int) -> list[str | None]:
    """The text of the fact of `effect` at `position`: one value, None when erased; no value for no such fact."""
    entry = Entry.objects.filter(project=effect.project_id, effect=effect.id, position=position)
    return list(entry.values_list("body__text", flat=True))


def plan_at(effect: Effect, position: int) -> dict[str, Any] | None:
    """What the plan of `effect` at `position` says; None when it was erased, or is no plan of its."""
    stored = stored_bodies(effect, position)
    return gists.parsed(stored[0]) if stored and stored[0] is not None else None


@dataclass(slots=True)
class Exchange:
    """What was asked and what came back. All of it is agent text."""

    arguments: list[Argument] = field(default_factory=list)
    why: str = ""  # the agent's claim
    plan_erased: bool = False
    result: Excerpt | None = None
    result_erased: bool = False
    detail: str = ""  # of a failure
    reference: str = ""  # that the answer names, where another one stands, which a person named
    answer_position: int | None = None


def exchange(effect: Effect, tried: list[Attempt]) -> Exchange:
    """Arguments from the winning plan, result from the answer that stands; one query for both bodies."""
    answered = next((attempt for attempt in reversed(tried) if attempt.acknowledged_mark), tried[-1] if tried else None)
    answer = answered.answer_position if answered is not None else None
    wanted = [position for position in (effect.plan_position, answer) if position is not None]
    texts = bodies.texts(effect.project_id, wanted) if wanted else {}
    result = Exchange(answer_position=answer)
    if effect.plan_position is not None:
        plan = gists.parsed(texts.get(effect.plan_position, ""))
        result.plan_erased = effect.plan_position not in texts
        result.arguments = bodies.arguments(plan.get("arguments"))
        result.why = plan["why"] if isinstance(plan.get("why"), str) else ""
    if answer is not None:
        said = gists.parsed(texts.get(answer, ""))
        result.result_erased = answer not in texts
        if said.get("result") is not None:
            result.result = bodies.excerpt(bodies.shown(said["result"]))
        result.detail = said["detail"] if isinstance(said.get("detail"), str) else ""
        named = said.get("external_reference")
        if effect.resolution == "happened" and isinstance(named, str) and named != effect.external_reference:
            result.reference = named
    return result


def related(effect: Effect, upto: int = MAX_POSITION) -> tuple[list[Effect], list[Effect]]:
    """The effects planned to undo this one, and those of its session that name it as parent. One query, two indexes.

    Those that were opened up to the position `upto`.
    """
    undoing = Effect.objects.filter(compensates=effect.id)
    under = Effect.objects.filter(session=effect.session_id, parent_effect=effect.id).exclude(compensates=effect.id)
    if upto < MAX_POSITION:
        undoing, under = undoing.filter(opened_position__lte=upto), under.filter(opened_position__lte=upto)
    found = list(undoing.union(under, all=True).order_by("opened_position")[: 2 * RELATED])
    return (
        [one for one in found if one.compensates_id == effect.id][:RELATED],
        [one for one in found if one.compensates_id != effect.id][:RELATED],
    )


def elsewhere(effect: Any) -> list[same_calls.Link]:
    """Effects of other sessions with the same call, named with this one because nobody knew of one of the two."""
    return same_calls.of_effects([effect.id]).get(effect.id, [])[:RELATED] if effect.named else []


def gates(effect: Effect) -> list[Gate]:
    """Every gate it was held at, the latest first, with the status as of now; of an imported one, at the cut."""
    if effect.imported:
        return history.gates_of(effect)
    if not effect.leave_ref and effect.judged not in ("ask", "deny"):
        return []  # nothing of it was ever held at a gate
    found = list(Gate.objects.filter(effect=effect.id).order_by("-opened_position")[:RELATED])
    now = now_us()
    for gate in found:
        gate.status = current_status(gate, now)
    return found


def judged(effect: Effect, tried: list[Attempt], now: int) -> tuple[Case, Verdict]:
    """What is known of the effect, and what the verdict table says of it.

    Where nothing is in doubt its row says all, and whoever holds a lease or stops it makes no difference to a reader.
    """
    doubtful = any(one.outcome in ("", "unknown") and one.failure_reason != "rejected" for one in tried)
    if effect.resolution or doubtful or cases.is_in_doubt(effect):
        return resolutions.judged(effect, now)
    case = Case(
        state=effect.state,
        outcome=effect.outcome,
        failure_reason=effect.failure_reason,
        leave=effect.leave,
        leave_basis=effect.leave_basis,
        leave_until_us=effect.leave_until_us,
        attempts=effect.attempt_count,
        means=declared.tool(effect.project_id, effect.tool).means,
    )
    return case, verdicts.verdict(case, now)


class Compared(NamedTuple):
    """Whether what ran is what was shown: a word, whether it stands out, and whose word it is."""

    word: str
    differs: bool
    why: str


def compared(effect: Effect, tried: list[Attempt], held: list[Gate], found: list[str]) -> Compared:
    """What people were shown, and what was released, by their digests. `found` are the breaches in words."""
    if breaches.WORDS["key_reuse"] in found:
        return Compared("DIFFERENT", True, "another intent was reported under its key")
    if not tried:
        return Compared("", False, "nothing of it has run")
    if effect.leave == "bypassed":
        return Compared("NOT SHOWN", True, "it ran without approval")
    if any(gate.status == "used" for gate in held):
        return Compared("equal", False, "what people were shown is what was released")
    if all(one.lane == "command" for one in tried):
        return Compared("equal", False, "to the plan, at each dispatch; nobody was asked")
    return Compared("", False, "not compared: its dispatch was reported after the event")


def artifacts(effect: Effect, upto: int = MAX_POSITION) -> list[Artifact]:
    """The newest artifacts that name this effect, of those that were opened up to the position `upto`."""
    named = Artifact.objects.filter(effect=effect.id, project=effect.project_id)
    return list(named.filter(opened_position__lte=upto).order_by("-opened_position")[:RELATED])
