"""Facts about effects from reported items, with policy results of plans."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson

from api.endpoint import Call
from api.events.parse import BatchItem
from api.plan_columns import load_target_columns
from api.schemas import core
from approvals.policies import policy_evaluation
from approvals.policies.policy_evaluation import PlanPayload
from approvals.reported_plans import ReportedPlanBatch
from db.ids import derive_uuid
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.store.writer import EffectFact
from sessions import tasks


def load_plan_columns(call: Call, items: Sequence[BatchItem]) -> dict[int, dict[str, Any]]:
    """Return the columns of reported plans that come from other tables and the policy.

    By `item_index`. The sessions' rows must be locked.
    """
    plans = [item for item in items if isinstance(item.fields, core.ReportedPlan)]
    targets: dict[bytes, dict[str, Any]] = {}
    columns = {item.item_index: _load_reference_columns(call, item, targets) for item in plans}
    policy = (
        policy_evaluation.load_active_policy(call.project)
        if plans and _is_policy_evaluated(call)
        else None
    )
    if policy is None:
        return columns
    effect_tools = [(item.effect, item.fields.tool) for item in plans if item.effect is not None]
    batch = ReportedPlanBatch.lock_and_load(
        policy, call.project, call.token.agent, call.received_us, effect_tools
    )
    for item in plans:
        if item.effect is not None:
            values = {**item.values, **columns[item.item_index]}
            columns[item.item_index] |= _evaluate_policy(batch, item, item.effect, values)
    return columns


def build_effect_facts(
    items: Sequence[BatchItem], columns: Mapping[int, Mapping[str, Any]]
) -> tuple[list[EffectFact], dict[UUID, EffectFact]]:
    """Return the facts that items report about effects, and stubs of effects that they compensate.

    Pure. `columns` are those of `load_plan_columns`.
    """
    facts: list[EffectFact] = []
    stubs: dict[UUID, EffectFact] = {}
    for item in items:
        envelope, origin = item.envelope, item.origin
        if envelope.kind not in effect_state.REPORTABLE_KINDS or item.effect is None:
            continue
        fact = Fact(
            kind=envelope.kind,
            mark=origin.mark,
            lane="evidence",
            key=envelope.id,
            position=item.position,
            received_us=origin.received_us,
            told_us=envelope.occurred_us,
            attempt=envelope.attempt or 1,
            imports=origin.imports,
            lease_epoch=envelope.lease_epoch,
            agent=origin.agent,
            values={**item.values, **columns.get(item.item_index, {})},
        )
        facts.append(
            EffectFact(
                item.effect, origin.project, item.session, origin.agent, item.effect_key, fact
            )
        )
        if isinstance(item.fields, core.ReportedPlan) and item.fields.compensates:
            # The compensated effect is stored now, so that acknowledging the compensation finds it.
            target, key = fact.values["compensates_id"], item.fields.compensates
            named = replace(fact, kind="effect.named", values={})
            stubs.setdefault(
                target,
                EffectFact(target, origin.project, item.session, origin.agent, key, named),
            )
    return facts, stubs


def _is_policy_evaluated(call: Call) -> bool:
    """Return whether reported plans are evaluated; imports only on request."""
    return call.token.scope != "import" or call.request.GET.get("evaluate_policies") == "true"


def _evaluate_policy(
    batch: ReportedPlanBatch, item: BatchItem, effect: UUID, values: Mapping[str, Any]
) -> dict[str, Any]:
    fields: core.ReportedPlan = item.fields
    repository = (fields.target.repository or "") if fields.target is not None else ""
    payload = PlanPayload(fields.arguments, repository, fields.preconditions)
    columns = batch.evaluate_plan(
        item.origin,
        item.session,
        effect,
        fields.tool,
        values,
        payload,
        values.get("intent_digest", ""),
    )
    # Imported effects ran before Gatebook could be asked, so they never count as a violation.
    return columns | ({"policy_enforced": False} if item.origin.imports else {})


def _load_reference_columns(
    call: Call, item: BatchItem, targets: dict[bytes, dict[str, Any]]
) -> dict[str, Any]:
    """Return the columns from other tables; look up equal targets only once."""
    fields: core.ReportedPlan = item.fields
    columns: dict[str, Any] = {}
    if fields.target is not None:
        branch = fields.arguments.get("branch") if isinstance(fields.arguments, dict) else None
        branch_name = branch if isinstance(branch, str) else None
        key = orjson.dumps([fields.target.repository, fields.target.ref, item.session, branch_name])
        if key not in targets:
            targets[key] = load_target_columns(
                call.project, item.session, fields.target, fields.arguments
            )
        columns |= targets[key]
        columns["environment"] = fields.target.environment or ""
        columns["resource"] = fields.target.resource or ""
    if fields.task:
        columns["task_id"] = tasks.derive_task_id(item.session, fields.task)
    if fields.compensates:
        columns["compensates_id"] = derive_uuid(item.session, fields.compensates)
    if fields.parent_effect:
        columns["parent_effect_id"] = _resolve_effect(item.session, fields.parent_effect)
    return columns


def _resolve_effect(session: UUID, reference: str) -> UUID:
    """Return the id of an effect named by id or by its key in the session."""
    try:
        return UUID(reference)
    except ValueError:
        return derive_uuid(session, reference)
