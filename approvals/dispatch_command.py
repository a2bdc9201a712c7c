"""Dispatch an effect: load what decides, decide, write the attempt and the use of the permission.

`dispatch_with_policy` is the command; the functions follow in the order of its steps. It decides
three times: on the command (`find_dispatch_refusal`), on a granted permission
(`decide_permission_use`) and on the next attempt (`decide_attempt`). These functions are pure: they
make no queries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User

from approvals import exemptions
from approvals.digests import compute_approval_digest, compute_preconditions_digest, is_same_json
from approvals.gates import gates
from approvals.gates.statuses import STEP_UPS
from approvals.models import Exemption, Gate
from approvals.policies import policy_evaluation
from approvals.policies.engine import (
    Requirement,
    is_stricter_requirement,
)
from approvals.policies.policy_evaluation import (
    CommandContext,
    PolicyEvaluation,
    Severity,
)
from approvals.voting import quorum
from approvals.voting.quorum import ApprovalVote
from db.clock import now_us
from journal.entries import Origin
from ledger import commands, permissions, refusals, same_calls
from ledger import dispatch as ledger_dispatch
from ledger import stops as ledger_stops
from ledger.commands import CommandResult
from ledger.dispatch import FIRST_ATTEMPT, NextAttempt, decide_next_attempt
from ledger.permissions import Grant
from ledger.refusals import Refusal
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.verdicts import evaluate
from ledger.verdicts.evaluate import Evaluation
from sessions import heartbeats, sessions, writers
from sessions.writers import StaleEpoch

WITHDRAWN: Final = Grant("none", "revoked")


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
    evaluation: PolicyEvaluation | None = None  # None: nothing changed, or no policy is enforced
    is_exemption_valid: bool = False
    exemption: Exemption | None = None  # that suspends the current rules


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What decides the next attempt of an effect."""

    is_repeated: bool = False  # the request opened the present attempt
    verdict: Evaluation | None = None  # None: no attempt needs one
    reuse: PermissionUse | None = None  # of the used permission, if the verdict allows a replay
    has_open_compensation: bool = False


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    """Whether a permission may be used, and what becomes of it and its gate."""

    refusal: Refusal | None = None
    grant: Grant | None = None  # replaces the permission
    exemption: Exemption | None = None  # whose use is the new permission
    revokes_gate: bool = False  # for the reason of the refusal


@dataclass(frozen=True, slots=True)
class AttemptDecision:
    """The next attempt, or why there is none."""

    refusal: Refusal | None = None
    withdraws: bool = False  # the used permission no longer applies, so a new one is needed
    is_repeated: bool = False  # the request opened the present attempt
    attempt: NextAttempt = FIRST_ATTEMPT


def dispatch_with_policy(origin: Origin, request: DispatchRequest) -> CommandResult:
    """Use the permission and its gate, and open the next attempt, in the caller's transaction.

    Raises LookupError when the project has no such effect, WriterNotAllowed and RepeatedKey.
    """
    ledger_stops.hold_back_stops_and_activations(origin.project)
    context = load_dispatch_context(origin, request)
    row = context.row
    refusal = find_dispatch_refusal(context)
    if refusal is not None:
        return _write_dispatch_refusal(origin, context, refusal)
    gate = gates.settle_permission(row, origin.received_us)
    if row.permission == "granted":
        use = load_permission_use(origin, request, context, gate)
        permission_decision = decide_permission_use(request, context, use)
        refusal = _write_permission_use(origin, request, context, use, permission_decision)
        if refusal is not None:
            return CommandResult(row, 409, refusal)
    attempt_context = load_attempt_context(origin, request, context)
    decision = decide_attempt(request, context, attempt_context)
    return _write_attempt(origin, request, context, gate, decision)


def load_dispatch_context(origin: Origin, request: DispatchRequest) -> DispatchContext:
    """Lock the effect, and load what may refuse its dispatch. Three queries for a first attempt.

    Who may plan in the session may dispatch (see `load_plan_context`), and so may the agent that
    planned the effect. Raises WriterNotAllowed as for a plan, and LookupError when the project has
    no such effect.
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
    command = policy_evaluation.load_command_context(
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
        request.compute_digest(row.tool),
        command,
        writers.compare_epoch(origin.lease_epoch, command.fence, needed=command.leased),
        command.has_stops and _is_stopped(origin, row),
    )


def _is_stopped(origin: Origin, row: EffectRow) -> bool:
    """True if a stop covers the effect for its planning or its dispatching agent."""
    stops = ledger_stops.load_stops(row.project_id)
    return any(
        ledger_stops.find_covering_stop(stops, row.session_id, agent, row.tool, row.id)
        for agent in (row.agent_id, origin.agent)
    )


def find_dispatch_refusal(context: DispatchContext) -> Refusal | None:
    """Return why a request to dispatch is refused whatever the permission is, or None."""
    if context.intent_digest != context.row.intent_digest:
        return refusals.INTENT_CHANGED
    if context.stale_lease is not None:
        return refusals.refuse_stale_lease(
            context.stale_lease.sentence, context.command.session_ended
        )
    return refusals.STOPPED_REFUSAL if context.is_stopped else None


def _write_dispatch_refusal(
    origin: Origin, context: DispatchContext, refusal: Refusal
) -> CommandResult:
    """Record a refused dispatch where its refusal leaves a trace."""
    row = context.row
    if refusal is refusals.INTENT_CHANGED:
        commands.record_refusal(origin, row, refusal.code)
    elif context.stale_lease is not None:
        writers.record_fenced_command(
            origin, row.session_id, context.stale_lease, kind="effect.dispatched", effect=row.id
        )
    return CommandResult(row, 409, refusal)


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
        plan = policy_evaluation.load_plan_body(row.plan_position)
    target = policy_evaluation.get_target_columns(row)
    denied_gate = None
    if command.has_session_denial:
        action = (row.session_id, row.agent_id, row.tool, row.intent_digest)
        denied_gate = gates.find_session_denial(*action, target)
    digest, approvals = "", list[ApprovalVote]()
    if gate is not None:
        bound = (row.session_id, row.agent_id, row.tool, row.intent_digest, target)
        digest = compute_approval_digest(*bound, load_on_behalf_of(row.session_id))
        approvals = quorum.load_approvals([gate.id])[gate.id]
    same_call = command.same_call and not is_reuse
    evaluation = policy_evaluation.reevaluate_policy(
        origin, row, command, plan, always=is_exempted or same_call
    )
    requires_approval = evaluation is not None and evaluation.requires_approval
    is_valid, exemption = False, None
    if is_exempted:
        used = UUID(hex=row.permission_ref)
        is_valid = exemptions.is_exemption_valid(used, origin.received_us)
        if is_valid and evaluation is not None and requires_approval:
            only = used if is_reuse else None
            exemption = _find_exemption(origin, row, evaluation, only)
    severity = None
    if gate is not None and requires_approval:
        severity = policy_evaluation.compute_current_severity(gate, row, plan)
    return PermissionUse(
        plan, denied_gate, gate, digest, approvals, severity, evaluation, is_valid, exemption
    )


def load_on_behalf_of(session: UUID) -> str:
    """Return the pseudonym of the member for whom a session works, or empty.

    The session or one of its parents names the member.
    """
    name = sessions.find_requester(session)
    if name is None:
        return ""
    return User.objects.values_list("person__pseudonym", flat=True).get(username=name)


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


def decide_permission_use(
    request: DispatchRequest, context: DispatchContext, use: PermissionUse
) -> PermissionDecision:
    """Decide whether a granted permission may be used now.

    A vote must still count, and still be about this action. Permission without a vote, from a
    policy, an exemption or observe mode, is withdrawn if it would not be given now.
    """
    refusal = _find_common_refusal(request, context, use)
    if refusal is refusals.DENIED_FOR_SESSION and use.denied_gate is not None:
        grant = Grant("denied", "ruling", use.denied_gate.hex)
        return PermissionDecision(refusal, grant, revokes_gate=use.gate is not None)
    if refusal is not None:
        return PermissionDecision(refusal)
    if use.gate is not None:
        refusal = _check_gate(request, use, use.gate)
        return PermissionDecision(refusal, revokes_gate=refusal is not None)
    is_exempted = context.row.permission_basis == "exemption"
    if is_exempted and not use.is_exemption_valid:
        return PermissionDecision(refusals.EXEMPTION_REVOKED, WITHDRAWN)
    if use.evaluation is None or use.evaluation.decision.outcome == "allow":
        return PermissionDecision()
    exemption = use.exemption
    if exemption is None:
        return PermissionDecision(refusals.APPROVAL_NEEDED, WITHDRAWN)
    if exemption.id.hex == context.row.permission_ref:
        return PermissionDecision()
    grant = Grant("granted", "exemption", exemption.id.hex, exemption.ends_at_us)
    return PermissionDecision(grant=grant, exemption=exemption)


def _find_common_refusal(
    request: DispatchRequest, context: DispatchContext, use: PermissionUse
) -> Refusal | None:
    """Return the refusal for another agent, other arguments or a denial for the session."""
    policy = context.command.policy
    if policy is not None and policy.mode == "enforce" and context.agent != context.row.agent_id:
        return refusals.PERMISSION_OF_OTHER_AGENT
    sent, plan = request.arguments, use.plan
    if sent is not None and plan is not None:
        if not plan:
            return refusals.PLAN_ERASED
        # Otherwise the intent holds all of the arguments.
        omits_some = sent.leaves_out or plan.get("free_text")
        if omits_some and not is_same_json(plan.get("arguments", {}), sent.arguments):
            return refusals.ARGUMENTS_CHANGED
    return None if use.denied_gate is None else refusals.DENIED_FOR_SESSION


def _check_gate(request: DispatchRequest, use: PermissionUse, gate: Gate) -> Refusal | None:
    """Refuse an action that differs from the one people saw, or that needs more approval now."""
    if use.digest != gate.digest:
        return refusals.PLAN_CHANGED
    if (
        gate.preconditions_digest
        and compute_preconditions_digest(request.preconditions) != gate.preconditions_digest
    ):
        return refusals.PRECONDITIONS_CHANGED
    valid_approvals = [approval for approval in use.approvals if not approval.fault]
    if len(valid_approvals) < gate.minimum:
        return refusals.QUORUM_LOST
    return refusals.REQUIREMENT_CHANGED if _requires_more_now(use, gate, valid_approvals) else None


def _requires_more_now(use: PermissionUse, gate: Gate, approvals: Sequence[ApprovalVote]) -> bool:
    if use.evaluation is None or use.severity is None:
        return use.evaluation is not None and use.evaluation.decision.outcome == "deny"
    required = (use.evaluation.decision.requirement or Requirement()).strengthened(
        use.severity.reversibility, use.severity.risk
    )
    weakest_step_up = min((approval.step_up for approval in approvals), key=STEP_UPS.index)
    met = Requirement.of(gate.requirement).met_by(
        weakest_step_up, min(approval.reason_characters for approval in approvals)
    )
    return required.hash != gate.requirement_hash and is_stricter_requirement(required, met)


def _write_permission_use(
    origin: Origin,
    request: DispatchRequest,
    context: DispatchContext,
    use: PermissionUse,
    decision: PermissionDecision,
) -> Refusal | None:
    """Write what becomes of a permission before its use; return why it cannot be used.

    Counts the use of an exemption that it moves to, and decides again without an exemption that has
    ended since it was loaded. Else a permission that may be used is unchanged: the attempt uses it.
    """
    row, now_us = context.row, origin.received_us
    if decision.exemption is not None and not exemptions.use_exemption(
        decision.exemption, origin, row.id, row.session_id, row.attempt_count
    ):  # it has ended since it was loaded
        decision = decide_permission_use(request, context, replace(use, exemption=None))
    refusal = decision.refusal
    if decision.revokes_gate and use.gate is not None and refusal is not None:
        facts = (
            quorum.build_uncounted_facts(use.approvals) if refusal is refusals.QUORUM_LOST else {}
        )
        gates.end_gate(row, use.gate, "revoked", refusal.reason, now_us, more_facts=facts)
    if decision.grant is not None:
        permissions.change_permission(row, decision.grant, now_us)
    return refusal


def load_attempt_context(
    origin: Origin, request: DispatchRequest, context: DispatchContext
) -> AttemptContext:
    """Load what decides the next attempt. No queries for a first one that compensates nothing.

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
        # None ignores leases: the command compared its epoch before.
        process = request.process if replays is not None else None
        verdicts = evaluate.evaluate_effects(
            row.project_id, [row], origin.received_us, process=process
        )
        verdict = verdicts[row.id]
    if verdict is not None and ledger_dispatch.is_permission_reused(row, replays, verdict):
        gate = None
        if row.permission_basis == "ruling":
            gate = Gate.objects.filter(id=UUID(hex=row.permission_ref), status="used").first()
        reuse = load_permission_use(origin, request, context, gate, is_reuse=True)
    return AttemptContext(
        verdict=verdict,
        reuse=reuse,
        has_open_compensation=row.compensates_id is not None
        and ledger_dispatch.has_open_compensation(row),
    )


def decide_attempt(
    request: DispatchRequest, context: DispatchContext, attempt: AttemptContext
) -> AttemptDecision:
    """Decide the next attempt of an effect whose permission is settled."""
    row = context.row
    current = context.attempts.get(row.attempt_count)
    if attempt.is_repeated:
        return AttemptDecision(is_repeated=True)
    if current is not None and current.is_open and request.replays is None:
        return AttemptDecision(refusals.ALREADY_DISPATCHED)
    following = decide_next_attempt(row, request.replays, attempt.verdict)
    if following.refusal is not None:
        return AttemptDecision(following.refusal)
    if following.again and attempt.reuse is not None:
        refusal = _find_reuse_refusal(request, context, attempt.reuse)
        if refusal is not None:
            # GATE_GONE: a lost vote, other terms, a needed approval or an ended exemption.
            return AttemptDecision(refusal, withdraws=refusal.code == "GATE_GONE")
    elif row.permission != "granted":
        return AttemptDecision(refusals.refuse_without_permission(row))
    if attempt.has_open_compensation:
        return AttemptDecision(refusals.COMPENSATION_OPEN)
    return AttemptDecision(attempt=following)


def _find_reuse_refusal(
    request: DispatchRequest, context: DispatchContext, use: PermissionUse
) -> Refusal | None:
    """Return why a used permission cannot serve another attempt, or None.

    The verdict table allows the attempt. The approval must still match the action and satisfy the
    current rules. A used gate never changes.
    """
    refusal = _find_common_refusal(request, context, use)
    if refusal is not None:
        return refusal
    if context.row.permission_basis == "ruling":
        return refusals.APPROVAL_NEEDED if use.gate is None else _check_gate(request, use, use.gate)
    if context.row.permission_basis == "exemption" and not use.is_exemption_valid:
        return refusals.EXEMPTION_REVOKED
    is_allowed = use.evaluation is None or use.evaluation.decision.outcome == "allow"
    return None if is_allowed or use.exemption is not None else refusals.APPROVAL_NEEDED


def _write_attempt(
    origin: Origin,
    request: DispatchRequest,
    context: DispatchContext,
    gate: Gate | None,
    decision: AttemptDecision,
) -> CommandResult:
    """Open the next attempt, or repeat the answer about the present one."""
    row, attempts, command = context.row, context.attempts, context.command
    if decision.refusal is not None:
        if decision.withdraws:
            commands.give_up_attempt(row, attempts, origin.received_us)
            permissions.change_permission(row, WITHDRAWN, origin.received_us)
        return CommandResult(row, 409, decision.refusal)
    result = (
        ledger_dispatch.repeat_dispatch(origin, row, attempts[row.attempt_count])
        if decision.is_repeated
        else ledger_dispatch.record_dispatch(
            origin, row, attempts, request.process, decision.attempt
        )
    )
    if result.attempt is None:
        return result
    if gate is not None:
        gates.use_gate(gate, result.attempt.number, origin.received_us)
    if command.fence is not None and result.created:
        heartbeats.record_progress(origin.project, row.session_id, origin.lease_epoch, row.task_id)
    if command.same_call and result.created:
        result.same_calls = same_calls.link_same_calls(row, result.position)
    elif command.same_call:  # a repeated answer: the other call may have begun after this attempt
        result.same_calls = same_calls.find_unknown_calls(
            row.project_id, row.session_id, row.tool, row.intent_digest
        )
    return result
