"""Converts reported items to effect reports, with policy results of plans."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson

from api.endpoint import Call
from api.events.parse import BatchItem
from api.plan_columns import build_target_columns
from api.schemas import core
from approvals.policies import policies
from approvals.policies.inputs import PlanPayload
from approvals.reported_plans import ReportedPlanBatch
from db.ids import derive_uuid
from ledger.fold import apply
from ledger.fold.apply import Fact
from ledger.store.placeholders import open_placeholders
from ledger.store.writer import FactReport
from sessions import tasks


def build_effect_reports(call: Call, items: list[BatchItem]) -> list[FactReport]:
    """Build effect reports from new items, and stubs for effects that they compensate.

    Completes the values of reported plans.
    """
    reported = []
    referenced: dict[UUID, FactReport] = {}
    _fill_plans(call, [item for item in items if isinstance(item.fields, core.ReportedPlan)])
    for item in items:
        kind = item.envelope.kind
        if kind not in apply.REPORTABLE_KINDS or item.effect is None:
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
            FactReport(
                item.effect, call.project, item.session, call.token.agent, item.effect_key, fact
            )
        )
        if isinstance(item.fields, core.ReportedPlan) and item.fields.compensates:
            # The compensated effect is stored now, so that acknowledging the compensation finds it.
            target, key = item.values["compensates_id"], item.fields.compensates
            reference = replace(fact, kind="effect.named", values={})
            referenced.setdefault(
                target,
                FactReport(target, call.project, item.session, call.token.agent, key, reference),
            )
    return reported + open_placeholders(
        referenced, {report.effect for report in reported}, call.project, call.received_us
    )


def _is_policy_evaluated(call: Call) -> bool:
    """Return whether reported plans are evaluated; imports only on request."""
    return call.token.scope != "import" or call.request.GET.get("evaluate_policies") == "true"


def _fill_plans(call: Call, plans: list[BatchItem]) -> None:
    """Fill in the columns of reported plans from other tables and the policy."""
    targets: dict[bytes, dict[str, Any]] = {}
    for item in plans:
        _fill_plan(call, item, targets)
    force = (
        policies.load_active_policy(call.project) if plans and _is_policy_evaluated(call) else None
    )
    if force is None:
        return
    effect_tools = [(item.effect, item.fields.tool) for item in plans if item.effect is not None]
    batch = ReportedPlanBatch(force, call.project, call.token.agent, call.received_us, effect_tools)
    for item in plans:
        if item.effect is not None:
            item.values |= _evaluate_policy(batch, item, item.effect, item.fields)


def _evaluate_policy(
    batch: ReportedPlanBatch, item: BatchItem, effect: UUID, fields: core.ReportedPlan
) -> dict[str, Any]:
    repository = (fields.target.repository or "") if fields.target is not None else ""
    payload = PlanPayload(fields.arguments, repository, fields.preconditions)
    columns = batch.evaluate_plan(
        item.origin,
        item.session,
        effect,
        fields.tool,
        item.values,
        payload,
        item.values.get("intent_digest", ""),
    )
    # Imported effects ran before Gatebook could be asked, so they never count as a violation.
    return columns | ({"policy_enforced": False} if item.origin.imports else {})


def _fill_plan(call: Call, item: BatchItem, targets: dict[bytes, dict[str, Any]]) -> None:
    """Fill in columns from other tables; look up equal targets only once."""
    fields = item.fields
    if fields.target is not None:
        branch = fields.arguments.get("branch") if isinstance(fields.arguments, dict) else None
        branch_name = branch if isinstance(branch, str) else None
        key = orjson.dumps([fields.target.repository, fields.target.ref, item.session, branch_name])
        if key not in targets:
            columns = build_target_columns(
                call.project, item.session, fields.target, fields.arguments
            )
            targets[key] = {
                name: columns[name] for name in columns if name not in ("environment", "resource")
            }
        item.values |= targets[key]
        item.values |= {
            "environment": fields.target.environment or "",
            "resource": fields.target.resource or "",
        }
    if fields.task:
        item.values["task_id"] = tasks.derive_task_id(item.session, fields.task)
    if fields.compensates:
        item.values["compensates_id"] = derive_uuid(item.session, fields.compensates)
    if fields.parent_effect:
        item.values["parent_effect_id"] = _resolve_effect(item.session, fields.parent_effect)


def _resolve_effect(session: UUID, reference: str) -> UUID:
    """Return the id of an effect named by id or by its key in the session."""
    try:
        return UUID(reference)
    except ValueError:
        return derive_uuid(session, reference)
