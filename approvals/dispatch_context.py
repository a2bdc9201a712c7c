"""Load what decides a dispatch: the effect, the use of its permission, and its next attempt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from accounts.origin import Origin
from approvals import exemptions
from approvals.digests import compute_approval_digest
from approvals.models import Exemption, Gate
from approvals.plan_context import find_session_denial
from approvals.policies import policies, policy_inputs
from approvals.policies.engine import PolicyDecision, evaluate_rules
from approvals.policies.policies import ActivePolicy, CommandContext, PolicyEvaluation
from approvals.policies.policy_inputs import Severity
from approvals.voting import quorum
from approvals.voting.quorum import ApprovalVote
from db.clock import now_us
from ledger import commands
from ledger import dispatch as ledger_dispatch
from ledger import stops as ledger_stops
from ledger.fold import compensation
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.tools import cache
from ledger.verdicts import evaluate
from ledger.verdicts.evaluate import Evaluation
from sessions import fencing, writers
from sessions.fencing import StaleEpoch


class DispatchArguments(NamedTuple):
    """All arguments about to be used, and whether the intent omits some of them."""

    arguments: Any
    leaves_out: bool


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """A dispatch as the endpoint received it.

    `compute_digest` returns the intent digest of what is about to run, for the planned tool.
    `replays` is the attempt of unknown outcome that the next one replaces.
    """

    effect: UUID
    process: str
    compute_digest: Callable[[str], str]
    preconditions: Mapping[str, Any] | None = None
    arguments: DispatchArguments | None = None  # None: only their digest was sent
    replays: int | None = None


@dataclass(frozen=True, slots=True)
class DispatchContext:
    """The effect to dispatch, locked, and what may refuse the request."""

    row: EffectRow
    attempts: dict[int, AttemptRow]
    agent: UUID  # that dispatches
    received_us: int
    intent_digest: str  # of what is about to run
    command: CommandContext
    stale_lease: StaleEpoch | None = None
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class PermissionUse:
    """What decides whether a permission may be used now."""

    plan: Mapping[str, Any] | None = None  # the body of the plan, if arguments were sent
    denied_gate: UUID | None = None  # where people denied the action for the session
    gate: Gate | None = None  # that gave the permission
    digest: str = ""  # of the action, to compare with that of the gate
    approvals: Sequence[ApprovalVote] = ()
    severity: Severity | None = None  # of an effect that rules now ask people about
    evaluation: PolicyEvaluation | None = None  # None: nothing has changed since permission
    is_exemption_valid: bool = False
    exemption: Exemption | None = None  # that suspends the current rules


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What decides the next attempt of an effect."""

    is_repeated: bool = False  # the request opened the present attempt
    verdict: Evaluation | None = None  # None: no attempt needs one
    reuse: PermissionUse | None = None  # of the used permission, if the verdict allows a replay
    has_open_compensation: bool = False


def load_dispatch_context(origin: Origin, request: DispatchRequest) -> DispatchContext:
    """Lock the effect, and load what may refuse its dispatch. Three queries for a first attempt.

    Raises LookupError when the project has no such effect, and WriterNotAllowed.
    """
    row, attempts = commands.lock_effect(origin, request.effect)
    writers.require_writer(
        origin,
        row.session_id,
        "effect.dispatched",
        task=row.task_id,
        effect=row.id,
        also=commands.planning_agent(row),
    )
    # Read the clock after the lock: the caller that waited for the row acts second.
    origin.received_us = max(origin.received_us, now_us())
    command = policies.load_command_context(
        row.project_id,
        row.session_id,
        row.repository_id,
        task=row.task_id,
        intent=row.intent_digest,
    )
    return DispatchContext(
        row,
        attempts,
        origin.agent,
        origin.received_us,
        request.compute_digest(row.tool),
        command,
        fencing.compare_epoch(origin.lease_epoch, command.fence, needed=command.leased),
        command.has_stops and _is_stopped(origin, row),
    )


def _is_stopped(origin: Origin, row: EffectRow) -> bool:
    """True if a stop covers the effect for its planning or its dispatching agent."""
    stops = ledger_stops.load_stops(row.project_id)
    return any(
        ledger_stops.find_covering_stop(stops, row.session_id, agent, row.tool, row.id)
        for agent in (row.agent_id, origin.agent)
    )


def load_permission_use(
    origin: Origin,
    request: DispatchRequest,
    context: DispatchContext,
    gate: Gate | None,
    *,
    is_reuse: bool = False,
) -> PermissionUse:
    """Load what decides whether the permission may be used. `gate` gave it.

    With `is_reuse`, another attempt has used the permission.
    """
    row, command = context.row, context.command
    is_exempted = row.permission_basis == "exemption"
    plan = None
    if request.arguments is not None and row.permission_basis != "observe":
        plan = policy_inputs.load_plan_body(row.plan_position)
    target = policy_inputs.get_target_columns(row)
    denied_gate = None
    if command.has_session_denial:
        action = (row.session_id, row.agent_id, row.tool, row.intent_digest)
        denied_gate = find_session_denial(*action, target)
    digest, approvals = "", list[ApprovalVote]()
    if gate is not None:
        bound = (row.session_id, row.agent_id, row.tool, row.intent_digest, target)
        digest = compute_approval_digest(*bound, policy_inputs.load_on_behalf_of(row.session_id))
        approvals = quorum.load_approvals([gate.id])[gate.id]
    same_call = command.same_call and not is_reuse
    evaluation = _reevaluate_policy(origin, row, command, plan, always=is_exempted or same_call)
    is_asking = evaluation is not None and evaluation.is_asking
    is_valid, exemption = False, None
    if is_exempted:
        used = UUID(hex=row.permission_ref)
        is_valid = exemptions.is_exemption_valid(used, origin.received_us)
        if is_valid and evaluation is not None and is_asking:
            only = used if is_reuse else None
            exemption = _find_exemption(origin, row, evaluation, only)
    severity = None
    if gate is not None and is_asking:
        severity = policy_inputs.compute_current_severity(gate, row, plan)
    return PermissionUse(
        plan, denied_gate, gate, digest, approvals, severity, evaluation, is_valid, exemption
    )


def load_attempt_context(
    origin: Origin, request: DispatchRequest, context: DispatchContext
) -> AttemptContext:
    """Load what decides the next attempt. No queries for a first one.

    The caller has settled the permission, because the verdict depends on it.
    """
    row, replays = context.row, request.replays
    current = context.attempts.get(row.attempt_count)
    if current is not None and current.is_open:
        sent = (origin.key, request.process, origin.lease_epoch)
        if (current.dispatch_key, current.process, current.lease_epoch) == sent:
            return AttemptContext(is_repeated=True)
        if replays is None:
            return AttemptContext()
    verdict, reuse = None, None
    if row.attempt_count or replays is not None:
        asker = request.process if replays is not None else None
        verdict = evaluate.evaluate_effects(row.project_id, [row], origin.received_us, asker)[
            row.id
        ]
    if verdict is not None and ledger_dispatch.is_permission_reused(row, replays, verdict):
        gate = None
        if row.permission_basis == "ruling":
            gate = Gate.objects.filter(id=UUID(hex=row.permission_ref), status="used").first()
        reuse = load_permission_use(origin, request, context, gate, is_reuse=True)
    return AttemptContext(
        verdict=verdict,
        reuse=reuse,
        has_open_compensation=row.compensates_id is not None
        and compensation.has_open_compensation(row),
    )


def _find_exemption(
    origin: Origin, row: EffectRow, evaluation: PolicyEvaluation, only: UUID | None
) -> Exemption | None:
    """Return the exemption that suspends the rules that ask, or None.

    Its grantors must still be allowed to grant it and have no interest in the action.
    """
    return exemptions.find_exemption(
        row.project_id,
        evaluation.policy_input,
        evaluation.decision.asking,
        row.session_id,
        row.agent_id,
        origin.received_us,
        row.id if row.attempt_count else None,
        evaluation.decision.suspension,
        only,
    )


def _reevaluate_policy(
    origin: Origin,
    row: EffectRow,
    command: CommandContext,
    plan: Mapping[str, Any] | None,
    *,
    always: bool,
) -> PolicyEvaluation | None:
    """Evaluate the active policy again; None if nothing changed since permission.

    Changes are: other rules, another declaration of the tool or of a tool that another part of the
    shell command calls, other ref patterns of the repository. `always` evaluates in any case.
    `plan` is the body of the plan if it was loaded.
    """
    policy = command.policy
    if policy is None or policy.mode != "enforce":
        return None
    declaration = cache.load_tool(row.project_id, row.tool)
    if declaration.raises or row.policy_parts_digest:
        plan = policy_inputs.load_plan_body(row.plan_position) if plan is None else plan
        declaration = declaration.raise_for(policy_inputs.get_plan_arguments(plan))
    if (
        not always
        and _is_policy_unchanged(row, policy, command.patterns_version, declaration)
        and _are_parts_unchanged(row, plan)
    ):
        return None
    plan = policy_inputs.load_plan_body(row.plan_position) if plan is None else plan
    policy_input = policy_inputs.build_stored_policy_input(row, origin.source, plan)
    if not plan:  # erased: a missing argument must not let the action pass a rule
        decision = PolicyDecision("deny", "", None, "the plan was erased")
    else:
        count = policy_inputs.make_stored_plan_counter(row)
        decision = evaluate_rules(policy.compiled, policy_input, policy.mode, count)
    return PolicyEvaluation(policy, policy_input, decision)


def _are_parts_unchanged(row: EffectRow, plan: Mapping[str, Any] | None) -> bool:
    """True if the other calls of a shell command are declared as they were at the plan."""
    if not row.policy_parts_digest:
        return True
    digest = policy_inputs.compute_parts_digest(row, {} if plan is None else plan)
    return digest == row.policy_parts_digest


def _is_policy_unchanged(
    row: EffectRow,
    policy: ActivePolicy,
    patterns_version: int | None,
    declaration: cache.CachedDeclaration,
) -> bool:
    """True if the policy would see what it saw at the plan. A raised risk is not stored."""
    return (
        not declaration.raised.risk
        and row.policy_enforced
        and row.policy_rule.startswith(f"{policy.name}/")
        and row.policy_tool_class == declaration.policy_tool_class
        and row.ref_patterns_version in (None, patterns_version)
    )
