"""Read the active policy and evaluate it for a plan or a stored effect. Writes nothing."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from accounts import repositories
from accounts.models import Repository
from approvals.gates.statuses import RISKS
from approvals.models import Gate, PolicySet
from approvals.policies import rate_counters
from approvals.policies.engine import (
    CompiledPolicy,
    PlanRate,
    PolicyDecision,
    PolicyInput,
    RateCounter,
    compile_rules,
    compute_risk,
    digest_parts,
    evaluate_rules,
)
from db import long_numbers, raw_sql
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from journal.entries import Origin
from journal.models import Body
from ledger import same_calls
from ledger.commands import Plan
from ledger.models import Effect
from ledger.states import REVERSIBILITIES
from ledger.store.effect_rows import EffectRow, to_uuid, vendor_id
from ledger.tools import cache
from sessions import writers
from sessions.models import ENDED, Session
from shell.command_effects import UNPARSED_TOOL

_MAX_CACHED_SETS: Final = 64  # compiled sets cached by a process
_cache_lock = threading.Lock()
_compiled_sets: dict[UUID, tuple[str, CompiledPolicy]] = {}
_ENDED: Final = ", ".join(f"'{status}'" for status in ENDED)
_NIL_UUID: Final = UUID(int=0)
_CONTEXT_SQL: Final = (
    "SELECT current.policy_set_id, current.mode,"
    " EXISTS (SELECT 1 FROM ledger_stop WHERE project_id = %s AND lifted_at_us IS NULL),"
    " EXISTS (SELECT 1 FROM approvals_gate WHERE session_id = %s AND status = 'denied_session'),"
    f" EXISTS (SELECT 1 FROM agent_sessions_session WHERE id = %s AND status IN ({_ENDED})),"
    " (SELECT patterns_version FROM accounts_repository WHERE id = %s),"
    " EXISTS (SELECT 1 FROM agent_sessions_capacity WHERE agent_id = %s AND paced_until_us > %s),"
    " EXISTS (SELECT 1 FROM ledger_breaker WHERE project_id = %s AND tool = %s AND opened_at_us"
    " IS NOT NULL),"
    f" {writers.FENCE_SQL}, (SELECT mode FROM agent_sessions_session WHERE id = %s), EXISTS"
    f" ({same_calls.UNKNOWN_CALLS_SQL})"
    " FROM (SELECT 1) AS one"
    " LEFT JOIN approvals_activation AS current ON current.project_id = %s AND current.is_current"
)


class ActivePolicy(NamedTuple):
    """The active policy of a project. `name` is "acme@3"; `mode` observe or enforce."""

    policy_set: UUID
    name: str
    mode: str
    compiled: CompiledPolicy

    def evaluate(self, policy_input: PolicyInput, count: RateCounter) -> PolicyDecision:
        """Decide `policy_input` by these rules."""
        return evaluate_rules(self.compiled, policy_input, self.mode, count)


class PolicyEvaluation(NamedTuple):
    """The policy result for one input, and the columns that its effect stores."""

    policy: ActivePolicy
    policy_input: PolicyInput
    decision: PolicyDecision

    @property
    def requires_approval(self) -> bool:
        """True if people must approve and the policy is enforced."""
        return self.policy.mode == "enforce" and self.decision.outcome == "ask"

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "policy_outcome": self.decision.outcome,
            "policy_rule": f"{self.policy.name}/{self.decision.rule}",
            "policy_tool_class": (
                f"{self.policy_input.tool_class}/{self.policy_input.reversibility}"
            ),
            "policy_parts_digest": digest_parts(self.policy_input.parts),
            "policy_enforced": self.policy.mode == "enforce",
        }


class CommandContext(NamedTuple):
    """What every plan and dispatch needs to know, loaded in one query.

    `has_stops` is about the project, the rest about the session, agent, tool, repository and intent
    that were named.
    """

    policy: ActivePolicy | None
    has_stops: bool = False
    has_session_denial: bool = False  # an action was denied for the session
    session_ended: bool = False
    patterns_version: int | None = None  # of the repository's ref patterns
    is_throttled: bool = False  # the agent's capacity report throttles some of its plans
    circuit_open: bool = False  # the tool's circuit breaker is open
    fence: int | None = None  # the least lease epoch that may write the session or the task
    leased: bool = False  # workers of the session must name their lease epoch
    same_call: bool = False  # the intent may have happened in another session


@dataclass(frozen=True, slots=True)
class PlanPayload:
    """What a plan contains besides its columns, for rules and approvals."""

    arguments: Any
    repository: str = ""
    preconditions: Mapping[str, Any] | None = None


class ToolCall(NamedTuple):
    """A call of a tool with its arguments."""

    tool: str
    arguments: Any


class Severity(NamedTuple):
    """The severity of an effect, as the server knows it."""

    reversibility: str
    risk: str


class LazySessionLabels(Mapping[str, str]):
    """A session's labels, read only when a rule uses one."""

    def __init__(self, session: UUID) -> None:
        self._session = session
        self._read: dict[str, str] | None = None

    def _labels(self) -> dict[str, str]:
        if self._read is None:
            self._read = (
                Session.objects.values_list("labels", flat=True).filter(id=self._session).first()
                or {}
            )
        return self._read

    def __getitem__(self, name: str) -> str:
        return self._labels()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels())

    def __len__(self) -> int:
        return len(self._labels())


def load_active_policy(project: UUID) -> ActivePolicy | None:
    """Return the active policy, or None if none was ever active (observe only)."""
    return load_command_context(project).policy


def load_command_context(
    project: UUID,
    session: UUID | None = None,
    repository: UUID | None = None,
    *,
    agent: UUID | None = None,
    tool: str = "",
    now_us: int = 0,
    task: UUID | None = None,
    intent: str = "",
) -> CommandContext:
    """Load the active policy and the context of a plan or dispatch in one query.

    Rules never change once loaded, so each process compiles a set once.
    """
    project_id, session_id = vendor_id(project), vendor_id(session or _NIL_UUID)
    parameters = [
        project_id,
        session_id,
        session_id,
        vendor_id(repository or _NIL_UUID),
        vendor_id(agent or _NIL_UUID),
        now_us,
        project_id,
        tool,
        *writers.fence_parameters(project, session or _NIL_UUID, task),
        session_id,
        project_id,
        intent,
        session_id,
        project_id,
    ]
    (row,) = raw_sql.fetch_rows(_CONTEXT_SQL, parameters)
    policy_set, mode, stops, denial, ended, patterns, throttled, broken, fence, work, same = row
    policy_set_id = to_uuid(policy_set)
    policy = None
    if policy_set_id is not None:
        name, compiled = _load_compiled(policy_set_id)
        policy = ActivePolicy(policy_set_id, name, mode, compiled)
    return CommandContext(
        policy,
        bool(stops),
        bool(denial),
        bool(ended),
        patterns,
        bool(throttled),
        bool(broken),
        fence,
        work == "leased",
        bool(same and intent),
    )


def _load_compiled(policy_set: UUID) -> tuple[str, CompiledPolicy]:
    rules = _compiled_sets.get(policy_set)
    if rules is None:
        row = PolicySet.objects.values_list("name", "version", "rules").get(pk=policy_set)
        rules = (f"{row[0]}@{row[1]}", compile_rules(row[2]))
        with _cache_lock:
            if len(_compiled_sets) >= _MAX_CACHED_SETS:
                _compiled_sets.clear()
            _compiled_sets[policy_set] = rules
    return rules


def evaluate_plan(
    policy: ActivePolicy,
    origin: Origin,
    plan: Plan,
    target: Mapping[str, Any],
    payload: PlanPayload,
) -> PolicyEvaluation:
    """Evaluate the rules. They read rates and labels only where a rule needs them."""
    policy_input = build_policy_input(
        origin.project, plan.session, origin.source, plan.tool, target, payload
    )
    count = make_plan_counter(origin, plan)
    decision = policy.evaluate(policy_input, count)
    return PolicyEvaluation(policy, policy_input, decision)


def reevaluate_policy(
    origin: Origin,
    row: EffectRow,
    command: CommandContext,
    plan: Mapping[str, Any] | None,
    *,
    always: bool,
) -> PolicyEvaluation | None:
    """Evaluate the active policy again; None if nothing changed, or none is enforced.

    Changes are: other rules, another declaration of the tool or of a tool that another part of the
    shell command calls, other ref patterns of the repository. `always` evaluates in any case.
    `plan` is the body of the plan if it was loaded.
    """
    policy = command.policy
    if policy is None or policy.mode != "enforce":
        return None
    declaration = cache.load_tool(row.project_id, row.tool)
    if declaration.raises or row.policy_parts_digest:
        plan = load_plan_body(row.plan_position) if plan is None else plan
        declaration = declaration.raise_by_arguments(get_plan_arguments(plan))
    if (
        not always
        and _is_policy_unchanged(row, policy, command.patterns_version, declaration)
        and _are_parts_unchanged(row, plan)
    ):
        return None
    plan = load_plan_body(row.plan_position) if plan is None else plan
    policy_input = build_stored_policy_input(row, origin.source, plan)
    if not plan:  # erased: a missing argument must not let the action pass a rule
        decision = PolicyDecision("deny", "", None, "the plan was erased")
    else:
        count = make_stored_plan_counter(row)
        decision = policy.evaluate(policy_input, count)
    return PolicyEvaluation(policy, policy_input, decision)


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


def _are_parts_unchanged(row: EffectRow, plan: Mapping[str, Any] | None) -> bool:
    """True if the other calls of a shell command are declared as they were at the plan."""
    if not row.policy_parts_digest:
        return True
    digest = compute_parts_digest(row, {} if plan is None else plan)
    return digest == row.policy_parts_digest


def build_policy_input(
    project: UUID,
    session: UUID,
    agent: str,
    tool: str,
    values: Mapping[str, Any],
    payload: PlanPayload,
    labels: LazySessionLabels | None = None,
) -> PolicyInput:
    """Build the policy input of a plan.

    `values` holds the columns of its target; `labels` those of its session if known already.
    """
    policy_input = _build_one_input(
        project,
        agent,
        tool,
        values,
        payload,
        LazySessionLabels(session) if labels is None else labels,
    )
    other_calls = list_other_calls(tool, payload.arguments)
    if not other_calls:
        return policy_input
    # A part names no target that was classified: its refs may be any.
    target = {**values, "ref": "", "ref_class": "", "moved_refs": ""}
    parts = tuple(
        _build_one_input(
            project,
            agent,
            call.tool,
            target,
            replace(payload, arguments=call.arguments),
            policy_input.labels,
        )
        for call in other_calls
    )
    return replace(policy_input, parts=parts)


def compute_parts_digest(row: EffectRow, plan: Mapping[str, Any]) -> str:
    """Return the digest of the present declarations of a stored command's other calls."""
    values, labels = get_target_columns(row) | {"ref_class": ""}, dict[str, str]()
    parts = [
        _build_one_input(row.project_id, "", call.tool, values, PlanPayload(call.arguments), labels)
        for call in list_other_calls(row.tool, get_plan_arguments(plan))
    ]
    return digest_parts(parts)


def list_other_calls(tool: str, arguments: Any) -> list[ToolCall]:
    """List the calls that a shell command makes besides that of `tool`, which names it.

    `shell.map_command` describes them in the argument `parts`. Calls that it does not describe
    count as one that it could not read.
    """
    parts = arguments.get("parts") if isinstance(arguments, dict) else None
    if not isinstance(parts, list):
        return []
    calls = [
        ToolCall(part["tool"], part.get("arguments"))
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("tool"), str)
    ]
    main_call = next((call for call in calls if call.tool == tool), None)
    if main_call is not None:
        calls.remove(main_call)
    if arguments.get("further_parts"):
        calls.append(ToolCall(UNPARSED_TOOL, {}))
    return calls


def _build_one_input(
    project: UUID,
    agent: str,
    tool: str,
    values: Mapping[str, Any],
    payload: PlanPayload,
    labels: Mapping[str, str],
) -> PolicyInput:
    declaration = cache.load_tool(project, tool).raise_by_arguments(payload.arguments)
    environment, ref_class = values.get("environment") or "", values.get("ref_class") or ""
    return PolicyInput(
        tool=tool,
        repository=payload.repository,
        ref=values.get("ref") or "",
        ref_class=ref_class,
        environment=environment,
        resource=values.get("resource") or "",
        tool_class=declaration.tool_class,
        reversibility=declaration.reversibility,
        declared=declaration is not cache.UNDECLARED,
        risk=compute_declared_risk(declaration, environment, ref_class),
        agent=agent,
        labels=labels,
        arguments=payload.arguments,
        moved_refs=values.get("moved_refs") or "",
    )


def build_stored_policy_input(row: EffectRow, agent: str, plan: Mapping[str, Any]) -> PolicyInput:
    """Build the input of an effect that `agent` dispatches, with `plan`'s arguments."""
    repository = load_effect_repository(row)
    target = get_target_columns(row)
    target["ref_class"], _ = compute_current_ref_class(repository, row)
    payload = PlanPayload(
        get_plan_arguments(plan), repository.name if repository is not None else ""
    )
    return build_policy_input(row.project_id, row.session_id, agent, row.tool, target, payload)


def load_current_target(row: EffectRow) -> tuple[dict[str, Any], str]:
    """Return the target columns of an effect with the current ref class, and its repository."""
    repository = load_effect_repository(row)
    ref_class, version = compute_current_ref_class(repository, row)
    target = get_target_columns(row) | {"ref_class": ref_class, "ref_patterns_version": version}
    return target, repository.name if repository is not None else ""


def load_effect_repository(row: EffectRow) -> Repository | None:
    """Return the repository of a stored effect's target."""
    return (
        Repository.objects.filter(id=row.repository_id).first()
        if row.repository_id is not None
        else None
    )


def compute_current_ref_class(
    repository: Repository | None, effect: EffectRow | Effect
) -> tuple[str, int | None]:
    """Return the class of an effect's ref by current patterns, and their version.

    Without a repository or ref, the stored values.
    """
    if repository is None or not effect.ref:
        return effect.ref_class, effect.ref_patterns_version
    return repositories.classify_moved_refs(repository, effect.moved_refs)


def load_plan_body(position: int | None) -> dict[str, Any]:
    """Return the body of the plan at `position`; empty if missing or erased."""
    texts = _PLAN_TEXT.rows(position=position) if position else []
    return parse_plan_body(texts[0] if texts else None)


def parse_plan_body(text: str | None) -> dict[str, Any]:
    """Return the body of a plan from its text; empty without one."""
    body = long_numbers.parse_json(text) if text else {}
    return body if isinstance(body, dict) else {}


def _select_plan_text(position: int) -> "QuerySet[Any]":
    return Body.objects.filter(entry=position).values_list("text", flat=True)


_PLAN_TEXT: Final = CompiledQuerySet(_select_plan_text, position=int)


def get_target_columns(row: EffectRow) -> dict[str, Any]:
    """Return the columns of a stored effect's target, by name."""
    names = ("repository_id", "ref", "moved_refs", "ref_class", "environment", "resource")
    return {name: getattr(row, name) for name in names}


def compute_severity(project: UUID, effect: EffectRow, arguments: Any) -> Severity:
    """Return the reversibility and the risk of an effect with these arguments.

    The declaration gives the reversibility, raised by its conditions on arguments; the risk follows
    from it and the target.
    """
    return _compute_worst_severity(
        project, effect.tool, arguments, effect.environment, effect.ref_class
    )


def _compute_worst_severity(
    project: UUID, tool: str, arguments: Any, environment: str, ref_class: str
) -> Severity:
    """Return the worst severity of a call and of the other calls of its shell command."""
    severities = []
    for call in (ToolCall(tool, arguments), *list_other_calls(tool, arguments)):
        declaration = cache.load_tool(project, call.tool).raise_by_arguments(call.arguments)
        risk = compute_declared_risk(declaration, environment, ref_class)
        severities.append(Severity(declaration.reversibility, risk))
    return Severity(
        max((severity.reversibility for severity in severities), key=REVERSIBILITIES.index),
        max((severity.risk for severity in severities), key=RISKS.index),
    )


def compute_current_severity(
    gate: Gate, row: EffectRow | None = None, plan: Mapping[str, Any] | None = None
) -> Severity:
    """Return the worse of the severity at the gate's opening and now.

    `row` is the gate's effect and `plan` the body of its plan, if they were read already. One query
    for the plan if the tool has conditions on arguments or the command makes other calls.
    """
    effect = gate.effect if row is None else row
    arguments = None
    if effect.policy_parts_digest or cache.load_tool(gate.project_id, gate.tool).raises:
        plan = load_plan_body(gate.plan_position) if plan is None else plan
        arguments = get_plan_arguments(plan)
    repository = (
        None
        if not effect.ref
        else gate.effect.repository
        if row is None
        else load_effect_repository(row)
    )
    ref_class, _ = compute_current_ref_class(repository, effect)
    present = _compute_worst_severity(
        gate.project_id, gate.tool, arguments, effect.environment, ref_class
    )
    return Severity(
        max(gate.reversibility, present.reversibility, key=REVERSIBILITIES.index),
        max(gate.risk, present.risk, key=RISKS.index),
    )


def get_plan_arguments(plan: Mapping[str, Any]) -> Any:
    """Return the arguments in the body of a plan; None if it was erased."""
    return plan.get("arguments", {}) if plan else None


def compute_declared_risk(
    declaration: cache.CachedDeclaration, environment: str, ref_class: str
) -> str:
    """Return the risk by the target, at least what the arguments raised it to."""
    is_declared = declaration is not cache.UNDECLARED  # nothing raises an undeclared tool
    risk = compute_risk(declaration.reversibility, environment, ref_class, is_declared)
    return max(risk, declaration.raised.risk or risk, key=RISKS.index)


def make_plan_counter(origin: Origin, plan: Plan) -> Callable[[PlanRate], int]:
    """Return a counter of recent plans; each call is one indexed count."""
    return rate_counters.make_rate_counter(
        origin.project,
        origin.agent,
        plan.session,
        plan.tool,
        origin.received_us,
        intent=plan.intent_digest,
    )


def make_stored_plan_counter(row: EffectRow) -> Callable[[PlanRate], int]:
    """Return a counter of the plans before a stored effect, as of now."""
    at = row.opened_position
    return rate_counters.make_rate_counter(
        row.project_id,
        row.agent_id,
        row.session_id,
        row.tool,
        now_us(),
        at,
        intent=row.intent_digest,
    )
