"""Serializes effects and attempts, and refusals with their current verdict."""

from typing import Any
from uuid import UUID

from api import writer_refusals
from api.idempotency import Reply
from api.problems import Problem
from api.serializers import verdicts
from api.serializers.leases import lease_to_json
from ledger import permissions
from ledger.commands import CommandResult
from ledger.models import Attempt, Effect
from ledger.refusals import NOT_IN_THIS_STATE
from ledger.store.effect_rows import AttemptRow, EffectRow


def effect_to_json(effect: Effect | EffectRow) -> dict[str, Any]:
    """Serialize an effect: ids, state and permission, never its payload."""
    body = {
        "id": str(effect.id),
        "handle": f"e_{effect.opened_position}",
        "session": str(effect.session_id),
        "effect_key": effect.effect_key,
        "call_id": effect.call_id or None,
        "tool": effect.tool,
        "state": effect.state,
        "outcome": effect.outcome or None,
        "permission": effect.permission,
        "permission_basis": effect.permission_basis or None,
        "gate": _gate_reference_to_json(effect),
        "policy_outcome": effect.policy_outcome or None,
        "policy_rule": effect.policy_rule or None,
        "intent_digest": effect.intent_digest or None,
        "attempt": effect.attempt_count or None,
        "external_reference": effect.external_reference or None,
        "answer": permissions.agent_answer(
            to_effect_row(effect) if isinstance(effect, Effect) else effect
        ),
    }
    return {name: value for name, value in body.items() if value is not None}


def _gate_reference_to_json(effect: Effect | EffectRow) -> dict[str, str] | None:
    """Return the id and URLs of the gate that decides on this effect's permission."""
    if not effect.permission_ref or effect.permission_basis == "exemption":
        return None
    identity = UUID(hex=effect.permission_ref)
    return {
        "id": str(identity),
        "wait": f"/api/v1/gates/{identity}?wait=45",
        "page": f"/approvals/{identity}/",
    }


def to_effect_row(effect: Effect) -> EffectRow:
    """Build an EffectRow with the columns that responses need."""
    return EffectRow(
        id=effect.id,
        project_id=effect.project_id,
        session_id=effect.session_id,
        agent_id=effect.agent_id,
        effect_key=effect.effect_key,
        call_id=effect.call_id,
        opened_position=effect.opened_position,
        received_us=effect.received_us,
        changed_us=effect.changed_us,
        tool=effect.tool,
        intent_digest=effect.intent_digest,
        permission=effect.permission,
        permission_basis=effect.permission_basis,
        permission_ref=effect.permission_ref,
        permission_until_us=effect.permission_until_us,
        state=effect.state,
        outcome=effect.outcome,
        attempt_count=effect.attempt_count,
        failure_reason=effect.failure_reason,
        external_reference=effect.external_reference,
        task_id=effect.task_id,
        resource=effect.resource,
        plan_position=effect.plan_position,
        undone=effect.undone,
        resolution=effect.resolution,
        resolved_mark=effect.resolved_mark,
    )


def attempt_to_json(attempt: Attempt | AttemptRow) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "remote_key": attempt.remote_key,
        "open": attempt.is_open,
        "replaced": attempt.replaced,
        "replaces": attempt.replaces,
        "outcome": attempt.outcome or None,
        "reason": attempt.failure_reason or None,
        "external_reference": attempt.external_reference or None,
        "dispatched_at_us": attempt.dispatched_at_us,
        "acknowledged_at_us": attempt.acknowledged_at_us,
        "failed_at_us": attempt.failed_at_us,
    }


def build_effect_refusal(answered: CommandResult, process: str | None = None) -> Reply:
    """Build a refusal. The endpoint commits, so that a recorded refusal persists."""
    refusal = answered.refusal or NOT_IN_THIS_STATE
    problem = Problem(answered.status, refusal.code, refusal.sentence)
    effect = {
        name: value for name, value in effect_to_json(answered.effect).items() if name != "tool"
    }
    reason: dict[str, Any] = {"reason": refusal.reason} if refusal.reason else {}
    if refusal.code == "LEASE_LOST":
        lease = writer_refusals.load_fencing_lease(
            answered.effect.project_id, answered.effect.session_id, answered.effect.task_id
        )
        reason = {} if lease is None else {"lease": lease_to_json(lease)}
    body = problem.as_dict() | reason | {"effect": effect}
    if answered.status == 409:
        mismatch = refusal.code == "INTENT_MISMATCH"
        body["verdict"] = verdicts.evaluate_verdict_json(
            answered.effect.project_id, answered.effect, process, same_intent=not mismatch
        )
    return Reply(answered.status, body, kept=False)
