"""The request that checks compare: its plan, its target and how it was rated at arrival."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.review.warnings import REQUEST_IDENTITY


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """One request with its readable plan; `arguments` is any JSON value that the agent sent."""

    gate: UUID
    effect: UUID
    session: UUID
    agent: UUID
    opened_position: int  # journal position of the request: its handle g_<n>
    plan_position: int
    requested_at_us: int
    tool: str
    arguments: Any
    preconditions: Mapping[str, Any]
    claim: str  # what the agent says about the call; "" for nothing
    repository: str
    ref: str
    ref_class: str
    environment: str
    resource: str
    reversibility: str
    risk: str
    policy_set: UUID | None
    rule: str
    intent_digest: str
    identity: tuple[Any, ...] = ()  # see approvals/review/warnings.py: REQUEST_IDENTITY


def build_checked_request(gate: Any, effect: Any, plan: Mapping[str, Any]) -> CheckedRequest:
    """Build the request from rows of a gate and its effect and the readable body of its plan.

    The body of a plan that was erased or cannot be read is empty.
    """
    preconditions, claim = plan.get("preconditions"), plan.get("why")
    return CheckedRequest(
        gate=gate.id,
        effect=gate.effect_id,
        session=gate.session_id,
        agent=gate.agent_id,
        opened_position=gate.opened_position,
        plan_position=gate.plan_position,
        requested_at_us=gate.requested_at_us,
        tool=gate.tool,
        arguments=plan.get("arguments"),
        preconditions=preconditions if isinstance(preconditions, dict) else {},
        claim=claim if isinstance(claim, str) else "",
        repository=gate.repository_name,
        ref=effect.ref,
        ref_class=effect.ref_class,
        environment=effect.environment,
        resource=effect.resource,
        reversibility=gate.reversibility,
        risk=gate.risk,
        policy_set=gate.policy_set_id,
        rule=gate.rule,
        intent_digest=effect.intent_digest,
        identity=tuple(getattr(effect, name) for name in REQUEST_IDENTITY),
    )
