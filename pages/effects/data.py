"""Data of the effect page.

Effect, neighbors, attempts, entries, arguments and result.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Substr

from accounts.models import Project
from approvals import exemptions
from approvals.gates.gates import current_gate_status
from approvals.models import Exemption, Gate
from approvals.review import call_titles
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from display import effect_runs, entry_bodies
from display.effect_headline import is_ended_unrun
from display.entry_bodies import Argument, Excerpt
from display.keyset_pagination import MAX_POSITION
from hooks.models import EventMatch
from investigation.bundles import imported_gates
from investigation.fulltext import duplicate_index
from journal import imported_entries as journal_imported
from journal import summaries
from journal.models import LANES, Entry, Erasure
from ledger import resolutions, same_calls
from ledger import violations as ledger_violations
from ledger.models import Attempt, Effect, Tool
from ledger.partial_indexes import IS_A_CLAIM
from ledger.tools import cache
from ledger.tools.argument_values import list_field_values
from ledger.verdicts import evaluate, table, verdict_inputs
from ledger.verdicts.table import Verdict, VerdictInput
from pages.incidents import data
from sessions.models import Artifact

ENTRIES_PER_PAGE: Final = 50  # entries on one page
MAX_RELATED: Final = 20
MAX_ATTEMPTS: Final = 50


def load_effect_for_page(project: Project, effect_id: UUID) -> Effect | None:
    """Load the effect with all that its page names; None if it is not in the project.

    `before_id`, `after_id`: its neighbors in the session, None at the ends.
    `in_incident`: as for a session.
    `again`: whether a similar effect ran.
    `has_claims`: whether agents without the right to report for it did so.
    `has_host_matches`: whether an event of a code host may be about it.
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


def _effect_query(project: UUID, effect: UUID) -> "QuerySet[Any]":
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
        effect_runs.annotate_runs(Effect.objects.filter(project=project, id=effect))
        .select_related(*joined)
        .annotate(
            before_id=Subquery(before.values("id")[:1]), after_id=Subquery(after.values("id")[:1])
        )
        .annotate(
            in_incident=data.incident_member_condition("effect"),
            again=duplicate_index.is_duplicate_condition(),
        )
        .annotate(not_compared=duplicate_index.is_unindexed_condition("effect"))
        .annotate(
            has_claims=Exists(claims.filter(session=OuterRef("session"), effect=OuterRef("id")))
        )
        .annotate(has_host_matches=Exists(EventMatch.objects.filter(effect=OuterRef("id"))))
        .annotate(named=same_calls.has_same_call(**same_calls.OF_EFFECT))
    )


_EFFECT: Final = CompiledQuerySet(_effect_query, project=UUID, effect=UUID)


def load_attempts_for_page(effect: Effect) -> tuple[list[Attempt], int]:
    """Return the newest attempts with the deciding one in order, and their number."""
    rows = Attempt.objects.filter(effect=effect).order_by("-number")
    newest = list(rows[: MAX_ATTEMPTS + 1])
    if len(newest) <= MAX_ATTEMPTS:
        return newest[::-1], len(newest)
    del newest[MAX_ATTEMPTS:]
    if not any(attempt.acknowledged_mark for attempt in newest):
        newest += rows.filter(number__lt=newest[-1].number).exclude(acknowledged_mark="")[:1]
    return newest[::-1], rows.count()


def load_tool_declaration(effect: Effect) -> Tool | None:
    """Return the declaration of its tool; None means opaque and mutating."""
    return Tool.objects.filter(project=effect.project_id, name=effect.tool).first()


@dataclass(slots=True)
class EffectEntry:
    """A journal entry of the effect; `body` is agent text, None if absent."""

    entry: Entry
    body: Excerpt | None
    erased_at_us: int | None
    erasure_reason: str
    expired_by: int | None  # position of retention.expired
    lane: str  # the lane explained in words
    is_known_kind: bool  # False for a well-formed kind that this version does not know

    @property
    def is_imported(self) -> bool:
        """Return True if the entry was imported with a bundle."""
        return journal_imported.is_imported_source(self.entry.source)

    @property
    def violates(self) -> bool:
        """Return True for violations, which only Gatebook records, never agents."""
        return self.entry.lane == "system" and self.entry.kind.startswith("integrity.")


@dataclass(slots=True)
class EffectEntryPage:
    """Entries newest first; `older` and `newer` are positions of the next pages."""

    rows: list[EffectEntry] = field(default_factory=list)
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
        "span.recorded",
        "transcript.recorded",
        "transcript.contradicted",
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
            "gate.undone",
            "gate.commented",
            "gate.assigned",
            "gate.used",
            "gate.changes_requested",
            "gate.revoked",
            "gate.expired",
            "gate.expired_unused",
            "gate.cancelled",
            "effect.named",
            "effect.granted",
            "effect.withheld",
            "effect.replanned",
            "effect.resolved",
            "effect.confirmed",
            "effect.unconfirmed",
            "effect.failed",
            "exemption.used",
            "stop.set",
            "stop.lifted",
            "access.viewed",
            "erasure.executed",
            "retention.expired",
            "integrity.conflict",
            "integrity.violation",
            "integrity.fenced",
            "code_host.matched",
            "code_host.dismissed",
            "code_host.settled",
        }
    ),
}


def load_entry_page(
    effect: Effect, before: int | None = None, at: int | None = None
) -> EffectEntryPage:
    """Return entries of `effect`: newest, below `before`, or from `at`. One query."""
    entries = _entries_with_bodies(effect.project_id).filter(effect=effect.id)
    if at is not None:
        entries = entries.filter(position__lte=at)
    elif before is not None:
        entries = entries.filter(position__lt=before)
    entries_read = list(entries.order_by("-position")[: ENTRIES_PER_PAGE + 1])
    rows = [_effect_entry(entry) for entry in entries_read[:ENTRIES_PER_PAGE]]
    return EffectEntryPage(
        rows,
        older=rows[-1].entry.position if len(entries_read) > ENTRIES_PER_PAGE else None,
        newer=rows[0].entry.position if rows and (before is not None or at is not None) else None,
        at=at,
    )


def _entries_with_bodies(project: UUID) -> "QuerySet[Any]":
    return Entry.objects.filter(project=project).annotate(
        head=Substr("body__text", 1, entry_bodies.SHOWN_BYTES),
        octets=entry_bodies.Octets("body__text"),
        erased_at_us=F("erasure__erased_at_us"),
        erasure_reason=F("erasure__reason"),
        expired_by=F("erasure__expired_by"),
    )


def _effect_entry(entry: Any) -> EffectEntry:
    entry.received_us = journal_imported.original_received_us(
        entry.source, entry.facts, entry.received_us
    )
    return EffectEntry(
        entry,
        entry_bodies.excerpt_from_head(entry.head, entry.octets),
        entry.erased_at_us,
        entry.erasure_reason or "",
        entry.expired_by,
        LANES.get(entry.lane, entry.lane),
        entry.kind in KNOWN_KINDS[entry.lane],
    )


def load_stored_bodies(effect: Effect, position: int) -> list[str | None]:
    """Return an entry's text as a list: [None] if erased, [] if there is no entry."""
    entry = Entry.objects.filter(project=effect.project_id, effect=effect.id, position=position)
    return list(entry.values_list("body__text", flat=True))


def load_expiry(position: int) -> Erasure | None:
    """Return what records that a body expired; None if it did not. One query."""
    return Erasure.objects.filter(entry_id=position, expired_by__isnull=False).first()


def load_plan_at(effect: Effect, position: int) -> dict[str, Any] | None:
    """Return the plan of `effect` at `position` as JSON; None if erased or no plan."""
    stored = load_stored_bodies(effect, position)
    return summaries.parse_body(stored[0]) if stored and stored[0] is not None else None


@dataclass(slots=True)
class Exchange:
    """Arguments and result of the call. All of it is agent text."""

    arguments: list[Argument] = field(default_factory=list)
    why: str = ""  # the agent's claim
    plan_erased: bool = False
    expired: dict[int, Erasure] = field(default_factory=dict)  # by position of the entry
    declared_values: tuple[tuple[str, str], ...] = ()  # (search field, value)
    raised: tuple[tuple[str, str], ...] = ()  # (word, reason) of a raised severity
    result: Excerpt | None = None
    result_erased: bool = False
    detail: str = ""  # of a failure
    reference: str = ""  # reference in the answer that differs from the one in the resolution
    answer_position: int | None = None


def load_exchange(effect: Effect, tried: list[Attempt]) -> Exchange:
    """Return the valid plan's arguments and the deciding result.

    One query; another if a text is gone.
    """
    deciding_attempt = next(
        (attempt for attempt in reversed(tried) if attempt.acknowledged_mark),
        tried[-1] if tried else None,
    )
    answer = deciding_attempt.answer_position if deciding_attempt is not None else None
    positions = [position for position in (effect.plan_position, answer) if position is not None]
    texts = entry_bodies.load_body_texts(effect.project_id, positions) if positions else {}
    result = Exchange(answer_position=answer)
    gone = [position for position in positions if position not in texts]
    if gone:
        expired = Erasure.objects.filter(entry_id__in=gone, expired_by__isnull=False)
        result.expired = {row.entry_id: row for row in expired}
    if effect.plan_position is not None:
        plan = summaries.parse_body(texts.get(effect.plan_position, ""))
        result.plan_erased = effect.plan_position not in texts
        result.arguments = entry_bodies.split_arguments(plan.get("arguments"))
        declaration = cache.load_tool(effect.project_id, effect.tool)
        result.declared_values = list_field_values(declaration.fields, plan.get("arguments"))
        result.raised = declaration.raise_by_arguments(
            plan.get("arguments", {}) if plan else None
        ).raised.reasons
        result.why = plan["why"] if isinstance(plan.get("why"), str) else ""
    if answer is not None:
        answer_body = summaries.parse_body(texts.get(answer, ""))
        result.result_erased = answer not in texts
        if answer_body.get("result") is not None:
            result.result = entry_bodies.cut_excerpt(
                entry_bodies.json_as_text(answer_body["result"])
            )
        result.detail = answer_body["detail"] if isinstance(answer_body.get("detail"), str) else ""
        reference = answer_body.get("external_reference")
        if (
            effect.resolution == "happened"
            and isinstance(reference, str)
            and reference != effect.external_reference
        ):
            result.reference = reference
    return result


def load_related_effects(
    effect: Effect, upto: int = MAX_POSITION
) -> tuple[list[Effect], list[Effect]]:
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
    rows = list(
        compensations.union(children, all=True).order_by("opened_position")[: 2 * MAX_RELATED]
    )
    return (
        [row for row in rows if row.compensates_id == effect.id][:MAX_RELATED],
        [row for row in rows if row.compensates_id != effect.id][:MAX_RELATED],
    )


def load_same_calls(effect: Any) -> list[same_calls.SameCallLink]:
    """Return linked effects of other sessions with the same call."""
    return (
        same_calls.load_links_of_effects([effect.id]).get(effect.id, [])[:MAX_RELATED]
        if effect.named
        else []
    )


def load_gates_of_effect(effect: Effect) -> list[Gate]:
    """Return its gates, newest first, with current status; imported: as in the bundle."""
    if effect.imported:
        return imported_gates.list_imported_gates(effect)
    if not effect.permission_ref and effect.policy_outcome not in ("ask", "deny"):
        return []  # it never had a gate
    rows = list(Gate.objects.filter(effect=effect.id).order_by("-opened_position")[:MAX_RELATED])
    now = now_us()
    for gate in rows:
        gate.status = current_gate_status(gate, now)
    return rows


def load_case_and_verdict(
    effect: Effect, tried: list[Attempt], now: int
) -> tuple[VerdictInput, Verdict]:
    """Return the verdict input of the effect and its verdict.

    Without an uncertain attempt its row is enough: leases and stops do not change the page.
    """
    doubtful = any(
        attempt.outcome in ("", "unknown") and attempt.failure_reason != "rejected"
        for attempt in tried
    )
    if effect.resolution or doubtful or verdict_inputs.is_in_doubt(effect):
        return resolutions.evaluate_effect(effect, now)
    case = VerdictInput(
        state=effect.state,
        outcome=effect.outcome,
        failure_reason=effect.failure_reason,
        permission=effect.permission,
        permission_basis=effect.permission_basis,
        permission_until_us=effect.permission_until_us,
        attempts=effect.attempt_count,
        means=evaluate.load_call_declarations(effect.project_id, [effect])[effect.id].means,
    )
    return case, table.decide_verdict(case, now)


class ReviewComparison(NamedTuple):
    """Whether the effect ran as reviewed: a word, if it is highlighted, the reason."""

    word: str
    differs: bool
    why: str


def compare_with_review(
    effect: Effect, tried: list[Attempt], held: list[Gate], violations: list[str]
) -> ReviewComparison:
    """Compare by digest what was reviewed with what was dispatched."""
    if ledger_violations.VIOLATION_LABELS["key_reuse"] in violations:
        return ReviewComparison(
            "DIFFERENT", True, "a different intent was reported under the same key"
        )
    if not tried:
        return ReviewComparison("", False, "not run" if is_ended_unrun(effect) else "not run yet")
    if effect.permission == "bypassed":
        return ReviewComparison("NOT REVIEWED", True, "no one reviewed this before it ran")
    if any(gate.status == "used" for gate in held):
        return ReviewComparison("equal", False, "ran exactly as reviewers were shown")
    if all(attempt.lane == "command" for attempt in tried):
        return ReviewComparison("equal", False, "ran exactly as planned; no approval was needed")
    return ReviewComparison("", False, "not compared: the dispatch was reported after the event")


def load_effect_artifacts(effect: Effect, upto: int = MAX_POSITION) -> list[Artifact]:
    """Return the newest artifacts of this effect opened up to the position `upto`."""
    rows = Artifact.objects.filter(effect=effect.id, project=effect.project_id)
    return list(rows.filter(opened_position__lte=upto).order_by("-opened_position")[:MAX_RELATED])


def build_effect_title(effect: Effect, exchange: Exchange) -> str:
    """Return what the call is about, by the kind of its tool: a file, a branch. Agent text."""
    values = {
        argument.name: argument.value.text
        for argument in exchange.arguments
        if argument.name and argument.kind in ("text", "number")
    }
    title = call_titles.build_call_title(
        effect.tool, values, ref=effect.ref, resource=effect.resource
    )
    return " ".join(filter(None, (title.label, title.object)))


class UsedExemption(NamedTuple):
    """The exemption that permitted an effect, who granted it, and why ("" if erased)."""

    exemption: Exemption
    grantors: list[str]
    reason: str


def load_used_exemption(effect: Effect) -> UsedExemption | None:
    """Return the exemption that an effect's permission is from. At most three queries."""
    if effect.permission_basis != "exemption" or effect.imported:
        return None
    rows = Exemption.objects.filter(project=effect.project_id, id=UUID(effect.permission_ref))
    exemption = rows.first()
    if exemption is None:
        return None
    votes = exemption.votes.order_by("position").values_list("user__username", flat=True)
    reason = exemptions.load_exemption_reasons([exemption]).get(exemption.id, "")
    return UsedExemption(exemption, list(votes), reason)
