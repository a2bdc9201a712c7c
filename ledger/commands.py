"""Commands on effects, and the steps that approvals/plan_command.py and dispatch_command.py take.

A command compares the stored state, appends its journal entry and folds that into the effect.
Every function must run inside the endpoint's transaction. A refusal that leaves a trace is
returned, so that the endpoint commits it; an exception leaves nothing. `RepeatedKey` means that the
journal already holds the command's key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import connection

from db import raw_sql
from db.ids import derive_uuid
from journal import entries
from journal.entries import AppendStatus, Origin, RepeatedKey
from journal.order_keys import is_command_mark, make_given_up_key
from ledger import circuit_breakers, permissions, refusals
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.permissions import Grant
from ledger.refusals import Refusal
from ledger.states import OPEN_STATES
from ledger.store import reader, writer
from ledger.store.effect_rows import AttemptRow, EffectRow, row_columns, vendor_id
from ledger.store.reader import load_attempts
from ledger.verdicts import evaluate, verdict_inputs
from sessions import heartbeats, writers
from sessions.writers import StaleEpoch, WriterStatus


@dataclass(frozen=True, slots=True)
class Plan:
    """An intention, parsed and resolved by the endpoint."""

    session: UUID
    effect_key: str
    tool: str
    intent_digest: str
    values: Mapping[str, Any]  # the other columns that a plan sets, by name
    # False: the caller has already decided about open effects of the same intent.
    is_guarded: bool = True


@dataclass(slots=True)
class CommandResult:
    """The result of a command; `refusal` has a code of docs/reference/api.md."""

    effect: EffectRow
    status: int = 200
    refusal: Refusal | None = None
    created: bool = False
    attempt: AttemptRow | None = None
    open_effect: UUID | None = None
    position: int = 0  # of the plan's or dispatch's entry
    same_calls: tuple[UUID, ...] = ()  # effects of other sessions that may have done the same


_PLANNED_LIST: Final = ", ".join(row_columns(EffectRow))


@dataclass(frozen=True, slots=True)
class PlannedEffect:
    """The effect of a plan as it is stored, locked. `row` is None for a new effect."""

    id: UUID
    row: EffectRow | None = None
    is_undecided: bool = True  # permission for its next attempt was not even requested yet
    requests_permission: bool = True  # this plan requests permission, if it may be recorded
    open_effect: UUID | None = None  # the effect to settle first

    @property
    def is_repeated(self) -> bool:
        """True if an earlier plan was accepted."""
        return self.row is not None and is_command_mark(self.row.planned_mark)


def load_planned_effect(plan: Plan, now_us: int) -> PlannedEffect:
    """Lock the effect of a plan and the open effects of its intent. One query for a new effect.

    The caller must have locked the session row, so that two plans of one intent see each other.
    """
    identity = derive_uuid(plan.session, plan.effect_key)
    row, others = _load_related(identity, plan)
    ambiguous = _find_open_effect(row, others, plan, now_us) if plan.is_guarded else None
    if row is None:
        return PlannedEffect(identity, None, True, ambiguous is None, ambiguous)
    is_undecided, unsettled = is_permission_needed(row, now_us), False
    if not is_command_mark(row.planned_mark):
        return PlannedEffect(identity, row, is_undecided, ambiguous is None, ambiguous)
    needs_permission = is_undecided
    if is_same_intent(row, plan) and (verdict_inputs.is_in_doubt(row) or row.state == "failed"):
        needs_permission, unsettled = _retry_status(row, now_us)
    # Settle first what may have happened, including attempts before a rejected last one.
    open_effect = identity if unsettled else ambiguous if needs_permission else None
    return PlannedEffect(
        identity, row, is_undecided, needs_permission and ambiguous is None, open_effect
    )


def is_same_intent(row: EffectRow, plan: Plan) -> bool:
    """False if the effect key was used for another tool or other arguments."""
    return not row.planned_mark or row.intent_digest == plan.intent_digest


def is_permission_needed(row: EffectRow, now_us: int) -> bool:
    """True if the next attempt needs permission that is not even requested yet.

    A denial applies to the effect, including a denial of an attempt after the first.
    """
    is_expired = row.permission == "granted" and permissions.is_permission_expired(row, now_us)
    is_decided = row.permission in ("granted", "pending", "denied") and not is_expired
    rejected = row.state == "failed" and row.failure_reason == "rejected" and not is_decided
    rejected = rejected and not effect_state.is_retry_exhausted(row)
    return rejected or (row.state == "planned" and (row.permission == "none" or is_expired))


def _retry_status(row: EffectRow, now_us: int) -> tuple[bool, bool]:
    """Return whether to request permission, and whether any attempt may have happened.

    Follows the verdict table.
    """
    evaluation = evaluate.evaluate_effects(row.project_id, [row], now_us, None)[row.id]
    decision = evaluation.verdict
    # Row 11 is about the compensation, not about this effect.
    needs_permission = decision.row != "11" and (
        decision.needs_new_permission or decision.answer == "ask"
    )
    return needs_permission, bool(evaluation.in_doubt)


def give_up_attempt(row: EffectRow, attempts: dict[int, AttemptRow], received_us: int) -> None:
    """Stop waiting for a report, so that permission applies to the next attempt.

    The outcome stays unknown, and any later report takes precedence over this entry.
    """
    last = attempts[row.attempt_count]
    if last.failed_mark:
        return
    event_id = entries.keyed_digest("given_up", str(row.id), str(last.number))
    facts = entries.dump_sorted_json({"reason": "error", "given_up": True})
    appended = entries.record_system_entry(
        row.project_id,
        "effect.failed",
        event_id=event_id,
        text=entries.dump_sorted_json(
            {"effect": row.id, "attempt": last.number, "reason": "error", "given_up": True}
        ),
        received_us=received_us,
        facts=facts,
        session=row.session_id,
        effect=row.id,
        attempt=last.number,
    )
    given_up = Fact(
        kind="effect.failed",
        mark=make_given_up_key(event_id),
        lane="system",
        key=event_id,
        position=appended.position,
        received_us=received_us,
        told_us=received_us,
        attempt=last.number,
        values={"reason": "error"},
    )
    writer.apply_fact(row, attempts, given_up)


def record_first_plan(
    origin: Origin,
    plan: Plan,
    effect: PlannedEffect,
    columns: Mapping[str, Any],
    grant: Grant | None,
) -> CommandResult:
    """Record the first accepted plan of an effect, which may have been reported before.

    `columns` are those of the policy result. Only `grant` releases the effect.
    """
    facts = permissions.plan_facts(plan.intent_digest, {**plan.values, **columns}, grant)
    draft = origin.draft(
        "effect.planned",
        facts=entries.dump_sorted_json(facts),
        session=plan.session,
        effect=effect.id,
    )
    position = origin.append_draft(draft)
    row = effect.row
    if row is None:
        row = EffectRow(
            id=effect.id,
            project_id=origin.project,
            session_id=plan.session,
            agent_id=origin.agent,
            effect_key=plan.effect_key,
            opened_position=position,
            received_us=origin.received_us,
            changed_us=origin.received_us,
        )
    attempts = load_attempts([row.id])[row.id] if row.attempt_count else {}
    values = {"tool": plan.tool, "intent_digest": plan.intent_digest, **plan.values, **columns}
    if grant is not None:
        row.permission, row.permission_basis, row.permission_ref, row.permission_until_us = grant
    fact = make_fact(origin, "effect.planned", position, 1, values)
    writer.apply_fact(row, attempts, fact)
    created = effect.row is None
    return CommandResult(
        row,
        201 if created else 200,
        created=created,
        open_effect=effect.open_effect,
        position=position,
    )


def record_repeated_plan(origin: Origin, row: EffectRow) -> int | None:
    """Record a repeated plan as evidence, because the accepted plan stays in force.

    Return the position of its entry; None for a repeated delivery that was decided before.
    """
    origin.lane = "evidence"
    draft = origin.draft("effect.planned", session=row.session_id, effect=row.id)
    appended = entries.append_entries([draft], origin.received_us)[0]
    if appended.status is AppendStatus.CONFLICT:
        raise RepeatedKey
    is_decided = appended.status is AppendStatus.DUPLICATE and bool(row.permission_basis)
    return None if is_decided else appended.position


def replan_effect(row: EffectRow, position: int, columns: Mapping[str, Any]) -> None:
    """Set the columns of the plan at `position`, and archive the replaced ones.

    Values outside the intent (free text, preconditions) are replaced by those of this plan. The
    caller stores the row.
    """
    replaced = effect_state.plan_values(row)
    row.plan_position, row.replanned = position, True
    for name, value in columns.items():
        setattr(row, name, value)
    if effect_state.plan_values(row) != replaced:
        effect_state.archive_replaced_plan(row, replaced, position)


def acknowledge_attempt(
    origin: Origin,
    effect: UUID,
    *,
    attempt: int,
    outcome: str,
    external_reference: str,
) -> CommandResult:
    """Record the outcome of an open attempt; a closed one gets late evidence (202)."""
    facts = {"outcome": outcome}
    values = {"outcome": outcome, "external_reference": external_reference}
    return _answer_attempt(origin, effect, "effect.acknowledged", attempt, facts, values)


def fail_attempt(origin: Origin, effect: UUID, *, attempt: int, reason: str) -> CommandResult:
    """Record a failed attempt: rejected (nothing happened), timeout or error."""
    return _answer_attempt(
        origin, effect, "effect.failed", attempt, {"reason": reason}, {"reason": reason}
    )


def find_supersede_refusal(row: EffectRow, now_us: int) -> Refusal | None:
    """Return why a locked effect cannot be withdrawn: it may have happened. None if it can be."""
    is_rejected = row.state == "failed" and row.failure_reason == "rejected"
    if row.state not in ("planned", "superseded") and not is_rejected:
        return refusals.refuse_wrong_state(row)
    if is_rejected and row.attempt_count > 1 and evaluate.may_have_happened(row, now_us):
        return refusals.refuse_wrong_state(row)
    return None


def record_superseded(
    origin: Origin, row: EffectRow, attempts: dict[int, AttemptRow]
) -> CommandResult:
    """Record that a locked effect was withdrawn."""
    position = _append(origin, "effect.superseded", row, None, {})
    writer.apply_fact(row, attempts, make_fact(origin, "effect.superseded", position, 1, {}))
    return CommandResult(row, 200)


def _answer_attempt(
    origin: Origin,
    effect: UUID,
    kind: str,
    attempt: int,
    facts: dict[str, Any],
    values: dict[str, Any],
) -> CommandResult:
    row, attempts = lock_effect(origin, effect)
    stale = find_lost_lease(origin, row, kind, attempt)
    current = attempts.get(attempt)
    if current is None:
        return CommandResult(row, 409, refusals.refuse_undispatched_report(attempt))
    is_late = not current.is_open or stale is not None
    if is_late:
        origin.lane = "evidence"
    position = _append(origin, kind, row, attempt, facts)
    writer.apply_fact(row, attempts, make_fact(origin, kind, position, attempt, values))
    if stale is not None:
        rejection = writers.build_fenced_entry(
            origin, row.session_id, stale, kept=True, effect=row.id, attempt=attempt, kind=kind
        )
        entries.append_entries([rejection], origin.received_us)
    if not is_late:
        went_well = kind == "effect.acknowledged" and values["outcome"] == "ok"
        circuit_breakers.count_outcome(
            row, attempts[attempt], went_well=went_well, now_us=origin.received_us
        )
        if origin.lease_epoch is not None:
            # Last, because of the lock order that sessions/heartbeats.py describes.
            heartbeats.record_progress(origin.project, row.session_id, task=row.task_id)
    return CommandResult(row, 202 if is_late else 200, attempt=attempts[attempt])


def _append(
    origin: Origin, kind: str, row: EffectRow, attempt: int | None, facts: dict[str, Any]
) -> int:
    draft = origin.draft(
        kind,
        facts=entries.dump_sorted_json(facts),
        session=row.session_id,
        effect=row.id,
        attempt=attempt,
    )
    return origin.append_draft(draft)


def record_refusal(origin: Origin, row: EffectRow, refusal: str) -> None:
    """Record a refused command as evidence; its key stays unused."""
    entries.record_system_entry(
        row.project_id,
        "integrity.conflict",
        event_id=entries.keyed_digest("refused", refusal, origin.source, origin.key, origin.text),
        text=origin.text,
        received_us=origin.received_us,
        actor=origin.actor,
        facts=entries.dump_sorted_json({"refused": refusal}),
        session=row.session_id,
        effect=row.id,
    )


def _load_related(identity: UUID, plan: Plan) -> tuple[EffectRow | None, list[EffectRow]]:
    """Load the effect and open effects of its intent and session, in one query."""
    lock = " FOR UPDATE" if connection.vendor == "postgresql" else ""
    states = ", ".join(f"'{state}'" for state in OPEN_STATES)
    records = raw_sql.fetch_rows(
        # The condition repeats that of the index on unsettled intents.
        f"SELECT {_PLANNED_LIST} FROM ledger_effect WHERE id = %s"
        f" OR (session_id = %s AND intent_digest = %s"
        f" AND (state IN ({states}) OR outcome = 'unknown'))"
        f" ORDER BY id{lock}",
        [vendor_id(identity), vendor_id(plan.session), plan.intent_digest],
    )
    rows = [reader.effect_from_row(values) for values in records]
    stored = next((row for row in rows if row.id == identity), None)
    return stored, [row for row in rows if row.id != identity]


def _find_open_effect(
    stored: EffectRow | None, related: list[EffectRow], plan: Plan, now_us: int
) -> UUID | None:
    """Return the effect of the same intent that must be settled first, if any.

    Effects that may have happened come first, then those with permission, then the oldest.
    An effect that was only planned waits for earlier ones and never for later ones. So of several
    effect keys for one intent exactly one proceeds, and no two wait for each other.
    """
    turn = plan.values.get("turn") or ""
    candidates: list[tuple[int, int, UUID]] = []
    for row in related:
        needs_permission = row.state == "planned" and is_permission_needed(row, now_us)
        if (turn and row.turn == turn) or (
            needs_permission and stored is not None and stored.opened_position < row.opened_position
        ):
            continue
        is_in_doubt = verdict_inputs.is_in_doubt(row)
        if row.state == "failed" and row.attempt_count > 1 and not is_in_doubt:
            # An attempt before the last one, which was rejected.
            is_in_doubt = evaluate.may_have_happened(row, now_us)
        is_retry = (
            row.state == "failed"
            and row.permission in ("granted", "pending")
            and not permissions.is_permission_expired(row, now_us)
        )
        if is_in_doubt or is_retry or row.state == "planned":
            candidates.append(
                (0 if is_in_doubt else 2 if needs_permission else 1, row.opened_position, row.id)
            )
    return min(candidates)[2] if candidates else None


def planning_agent(row: EffectRow) -> UUID | None:
    """Return the agent that planned an effect; None while its plan has not arrived."""
    return row.agent_id if row.planned_mark else None


def find_lost_lease(origin: Origin, row: EffectRow, kind: str, attempt: int) -> StaleEpoch | None:
    """Return the lost lease of an agent that reports on its own attempt, or None.

    Raises WriterNotAllowed for the attempt of another agent.
    """
    standing = writers.load_writer_status(origin, row.session_id, row.task_id, planning_agent(row))
    stale = writers.find_outdated_epoch(
        origin.project, row.session_id, origin.lease_epoch, row.task_id
    )
    if standing is WriterStatus.SPEAKS and stale is None:
        return None
    if not reader.is_attempt_by(origin.actor, row.id, attempt):
        standing = (
            WriterStatus.OTHER_AGENT
            if standing is WriterStatus.OTHER_AGENT
            else WriterStatus.LEASE_LOST
        )
        writers.reject_writer(
            origin, row.session_id, kind, standing, task=row.task_id, effect=row.id, attempt=attempt
        )
    if stale is None and standing is WriterStatus.LEASE_LOST:
        stale = StaleEpoch(
            origin.lease_epoch,
            writers.load_latest_epoch(origin.project, row.session_id, row.task_id) or 0,
        )
    return stale


def lock_effect(origin: Origin, effect: UUID) -> tuple[EffectRow, dict[int, AttemptRow]]:
    """Lock an effect of the project, load its attempts. Raises LookupError."""
    row = reader.lock_effects([effect]).get(effect)
    if row is None or row.project_id != origin.project:
        raise LookupError(effect)
    attempts = load_attempts([effect]).get(effect, {}) if row.attempt_count else {}
    return row, attempts


def make_fact(
    origin: Origin,
    kind: str,
    position: int,
    attempt: int,
    values: dict[str, Any],
) -> Fact:
    """Build the fact of a command about an attempt; its entry is at `position`."""
    return Fact(
        kind=kind,
        mark=origin.mark,
        lane=origin.lane,
        key=origin.key,
        position=position,
        received_us=origin.received_us,
        told_us=origin.told_us,
        attempt=attempt,
        imports=origin.imports,
        lease_epoch=origin.lease_epoch,
        agent=origin.agent,
        values=values,
    )
