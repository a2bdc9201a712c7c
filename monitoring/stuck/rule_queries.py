"""Load the inputs of the stuck rules: candidate sessions by deadline index, then their rows.

The number of queries does not depend on the number of sessions.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import (
    BigIntegerField,
    BooleanField,
    Exists,
    ExpressionWrapper,
    F,
    FilteredRelation,
    Func,
    OuterRef,
    Q,
)

from approvals.labels import describe_approvers
from approvals.models import Gate
from approvals.policies.engine import Requirement
from ledger import stops as ledger_stops
from ledger.models import Effect
from ledger.partial_indexes import HAS_BAD_OUTCOME, IS_NOT_ACKNOWLEDGED
from monitoring.models import StuckEpisode
from monitoring.stuck.rule_inputs import (
    EffectInput,
    FencedWrites,
    GateInput,
    HandoffInput,
    LeaseInput,
    Loop,
    RuleInput,
)
from monitoring.stuck.rule_limits import ProjectLimits
from monitoring.stuck.rules import RuleResult, stuck_reasons
from sessions.models import ENDED, Handoff, Lease, Session

MOST: Final = 500  # sessions loaded at once
_OPEN: Final = Func(
    F("state"),
    template="%(expressions)s IN ('planned', 'dispatched', 'failed')",
    output_field=BooleanField(),
)
_IMPORTED: Final = "import"  # permission basis of imported effects
_BOTH_ENDS: Final = ExpressionWrapper(
    F("requested_at_us") + F("decide_by_us"), output_field=BigIntegerField()
)


@dataclass(slots=True)
class StuckSession:
    """A session with its rule inputs and the rules that are true."""

    session: Session
    seen: RuleInput
    reasons: list[RuleResult]


def find_candidates(project: UUID, now_us: int, limits: ProjectLimits) -> list[UUID]:
    """List the project's sessions with a passed deadline or an open episode. One query.

    Deadlines are read for the whole installation and filtered by project afterwards: with a project
    condition, the planner prefers the project's index and scans all of its sessions.
    """
    due = now_us + limits.sooner_us
    leases = Lease.objects.filter(kind="session", released_at_us__isnull=True)
    overdue = Effect.objects.filter(
        IS_NOT_ACKNOWLEDGED, project=project, state="dispatched", deadline_us__lt=now_us
    )
    half_expired = Gate.objects.alias(both=_BOTH_ENDS).filter(
        project=project, status="pending", both__lt=2 * now_us
    )
    open_episodes = StuckEpisode.objects.filter(
        project=project, cleared_us__isnull=True, session__isnull=False
    )
    queries: list[Any] = [
        Session.objects.filter(start_by_us__lt=due).values_list("project", "id"),
        leases.filter(dead_at_us__lt=due).values_list("project", "session"),
        leases.filter(wedged_at_us__lt=due).values_list("project", "session"),
        Handoff.objects.filter(accept_by_us__lt=due).values_list("project", "session"),
        overdue.exclude(permission_basis=_IMPORTED).values_list("project", "session"),
        _unknown_outcomes().filter(project=project).values_list("project", "session"),
        half_expired.values_list("project", "session"),
        open_episodes.values_list("project", "session"),
    ]
    first, *others = [arm.order_by() for arm in queries]
    return [session for project_id, session in first.union(*others) if project_id == project]


def load_stuck_sessions(
    project: UUID, sessions: Collection[UUID], now_us: int, limits: ProjectLimits, **more: Any
) -> list[StuckSession]:
    """Return the stuck ones of these sessions of one project, with reasons."""
    items = [
        StuckSession(item, seen, [])
        for item, seen in load_rule_inputs(project, sessions, now_us, **more)
    ]
    for item in items:
        item.reasons = stuck_reasons(item.seen, now_us, limits.of(item.session.agent_id))
    return [item for item in items if item.reasons]


def load_rule_inputs(
    project: UUID,
    sessions: Collection[UUID],
    now_us: int,
    *,
    loops: dict[UUID, Loop] | None = None,
    fenced: dict[UUID, FencedWrites] | None = None,
    has_stops: bool = True,
) -> Iterable[tuple[Session, RuleInput]]:
    """Load the rule inputs of these sessions without ended ones. Three queries, four with stops.

    `loops` and `fenced` are the results of monitoring/stuck/loops.py; no deadline reveals them.
    """
    of_a_task = Lease.objects.filter(kind="task", released_at_us__isnull=True)
    rows: Any = Session.objects.filter(project=project, id__in=sessions).annotate(
        lease=FilteredRelation("leases", condition=Q(leases__kind="session")),
        handoff=FilteredRelation("handoffs", condition=Q(handoffs__accept_by_us__isnull=False)),
        helped=Exists(of_a_task.filter(session=OuterRef("id"), expires_at_us__gte=now_us)),
    )
    joined = rows.select_related("agent", "owner", "agent__owner", "lease", "handoff")
    open_rows: list[Any] = [session for session in joined if session.status not in ENDED]
    session_ids = [session.id for session in open_rows]
    gates: dict[UUID, list[GateInput]] = {}
    for gate in Gate.objects.filter(session__in=session_ids, status="pending"):
        gates.setdefault(gate.session_id, []).append(_gate_input(gate))
    effects: dict[UUID, list[EffectInput]] = {}
    for row in _load_effects(session_ids):
        effects.setdefault(row.session_id, []).append(_effect_input(row))
    stops = ledger_stops.load_stops(project) if has_stops and session_ids else []
    for session in open_rows:
        yield (
            session,
            RuleInput(
                session.id,
                mode=session.mode,
                status=session.status,
                created_at_us=session.created_at_us,
                start_by_us=session.start_by_us,
                lease=_lease_input(getattr(session, "lease", None)),
                gates=gates.get(session.id, ()),
                effects=effects.get(session.id, ()),
                handoff=_handoff_input(getattr(session, "handoff", None)),
                loop=(loops or {}).get(session.id),
                fenced=(fenced or {}).get(session.id),
                stopped=ledger_stops.find_covering_stop(
                    stops, session.id, session.agent_id, "", None
                )
                is not None,
                helped=session.helped,
            ),
        )


def _unknown_outcomes() -> Any:
    """Query commands that the agent reported as unknown and nobody has resolved."""
    return Effect.objects.filter(
        HAS_BAD_OUTCOME,
        outcome="unknown",
        state__in=("failed", "acknowledged"),
        lane="command",
        resolution="",
    )


def _load_effects(sessions: list[UUID]) -> Iterable[Effect]:
    """Load dispatched effects without an answer, and effects answered as unknown."""
    released = Effect.objects.filter(_OPEN, session__in=sessions, state="dispatched").exclude(
        permission_basis=_IMPORTED
    )
    return released.union(_unknown_outcomes().filter(session__in=sessions), all=True)


def _lease_input(lease: Lease | None) -> LeaseInput | None:
    if lease is None:
        return None
    return LeaseInput(
        epoch=lease.epoch,
        process=lease.process,
        heartbeat_at_us=lease.heartbeat_at_us,
        progress_at_us=lease.progress_at_us,
        expires_at_us=lease.expires_at_us,
        dead_at_us=lease.dead_at_us,
        wedged_at_us=lease.wedged_at_us,
        quiet_until_us=lease.quiet_until_us,
        released_at_us=lease.released_at_us,
    )


def _gate_input(gate: Gate) -> GateInput:
    whose = describe_approvers(Requirement.of(gate.requirement))
    return GateInput(gate.id, str(gate), gate.tool, gate.requested_at_us, gate.decide_by_us, whose)


def _effect_input(effect: Effect) -> EffectInput:
    unknown = effect.state != "dispatched"
    since = effect.deadline_us if not unknown else effect.changed_us
    return EffectInput(effect.id, str(effect), effect.tool, since, effect.dispatched_at_us, unknown)


def _handoff_input(handoff: Handoff | None) -> HandoffInput | None:
    if handoff is None:
        return None
    return HandoffInput(
        handoff.id,
        f"handoff {handoff.opened_position}",
        handoff.created_at_us,
        handoff.accept_by_us or 0,
    )
