"""Converts reported items to effect reports, with policy results of plans."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson

from approvals import policies
from approvals.reading import Asked
from approvals.reported import Batch
from ingest import shapes
from ingest.doors import Call
from ingest.planned import target_columns
from ingest.reported_items import Item
from journal.ids import derived
from ledger import fold
from ledger.effects import Report
from ledger.fold import Fact
from ledger.named import opening
from sessions import tasks


def reports(call: Call, items: list[Item]) -> list[Report]:
    """Build effect reports from new items, and stubs for effects that they compensate.

    Completes the values of reported plans.
    """
    reported = []
    referenced: dict[UUID, Report] = {}
    _fill_plans(call, [item for item in items if isinstance(item.fields, shapes.ReportedPlan)])
    for item in items:
        kind = item.envelope.kind
        if kind not in fold.KINDS or item.effect is None:
            continue
        fact = Fact(
            kind=kind,
            mark=item.origin.mark,
            lane="evidence",
            key=item.envelope.id,
            position=item.position,
            received_us=call.received_us,
            told_us=item.envelope.occurred_us,
            attempt=item.envelope.attempt or 1,
            imports=item.origin.imports,
            lease_epoch=item.envelope.lease_epoch,
            agent=call.token.agent,
            values=item.values,
        )
        reported.append(
            Report(item.effect, call.project, item.session, call.token.agent, item.effect_key, fact)
        )
        if isinstance(item.fields, shapes.ReportedPlan) and item.fields.compensates:
            # The compensated effect is stored now, so that acknowledging the compensation finds it.
            target, key = item.values["compensates_id"], item.fields.compensates
            reference = replace(fact, kind="effect.named", values={})
            referenced.setdefault(
                target, Report(target, call.project, item.session, call.token.agent, key, reference)
            )
    return reported + opening(
        referenced, {report.effect for report in reported}, call.project, call.received_us
    )


def _is_policy_evaluated(call: Call) -> bool:
    """Return whether reported plans are evaluated; imports only on request."""
    return call.token.scope != "import" or call.request.GET.get("judge") == "true"


def _fill_plans(call: Call, plans: list[Item]) -> None:
    """Fill in the columns of reported plans from other tables and the policy."""
    targets: dict[bytes, dict[str, Any]] = {}
    for item in plans:
        _fill_plan(call, item, targets)
    force = policies.in_force(call.project) if plans and _is_policy_evaluated(call) else None
    if force is None:
        return
    effect_tools = [(item.effect, item.fields.tool) for item in plans if item.effect is not None]
    batch = Batch(force, call.project, call.token.agent, call.received_us, effect_tools)
    for item in plans:
        if item.effect is not None:
            item.values |= _evaluate_policy(batch, item, item.effect, item.fields)


def _evaluate_policy(
    batch: Batch, item: Item, effect: UUID, fields: shapes.ReportedPlan
) -> dict[str, Any]:
    repository = (fields.target.repository or "") if fields.target is not None else ""
    payload = Asked(fields.arguments, repository, fields.preconditions)
    columns = batch.judge(
        item.origin,
        item.session,
        effect,
        fields.tool,
        item.values,
        payload,
        item.values.get("intent_digest", ""),
    )
    # Imported effects ran before Gatebook could be asked, so they never count as a violation.
    return columns | ({"enforced": False} if item.origin.imports else {})


def _fill_plan(call: Call, item: Item, targets: dict[bytes, dict[str, Any]]) -> None:
    """Fill in columns from other tables; look up equal targets only once."""
    fields = item.fields
    if fields.target is not None:
        branch = fields.arguments.get("branch") if isinstance(fields.arguments, dict) else None
        branch_name = branch if isinstance(branch, str) else None
        key = orjson.dumps([fields.target.repository, fields.target.ref, item.session, branch_name])
        if key not in targets:
            columns = target_columns(call.project, item.session, fields.target, fields.arguments)
            targets[key] = {
                name: columns[name] for name in columns if name not in ("environment", "resource")
            }
        item.values |= targets[key]
        item.values |= {
            "environment": fields.target.environment or "",
            "resource": fields.target.resource or "",
        }
    if fields.task:
        item.values["task_id"] = tasks.identity(item.session, fields.task)
    if fields.compensates:
        item.values["compensates_id"] = derived(item.session, fields.compensates)
    if fields.parent_effect:
        item.values["parent_effect_id"] = _resolve_effect(item.session, fields.parent_effect)


def _resolve_effect(session: UUID, reference: str) -> UUID:
    """Return the id of an effect named by id or by its key in the session."""
    try:
        return UUID(reference)
    except ValueError:
        return derived(session, reference)
