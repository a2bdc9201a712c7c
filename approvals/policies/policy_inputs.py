"""Build policy inputs from a plan or a stored effect. Writes nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet, Subquery

from accounts import repositories
from accounts.models import Agent, Repository
from accounts.origin import Origin
from approvals.gates.statuses import RISKS
from approvals.models import Gate
from approvals.policies import rate_counters
from approvals.policies.engine import PlanRate, PolicyInput, compute_risk, digest_parts
from db import long_numbers
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from journal.models import Body
from ledger.commands import Plan
from ledger.models import Effect
from ledger.states import REVERSIBILITIES
from ledger.store.effect_rows import EffectRow
from ledger.tools import cache
from sessions import sessions
from sessions.models import Session
from shell.command_effects import UNPARSED_TOOL

# Plain SQL: every dispatch of a coding agent's call reads its plan.
_PLAN_TEXT_SQL: Final = "SELECT text FROM journal_body WHERE entry_id = %s"


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
    declaration = cache.load_tool(project, tool).raise_for(payload.arguments)
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


def load_on_behalf_of(session: UUID) -> str:
    """Return the pseudonym of the member for whom a session works, or empty.

    The session or one of its parents names the member.
    """
    name = sessions.find_requester(session)
    if name is None:
        return ""
    return User.objects.values_list("person__pseudonym", flat=True).get(username=name)


class RequestParties(NamedTuple):
    """The accounts that have an interest in a request.

    The requester (and their pseudonym), the session's owner and the agent's owner. `owners` has the
    pseudonyms of both, None for an account that has none yet.
    """

    requester: int | None
    on_behalf_of: str | None
    session_owner: int | None
    agent_owner: int | None
    owners: tuple[str | None, str | None] = (None, None)


def load_request_parties(session: UUID, agent: UUID) -> RequestParties:
    """Return the parties of a session and of the agent that requests in it.

    The agent need not be the one that opened the session.
    """
    agents = Agent.objects.filter(id=agent)
    owner, pseudonym, agent_owner, agent_owner_pseudonym = Session.objects.values_list(
        "owner",
        "owner__person__pseudonym",
        Subquery(agents.values("owner")),
        Subquery(agents.values("owner__person__pseudonym")),
    ).get(id=session)
    owners = (pseudonym, agent_owner_pseudonym)
    name = sessions.find_requester(session)
    if name is None:
        return RequestParties(None, None, owner, agent_owner, owners)
    requester, requester_pseudonym = User.objects.values_list("id", "person__pseudonym").get(
        username=name
    )
    return RequestParties(requester, requester_pseudonym, owner, agent_owner, owners)


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
        declaration = cache.load_tool(project, call.tool).raise_for(call.arguments)
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
