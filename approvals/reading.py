"""What rules look at, read from where it is kept: a plan as it came, or an effect as it is stored. Writes nothing."""

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
    """What a plan says beyond its columns: what rules look at and what a grant will bind."""

    arguments: Any
    repository: str = ""
    preconditions: Mapping[str, Any] | None = None


class About(NamedTuple):
    """What the server knows of how bad an effect could be."""

    reversibility: str
    risk: str


class Labels(Mapping[str, str]):
    """A session's labels, read only when a rule looks at one."""

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
    asked: Asked,
    labels: Labels | None = None,
) -> Wish:
    """A plan as rules see it. `values` holds the columns of its target; `labels` its session's, where known already."""
    known = declared.tool(project, tool)
    environment, ref_class = values.get("environment") or "", values.get("ref_class") or ""
    is_declared = known is not declared.UNDECLARED
    return Wish(
        tool=tool,
        repository=asked.repository,
        ref=values.get("ref") or "",
        ref_class=ref_class,
        environment=environment,
        resource=values.get("resource") or "",
        tool_class=known.tool_class,
        reversibility=known.reversibility,
        declared=is_declared,
        risk=risk_of(known.reversibility, environment, ref_class, is_declared),
        agent=agent,
        labels=Labels(session) if labels is None else labels,
        arguments=asked.arguments,
        moved_refs=values.get("moved_refs") or "",
    )


def wish_of_stored(row: EffectRow, agent: str, plan: Mapping[str, Any]) -> Wish:
    """A stored effect as rules see it now that `agent` is about to start it; its arguments are those of `plan`."""
    repository = repository_of(row)
    target = target_of(row)
    target["ref_class"], _ = ref_class_now(repository, row)
    asked = Asked(plan.get("arguments", {}), repository.name if repository is not None else "")
    return wish_of(row.project_id, row.session_id, agent, row.tool, target, asked)


def stamp(row: EffectRow) -> str:
    """Give a stored effect that is planned again the class that its ref has now; return its repository's name."""
    repository = repository_of(row)
    row.ref_class, row.ref_patterns_version = ref_class_now(repository, row)
    return repository.name if repository is not None else ""


def repository_of(row: EffectRow) -> Repository | None:
    """The repository of a stored effect's target."""
    return (
        Repository.objects.filter(id=row.repository_id).first()
        if row.repository_id is not None
        else None
    )


def ref_class_now(
    repository: Repository | None, effect: EffectRow | Effect
) -> tuple[str, int | None]:
    """The class of an effect's ref by the present patterns, and their version; what is stamped where there is none."""
    if repository is None or not effect.ref:
        return effect.ref_class, effect.ref_patterns_version
    return repositories.classify(repository, effect.moved_refs)


def plan_body(position: int | None) -> dict[str, Any]:
    """What was sent as the plan at `position`; empty when there is none, or when it was erased."""
    text = (
        Body.objects.values_list("text", flat=True).filter(entry=position).first()
        if position
        else None
    )
    body = exact.loads(text) if text else {}
    return body if isinstance(body, dict) else {}


def on_behalf_of(session: UUID) -> str:
    """The pseudonym of the member for whom a session works, by its own word or that of one above it, or nothing."""
    name = openings.requester(session)
    if name is None:
        return ""
    return User.objects.values_list("person__pseudonym", flat=True).get(username=name)


class Parties(NamedTuple):
    """Who has a part in a request, by account: for whom it is made (and their pseudonym), who answers for what."""

    requester: int | None
    on_behalf_of: str | None
    session_owner: int | None
    agent_owner: int | None


def parties(session: UUID, agent: UUID) -> Parties:
    """Those of a session and of the agent that asks in it, which need not be the one that opened it."""
    asking = Agent.objects.filter(id=agent).values("owner")
    owner, asks = Session.objects.values_list("owner", Subquery(asking)).get(id=session)
    name = openings.requester(session)
    if name is None:
        return Parties(None, None, owner, asks)
    requester, pseudonym = User.objects.values_list("id", "person__pseudonym").get(username=name)
    return Parties(requester, pseudonym, owner, asks)


def target_of(row: EffectRow) -> dict[str, Any]:
    """The columns of a stored effect's target, by name."""
    names = ("repository_id", "ref", "moved_refs", "ref_class", "environment", "resource")
    return {name: getattr(row, name) for name in names}


def reversibility_and_risk(project: UUID, effect: EffectRow) -> About:
    """What the operator declared of the tool and what follows from the target."""
    known = declared.tool(project, effect.tool)
    is_declared = known is not declared.UNDECLARED
    risk = risk_of(known.reversibility, effect.environment, effect.ref_class, is_declared)
    return About(known.reversibility, risk)


def about_now(gate: Gate, row: EffectRow | None = None) -> About:
    """The worst of what was known when a gate opened and of what is known now: facts only ever raise it.

    `row` is the gate's effect where it has been read.
    """
    effect = gate.effect if row is None else row
    known = declared.tool(gate.project_id, gate.tool)
    repository = (
        None if not effect.ref else gate.effect.repository if row is None else repository_of(row)
    )
    ref_class, _ = ref_class_now(repository, effect)
    risk = risk_of(
        known.reversibility, effect.environment, ref_class, known is not declared.UNDECLARED
    )
    return About(
        max(gate.reversibility, known.reversibility, key=REVERSIBILITIES.index),
        max(gate.risk, risk, key=RISKS.index),
    )


def counter(origin: Origin, wish: Plan) -> Callable[[Rate], int]:
    """How often something was planned lately; each question is one indexed count."""
    return counting.counter(
        origin.project,
        origin.agent,
        wish.session,
        wish.tool,
        origin.received_us,
        intent=wish.intent_digest,
    )


def counter_of_stored(row: EffectRow) -> Callable[[Rate], int]:
    """The same for a stored effect, as of now; neither it nor what was planned after it counts."""
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
