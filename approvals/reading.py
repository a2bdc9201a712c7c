"""Build policy inputs from a plan or a stored effect. Writes nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Subquery

from approvals import counting
from approvals.matching import Rate, Wish, risk_of
from approvals.models import Gate
from approvals.states import RISKS
from journal import exact
from journal.clock import now_us
from journal.models import Body
from ledger import declared
from ledger.commands import Plan
from ledger.models import Effect
from ledger.rows import EffectRow
from ledger.states import REVERSIBILITIES
from sessions import openings, repositories
from sessions.models import Agent, Repository, Session
from sessions.origin import Origin


@dataclass(slots=True)
class Asked:
    """What a plan contains besides its columns, for rules and approvals."""

    arguments: Any
    repository: str = ""
    preconditions: Mapping[str, Any] | None = None


class About(NamedTuple):
    """The severity of an effect, as the server knows it."""

    reversibility: str
    risk: str


class Labels(Mapping[str, str]):
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


def wish_of(
    project: UUID,
    session: UUID,
    agent: str,
    tool: str,
    values: Mapping[str, Any],
    payload: Asked,
    labels: Labels | None = None,
) -> Wish:
    """Build the policy input of a plan.

    `values` holds the columns of its target; `labels` those of its session if known already.
    """
    declaration = declared.tool(project, tool)
    environment, ref_class = values.get("environment") or "", values.get("ref_class") or ""
    is_declared = declaration is not declared.UNDECLARED
    return Wish(
        tool=tool,
        repository=payload.repository,
        ref=values.get("ref") or "",
        ref_class=ref_class,
        environment=environment,
        resource=values.get("resource") or "",
        tool_class=declaration.tool_class,
        reversibility=declaration.reversibility,
        declared=is_declared,
        risk=risk_of(declaration.reversibility, environment, ref_class, is_declared),
        agent=agent,
        labels=Labels(session) if labels is None else labels,
        arguments=payload.arguments,
        moved_refs=values.get("moved_refs") or "",
    )


def wish_of_stored(row: EffectRow, agent: str, plan: Mapping[str, Any]) -> Wish:
    """Build the policy input of a stored effect that `agent` is about to dispatch.

    Its arguments are those of `plan`.
    """
    repository = repository_of(row)
    target = target_of(row)
    target["ref_class"], _ = ref_class_now(repository, row)
    payload = Asked(plan.get("arguments", {}), repository.name if repository is not None else "")
    return wish_of(row.project_id, row.session_id, agent, row.tool, target, payload)


def stamp(row: EffectRow) -> str:
    """Store the current ref class of a replanned effect; return its repository's name."""
    repository = repository_of(row)
    row.ref_class, row.ref_patterns_version = ref_class_now(repository, row)
    return repository.name if repository is not None else ""


def repository_of(row: EffectRow) -> Repository | None:
    """Return the repository of a stored effect's target."""
    return (
        Repository.objects.filter(id=row.repository_id).first()
        if row.repository_id is not None
        else None
    )


def ref_class_now(
    repository: Repository | None, effect: EffectRow | Effect
) -> tuple[str, int | None]:
    """Return the class of an effect's ref by current patterns, and their version.

    Without a repository or ref, the stored values.
    """
    if repository is None or not effect.ref:
        return effect.ref_class, effect.ref_patterns_version
    return repositories.classify(repository, effect.moved_refs)


def plan_body(position: int | None) -> dict[str, Any]:
    """Return the body of the plan at `position`; empty if missing or erased."""
    text = (
        Body.objects.values_list("text", flat=True).filter(entry=position).first()
        if position
        else None
    )
    body = exact.loads(text) if text else {}
    return body if isinstance(body, dict) else {}


def on_behalf_of(session: UUID) -> str:
    """Return the pseudonym of the member for whom a session works, or empty.

    The session or one of its parents names the member.
    """
    name = openings.requester(session)
    if name is None:
        return ""
    return User.objects.values_list("person__pseudonym", flat=True).get(username=name)


class Parties(NamedTuple):
    """The accounts that have an interest in a request.

    The requester (and their pseudonym), the session's owner and the agent's owner.
    """

    requester: int | None
    on_behalf_of: str | None
    session_owner: int | None
    agent_owner: int | None


def parties(session: UUID, agent: UUID) -> Parties:
    """Return the parties of a session and of the agent that requests in it.

    The agent need not be the one that opened the session.
    """
    agent_owner_query = Agent.objects.filter(id=agent).values("owner")
    owner, agent_owner = Session.objects.values_list("owner", Subquery(agent_owner_query)).get(
        id=session
    )
    name = openings.requester(session)
    if name is None:
        return Parties(None, None, owner, agent_owner)
    requester, pseudonym = User.objects.values_list("id", "person__pseudonym").get(username=name)
    return Parties(requester, pseudonym, owner, agent_owner)


def target_of(row: EffectRow) -> dict[str, Any]:
    """Return the columns of a stored effect's target, by name."""
    names = ("repository_id", "ref", "moved_refs", "ref_class", "environment", "resource")
    return {name: getattr(row, name) for name in names}


def reversibility_and_risk(project: UUID, effect: EffectRow) -> About:
    """Return the declared reversibility and the risk that follows from the target."""
    declaration = declared.tool(project, effect.tool)
    is_declared = declaration is not declared.UNDECLARED
    risk = risk_of(declaration.reversibility, effect.environment, effect.ref_class, is_declared)
    return About(declaration.reversibility, risk)


def about_now(gate: Gate, row: EffectRow | None = None) -> About:
    """Return the worse of the severity at the gate's opening and now.

    `row` is the gate's effect if it was read already.
    """
    effect = gate.effect if row is None else row
    declaration = declared.tool(gate.project_id, gate.tool)
    repository = (
        None if not effect.ref else gate.effect.repository if row is None else repository_of(row)
    )
    ref_class, _ = ref_class_now(repository, effect)
    risk = risk_of(
        declaration.reversibility,
        effect.environment,
        ref_class,
        declaration is not declared.UNDECLARED,
    )
    return About(
        max(gate.reversibility, declaration.reversibility, key=REVERSIBILITIES.index),
        max(gate.risk, risk, key=RISKS.index),
    )


def counter(origin: Origin, plan: Plan) -> Callable[[Rate], int]:
    """Return a counter of recent plans; each call is one indexed count."""
    return counting.counter(
        origin.project,
        origin.agent,
        plan.session,
        plan.tool,
        origin.received_us,
        intent=plan.intent_digest,
    )


def counter_of_stored(row: EffectRow) -> Callable[[Rate], int]:
    """Return a counter of the plans before a stored effect, as of now."""
    at = row.opened_position
    return counting.counter(
        row.project_id,
        row.agent_id,
        row.session_id,
        row.tool,
        now_us(),
        at,
        intent=row.intent_digest,
    )
