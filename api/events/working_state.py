"""Applies reported working state: checkpoints, decisions, handoffs, facts."""

from collections.abc import Iterable
from typing import Any, Final, Protocol
from uuid import UUID

import orjson

from accounts.origin import Origin
from api import handoff_references
from api.schemas import working_state as shapes
from api.strictjson.canonical_json import to_canonical_text
from api.views.working_state import checkpoint_size, handoff_size
from sessions import checkpoints, decisions, facts, handoffs, sessions


class ReportedWorkItem(Protocol):
    """One item of a batch with its session and journal position."""

    fields: Any
    origin: Origin
    session: UUID
    effect: UUID | None
    position: int


WORKING_STATE_KINDS: Final = frozenset(shapes.REPORTED)


def build_entry_facts(
    fields: Any, origin: Origin, session: UUID, sessions_by_reference: dict[str, UUID]
) -> tuple[UUID | None, str]:
    """Return the subject and the facts of an item's journal entry."""
    if isinstance(fields, shapes.ChangeFields | shapes.ReportedBranch | shapes.ReportedMerge):
        values = {name: getattr(fields, name) for name in fields.__struct_fields__}
        return None, sessions.dump_session_change_facts(values, sessions_by_reference)
    if isinstance(fields, shapes.CheckpointFields):
        return checkpoints.derive_checkpoint_id(session, origin), "{}"
    if isinstance(fields, shapes.ReportedDecision):
        return decisions.derive_decision_id(session, fields.decision), "{}"
    if isinstance(fields, shapes.ReportedConclusion):
        return decisions.derive_decision_id(session, fields.decision), orjson.dumps(
            {"status": fields.status}
        ).decode()
    if isinstance(fields, shapes.ReportedHandoff):
        waits_on = handoff_references.resolve_reported_waits(session, fields.waits_on)
        return handoffs.derive_handoff_id(session, fields.handoff), handoffs.dump_handoff_facts(
            handoff_size(fields), waits_on
        )
    if isinstance(fields, shapes.ReportedAcceptance):
        return handoffs.derive_handoff_id(session, fields.handoff), "{}"
    return None, "{}"


def apply_items(items: Iterable[ReportedWorkItem]) -> None:
    """Fold new items into their tables. Their sessions must be locked."""
    checkpoint_reports: list[checkpoints.CheckpointFact] = []
    decision_reports: list[decisions.DecisionFact] = []
    handoff_reports: list[handoffs.HandoffFact] = []
    fact_reports: list[facts.FactObservation] = []
    for item in items:
        fields, origin, session, position = item.fields, item.origin, item.session, item.position
        if isinstance(fields, shapes.CheckpointFields):
            values = {name: getattr(fields, name) for name in fields.__struct_fields__}
            checkpoint_reports.append(
                checkpoints.CheckpointFact(
                    session, origin, position, checkpoint_size(values), values
                )
            )
        elif isinstance(fields, shapes.ReportedDecision):
            decision_reports.append(
                decisions.DecisionFact(
                    session, fields.decision, origin, position, effect=item.effect
                )
            )
        elif isinstance(fields, shapes.ReportedConclusion):
            decision_reports.append(
                decisions.DecisionFact(session, fields.decision, origin, position, fields.status)
            )
        elif isinstance(fields, shapes.ReportedHandoff):
            waits_on = handoff_references.resolve_reported_waits(session, fields.waits_on)
            size = handoff_size(fields)
            handoff_reports.append(
                handoffs.HandoffFact(session, fields.handoff, origin, position, size, waits_on)
            )
        elif isinstance(fields, shapes.ReportedAcceptance):
            handoff_reports.append(handoffs.HandoffFact(session, fields.handoff, origin, position))
        elif isinstance(fields, shapes.ReportedFact):
            source = origin.claimed_source or origin.source
            digest = facts.digest_fact_value(origin.project, to_canonical_text(fields.value))
            fresh_s = fields.fresh_s or facts.DEFAULT_FACT_FRESH_S
            fact_reports.append(
                facts.FactObservation(
                    session, fields.name, source, digest, fresh_s, origin, position
                )
            )
    checkpoints.store_checkpoints(checkpoint_reports)
    if decision_reports:
        decisions.apply_decision_facts(decision_reports)
    if handoff_reports:
        handoffs.apply_handoff_facts(handoff_reports)
    facts.apply_observations(fact_reports)
