"""Data of the effect page.

Effect, neighbors, attempts, entries, arguments and result.
"""

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

FACTS: Final = 50  # entries on one page
RELATED: Final = 20
ATTEMPTS: Final = 50


def effect(project: Project, effect_id: UUID) -> Effect | None:
    """Load the effect with all that its page names; None if it is not in the project.

    `before_id`, `after_id`: its neighbors in the session, None at the ends.
    `in_incident`: as for a session.
    `again`: whether a similar effect ran.
    `has_claims`: whether agents without the right to report for it did so.
    `named`: whether the same call of another session is linked with it.
    """
    row: Effect | None = next(iter(_EFFECT.rows(project=project.id, effect=effect_id)), None)
    # A report may name any id as parent. Effects of other projects are never shown.
    if (
        row is not None
        and row.parent_effect is not None
        and row.parent_effect.project_id != project.id
    ):
        row.parent_effect = None
    return row


def _effect(project: UUID, effect: UUID) -> "QuerySet[Any]":
    neighbors = Effect.objects.filter(session=OuterRef("session"))
    before = neighbors.filter(opened_position__lt=OuterRef("opened_position")).order_by(
        "-opened_position"
    )
    after = neighbors.filter(opened_position__gt=OuterRef("opened_position")).order_by(
        "opened_position"
    )
    claims = Entry.objects.filter(IS_A_CLAIM)
    joined = (
        "session",
        "agent",
        "task",
        "repository",
        "parent_effect",
        "compensates",
        "session__owner",
        "session__on_behalf_of",
    )
    return (
        Effect.objects.filter(project=project, id=effect)
        .select_related(*joined)
        .annotate(
            before_id=Subquery(before.values("id")[:1]), after_id=Subquery(after.values("id")[:1])
        )
        .annotate(in_incident=incident_page.is_member("effect"), again=repeating.is_again())
        .annotate(not_compared=repeating.not_compared("effect"))
        .annotate(
            has_claims=Exists(claims.filter(session=OuterRef("session"), effect=OuterRef("id")))
        )
        .annotate(named=same_calls.is_named(**same_calls.OF_EFFECT))
    )


_EFFECT: Final = Compiled(_effect, project=UUID, effect=UUID)


def attempts(effect: Effect) -> tuple[list[Attempt], int]:
    """Return the newest attempts with the deciding one in order, and their number."""
    rows = Attempt.objects.filter(effect=effect).order_by("-number")
    newest = list(rows[: ATTEMPTS + 1])
    if len(newest) <= ATTEMPTS:
        return newest[::-1], len(newest)
    del newest[ATTEMPTS:]
    if not any(attempt.acknowledged_mark for attempt in newest):
        newest += rows.filter(number__lt=newest[-1].number).exclude(acknowledged_mark="")[:1]
    return newest[::-1], rows.count()


def tool(effect: Effect) -> Tool | None:
    """Return the declaration of its tool; None means opaque and mutating."""
    return Tool.objects.filter(project=effect.project_id, name=effect.tool).first()


@dataclass(slots=True)
class Fact:
    """One journal entry about the effect.

    `body` is agent text, None if erased or never stored.
    """

    entry: Entry
    body: Excerpt | None
    erased_at_us: int | None
    erasure_reason: str
    lane: str  # the lane explained in words
    known: bool  # False for a well-formed kind that this version does not know

    @property
    def brought(self) -> bool:
        """Return True if the entry was imported with a bundle."""
        return brought.was_brought(self.entry.source)

    @property
    def violates(self) -> bool:
        """Return True for violations, which only Gatebook records.

        Agents cannot report them.
        """
        return self.entry.lane == "system" and self.entry.kind.startswith("integrity.")


@dataclass(slots=True)
class Facts:
    """A page of entries, newest first.

    `older` and `newer` are positions of neighboring pages.
    """

    rows: list[Fact] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    at: int | None = None


_REPORTED: Final = frozenset(
    {
        "effect.planned",
        "effect.dispatched",
        "effect.acknowledged",
        "effect.failed",
        "effect.probed",
        "effect.superseded",
        "artifact.recorded",
        "decision.recorded",
        "decision.concluded",
    }
)
# Known kinds by lane: an agent's report of a system kind changes nothing.
KNOWN_KINDS: Final[dict[str, frozenset[str]]] = {
    "evidence": _REPORTED,
    "claim": _REPORTED,
    "command": _REPORTED | {"gate.cancelled"},
    "system": frozenset(
        {
            "gate.requested",
            "gate.voted",
            "gate.ruled",
            "gate.extended",
            "gate.used",
            "gate.returned",
            "gate.revoked",
            "gate.expired",
            "gate.lapsed",
            "gate.cancelled",
            "effect.named",
            "effect.granted",
            "effect.withheld",
            "effect.replanned",
            "effect.resolved",
            "effect.failed",
            "exemption.used",
            "hold.set",
            "hold.lifted",
            "access.viewed",
            "erasure.executed",
            "integrity.conflict",
            "integrity.violation",
            "integrity.fenced",
        }
    ),
}


def facts(effect: Effect, before: int | None = None, at: int | None = None) -> Facts:
    """Return a page of the entries of `effect`.

    Newest, below `before`, or from `at` down. One query.
    """
    entries = _entries(effect.project_id).filter(effect=effect.id)
    if at is not None:
        entries = entries.filter(position__lte=at)
    elif before is not None:
        entries = entries.filter(position__lt=before)
    entries_read = list(entries.order_by("-position")[: FACTS + 1])
    rows = [_fact(entry) for entry in entries_read[:FACTS]]
    return Facts(
        rows,
        older=rows[-1].entry.position if len(entries_read) > FACTS else None,
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
    """Return the text of an entry as a list.

    [None] if erased, [] if the entry does not exist.
    """
    entry = Entry.objects.filter(project=effect.project_id, effect=effect.id, position=position)
    return list(entry.values_list("body__text", flat=True))


def plan_at(effect: Effect, position: int) -> dict[str, Any] | None:
    """Return the plan of `effect` at `position` as JSON.

    None if it was erased or is not a plan.
    """
    stored = stored_bodies(effect, position)
    return gists.parsed(stored[0]) if stored and stored[0] is not None else None


@dataclass(slots=True)
class Exchange:
    """Arguments and result of the call. All of it is agent text."""

    arguments: list[Argument] = field(default_factory=list)
    why: str = ""  # the agent's claim
    plan_erased: bool = False
    result: Excerpt | None = None
    result_erased: bool = False
    detail: str = ""  # of a failure
    reference: str = ""  # reference in the answer that differs from the one in the resolution
    answer_position: int | None = None


def exchange(effect: Effect, tried: list[Attempt]) -> Exchange:
    """Return the arguments of the valid plan and the deciding result.

    One query for both bodies.
    """
    deciding_attempt = next(
        (attempt for attempt in reversed(tried) if attempt.acknowledged_mark),
        tried[-1] if tried else None,
    )
    answer = deciding_attempt.answer_position if deciding_attempt is not None else None
    positions = [position for position in (effect.plan_position, answer) if position is not None]
    texts = bodies.texts(effect.project_id, positions) if positions else {}
    result = Exchange(answer_position=answer)
    if effect.plan_position is not None:
        plan = gists.parsed(texts.get(effect.plan_position, ""))
        result.plan_erased = effect.plan_position not in texts
        result.arguments = bodies.arguments(plan.get("arguments"))
        result.why = plan["why"] if isinstance(plan.get("why"), str) else ""
    if answer is not None:
        answer_body = gists.parsed(texts.get(answer, ""))
        result.result_erased = answer not in texts
        if answer_body.get("result") is not None:
            result.result = bodies.excerpt(bodies.shown(answer_body["result"]))
        result.detail = answer_body["detail"] if isinstance(answer_body.get("detail"), str) else ""
        reference = answer_body.get("external_reference")
        if (
            effect.resolution == "happened"
            and isinstance(reference, str)
            and reference != effect.external_reference
        ):
            result.reference = reference
    return result


def related(effect: Effect, upto: int = MAX_POSITION) -> tuple[list[Effect], list[Effect]]:
    """Return effects planned to undo this one, and its children in the session.

    One query, two indexes.

    Only effects opened up to the position `upto`.
    """
    compensations = Effect.objects.filter(compensates=effect.id)
    children = Effect.objects.filter(session=effect.session_id, parent_effect=effect.id).exclude(
        compensates=effect.id
    )
    if upto < MAX_POSITION:
        compensations, children = (
            compensations.filter(opened_position__lte=upto),
            children.filter(opened_position__lte=upto),
        )
    rows = list(compensations.union(children, all=True).order_by("opened_position")[: 2 * RELATED])
    return (
        [row for row in rows if row.compensates_id == effect.id][:RELATED],
        [row for row in rows if row.compensates_id != effect.id][:RELATED],
    )


def elsewhere(effect: Any) -> list[same_calls.Link]:
    """Return linked effects of other sessions with the same call."""
    return same_calls.of_effects([effect.id]).get(effect.id, [])[:RELATED] if effect.named else []


def gates(effect: Effect) -> list[Gate]:
    """Return its gates, newest first, with their current status.

    Imported gates have the status recorded in the bundle.
    """
    if effect.imported:
        return history.gates_of(effect)
    if not effect.leave_ref and effect.judged not in ("ask", "deny"):
        return []  # it never had a gate
    rows = list(Gate.objects.filter(effect=effect.id).order_by("-opened_position")[:RELATED])
    now = now_us()
    for gate in rows:
        gate.status = current_status(gate, now)
    return rows


def judged(effect: Effect, tried: list[Attempt], now: int) -> tuple[Case, Verdict]:
    """Return the verdict input of the effect and its verdict.

    Without an uncertain attempt its row is enough: leases and stops do not change the page.
    """
    doubtful = any(
        attempt.outcome in ("", "unknown") and attempt.failure_reason != "rejected"
        for attempt in tried
    )
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
    """Whether the effect ran as reviewed.

    A word, whether it is highlighted, and the reason.
    """

    word: str
    differs: bool
    why: str


def compared(
    effect: Effect, tried: list[Attempt], held: list[Gate], violations: list[str]
) -> Compared:
    """Compare by digest what was reviewed with what was dispatched."""
    if breaches.WORDS["key_reuse"] in violations:
        return Compared("DIFFERENT", True, "a different intent was reported under the same key")
    if not tried:
        return Compared("", False, "not run yet")
    if effect.leave == "bypassed":
        return Compared("NOT REVIEWED", True, "no one reviewed this before it ran")
    if any(gate.status == "used" for gate in held):
        return Compared("equal", False, "ran exactly as reviewers were shown")
    if all(attempt.lane == "command" for attempt in tried):
        return Compared("equal", False, "ran exactly as planned; no approval was needed")
    return Compared("", False, "not compared: the dispatch was reported after the event")


def artifacts(effect: Effect, upto: int = MAX_POSITION) -> list[Artifact]:
    """Return the newest artifacts of this effect opened up to the position `upto`."""
    rows = Artifact.objects.filter(effect=effect.id, project=effect.project_id)
    return list(rows.filter(opened_position__lte=upto).order_by("-opened_position")[:RELATED])
