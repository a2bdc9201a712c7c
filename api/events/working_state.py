"""Applies reported working state: checkpoints, decisions, handoffs, facts."""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import orjson

from api import handoff_references
from api.events.parse import BatchItem
from api.schemas import working_state as shapes
from api.strictjson.canonical_json import to_canonical_text
from journal.entries import Origin
from sessions import checkpoints, decisions, facts, handoffs

WORKING_STATE_KINDS: Final = frozenset(shapes.REPORTED)


def build_entry_facts(fields: Any, origin: Origin, session: UUID) -> tuple[UUID | None, str]:
    """Return the subject and the facts of an item's journal entry."""
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
            measure_handoff_fields(fields), waits_on
        )
    if isinstance(fields, shapes.ReportedAcceptance):
        return handoffs.derive_handoff_id(session, fields.handoff), "{}"
    return None, "{}"


def apply_working_state(items: Iterable[BatchItem]) -> None:
    """Fold new items into their tables. Their sessions must be locked."""
    checkpoint_facts: list[checkpoints.CheckpointFact] = []
    decision_facts: list[decisions.DecisionFact] = []
    handoff_facts: list[handoffs.HandoffFact] = []
    observed_facts: list[facts.FactObservation] = []
    for item in items:
        fields, origin, session, position = item.fields, item.origin, item.session, item.position
        if isinstance(fields, shapes.CheckpointFields):
            values = item.field_values
            checkpoint_facts.append(
                checkpoints.CheckpointFact(
                    session, origin, position, measure_checkpoint(values), values
                )
            )
        elif isinstance(fields, shapes.ReportedDecision):
            decision_facts.append(
                decisions.DecisionFact(
                    session, fields.decision, origin, position, effect=item.effect
                )
            )
        elif isinstance(fields, shapes.ReportedConclusion):
            decision_facts.append(
                decisions.DecisionFact(session, fields.decision, origin, position, fields.status)
            )
        elif isinstance(fields, shapes.ReportedHandoff):
            waits_on = handoff_references.resolve_reported_waits(session, fields.waits_on)
            size = measure_handoff_fields(fields)
            handoff_facts.append(
                handoffs.HandoffFact(session, fields.handoff, origin, position, size, waits_on)
            )
        elif isinstance(fields, shapes.ReportedAcceptance):
            handoff_facts.append(handoffs.HandoffFact(session, fields.handoff, origin, position))
        elif isinstance(fields, shapes.ReportedFact):
            source = origin.claimed_source or origin.source
            digest = facts.digest_fact_value(origin.project, to_canonical_text(fields.value))
            fresh_s = fields.fresh_s or facts.DEFAULT_FACT_FRESH_S
            observed_facts.append(
                facts.FactObservation(
                    session, fields.name, source, digest, fresh_s, origin, position
                )
            )
    checkpoints.apply_checkpoint_facts(checkpoint_facts)
    if decision_facts:
        decisions.apply_decision_facts(decision_facts)
    if handoff_facts:
        handoffs.apply_handoff_facts(handoff_facts)
    facts.apply_observed_facts(observed_facts)


def measure_checkpoint(values: Mapping[str, Any]) -> int:
    """Return the bytes of a checkpoint as canonical JSON without empty fields."""
    return len(to_canonical_text({name: value for name, value in values.items() if value}).encode())


def measure_handoff_fields(fields: shapes.HandoffFields) -> int:
    """Return the bytes of the five sections of a handoff."""
    values = {name: getattr(fields, name) for name in handoffs.HANDOFF_SECTIONS}
    values["waits_on"] = [
        {name: value for name in ("kind", "ref", "text") if (value := getattr(thing, name))}
        for thing in fields.waits_on
    ]
    return handoffs.measure_handoff(values)
