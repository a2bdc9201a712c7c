"""Applies reported working state: checkpoints, decisions, handoffs, facts."""

from collections.abc import Iterable
from typing import Any, Final, Protocol
from uuid import UUID

import orjson

from ingest import shapes_work as shapes
from ingest import waits
from ingest.canonical import canonical_text
from ingest.views.work import sections_size, size_of
from sessions import checkpoints, decisions, facts, handoffs, lineage
from sessions.origin import Origin


class Item(Protocol):
    """One item of a batch with its session and journal position."""

    fields: Any
    origin: Origin
    session: UUID
    effect: UUID | None
    position: int


KINDS: Final = frozenset(shapes.REPORTED)


def said(
    fields: Any, origin: Origin, session: UUID, sessions_by_reference: dict[str, UUID]
) -> tuple[UUID | None, str]:
    """Return the subject and the facts of an item's journal entry."""
    if isinstance(fields, shapes.ChangeFields | shapes.ReportedBranch | shapes.ReportedMerge):
        values = {name: getattr(fields, name) for name in fields.__struct_fields__}
        return None, lineage.as_facts(values, sessions_by_reference)
    if isinstance(fields, shapes.CheckpointFields):
        return checkpoints.identity(session, origin), "{}"
    if isinstance(fields, shapes.ReportedDecision):
        return decisions.identity(session, fields.decision), "{}"
    if isinstance(fields, shapes.ReportedConclusion):
        return decisions.identity(session, fields.decision), orjson.dumps(
            {"status": fields.status}
        ).decode()
    if isinstance(fields, shapes.ReportedHandoff):
        waits_on = waits.reported(session, fields.waits_on)
        return handoffs.identity(session, fields.handoff), handoffs.as_facts(
            sections_size(fields), waits_on
        )
    if isinstance(fields, shapes.ReportedAcceptance):
        return handoffs.identity(session, fields.handoff), "{}"
    return None, "{}"


def post(items: Iterable[Item]) -> None:
    """Fold new items into their tables. Their sessions must be locked."""
    checkpoint_reports: list[checkpoints.Report] = []
    decision_reports: list[decisions.Report] = []
    handoff_reports: list[handoffs.Report] = []
    fact_reports: list[facts.Report] = []
    for item in items:
        fields, origin, session, position = item.fields, item.origin, item.session, item.position
        if isinstance(fields, shapes.CheckpointFields):
            values = {name: getattr(fields, name) for name in fields.__struct_fields__}
            checkpoint_reports.append(
                checkpoints.Report(session, origin, position, size_of(values), values)
            )
        elif isinstance(fields, shapes.ReportedDecision):
            decision_reports.append(
                decisions.Report(session, fields.decision, origin, position, effect=item.effect)
            )
        elif isinstance(fields, shapes.ReportedConclusion):
            decision_reports.append(
                decisions.Report(session, fields.decision, origin, position, fields.status)
            )
        elif isinstance(fields, shapes.ReportedHandoff):
            waits_on = waits.reported(session, fields.waits_on)
            size = sections_size(fields)
            handoff_reports.append(
                handoffs.Report(session, fields.handoff, origin, position, size, waits_on)
            )
        elif isinstance(fields, shapes.ReportedAcceptance):
            handoff_reports.append(handoffs.Report(session, fields.handoff, origin, position))
        elif isinstance(fields, shapes.ReportedFact):
            source = origin.claimed_source or origin.source
            digest = facts.digest_of(origin.project, canonical_text(fields.value))
            fresh_s = fields.fresh_s or facts.FRESH_S
            fact_reports.append(
                facts.Report(session, fields.name, source, digest, fresh_s, origin, position)
            )
    checkpoints.keep(checkpoint_reports)
    if decision_reports:
        decisions.apply(decision_reports)
    if handoff_reports:
        handoffs.apply(handoff_reports)
    facts.apply(fact_reports)
