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

from approvals.models import Gate
from approvals.requirement import Requirement
from approvals.words import who
from inquiry.indexes import HAS_BAD_OUTCOME, IS_NOT_ACKNOWLEDGED
from inquiry.models import StuckTransition
from inquiry.stuck.limits import Known
from inquiry.stuck.rules import Reason, status
from inquiry.stuck.seen import EffectSeen, Fenced, GateSeen, HandoffSeen, LeaseSeen, Loop, Seen
from ledger import holds
from ledger.models import Effect
from sessions.models import ENDED, Session
from sessions.models_leases import Lease
from sessions.models_state import Handoff

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
class Found:
    """A session with its rule inputs and the rules that are true."""

    session: Session
    seen: Seen
    reasons: list[Reason]


def candidates(project: UUID, now_us: int, limits: Known) -> list[UUID]:
    """List the project's sessions with a passed deadline or an open episode. One query.

    Deadlines are read for the whole installation and filtered by project afterwards: with a project
    condition, the planner prefers the project's index and scans all of its sessions.
    """
    due = now_us + limits.sooner_us
    held = Lease.objects.filter(kind="session", released_at_us__isnull=True)
    overdue = Effect.objects.filter(
        IS_NOT_ACKNOWLEDGED, project=project, state="dispatched", deadline_us__lt=now_us
    )
    half_expired = Gate.objects.alias(both=_BOTH_ENDS).filter(
        project=project, status="pending", both__lt=2 * now_us
    )
    open_episodes = StuckTransition.objects.filter(
        project=project, cleared_us__isnull=True, session__isnull=False
    )
    queries: list[Any] = [
        Session.objects.filter(start_by_us__lt=due).values_list("project", "id"),
        held.filter(dead_at_us__lt=due).values_list("project", "session"),
        held.filter(wedged_at_us__lt=due).values_list("project", "session"),
        Handoff.objects.filter(accept_by_us__lt=due).values_list("project", "session"),
        overdue.exclude(leave_basis=_IMPORTED).values_list("project", "session"),
        _said_unknown().filter(project=project).values_list("project", "session"),
        half_expired.values_list("project", "session"),
        open_episodes.values_list("project", "session"),
    ]
    first, *others = [arm.order_by() for arm in queries]
    return [session for project_id, session in first.union(*others) if project_id == project]


def found(
    project: UUID, sessions: Collection[UUID], now_us: int, limits: Known, **more: Any
) -> list[Found]:
    """Return the stuck ones of these sessions of one project, with reasons."""
    items = [Found(item, seen, []) for item, seen in facts(project, sessions, now_us, **more)]
    for item in items:
        item.reasons = status(item.seen, now_us, limits.of(item.session.agent_id))
    return [item for item in items if item.reasons]


def facts(
    project: UUID,
    sessions: Collection[UUID],
    now_us: int,
    *,
    loops: dict[UUID, Loop] | None = None,
    fenced: dict[UUID, Fenced] | None = None,
    has_stops: bool = True,
) -> Iterable[tuple[Session, Seen]]:
    """Load the rule inputs of these sessions without ended ones. Three queries, four with stops.

    `loops` and `fenced` are the results of inquiry/stuck/loops.py; no deadline reveals them.
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
    gates: dict[UUID, list[GateSeen]] = {}
    for gate in Gate.objects.filter(session__in=session_ids, status="pending"):
        gates.setdefault(gate.session_id, []).append(_gate(gate))
    effects: dict[UUID, list[EffectSeen]] = {}
    for row in _effects(session_ids):
        effects.setdefault(row.session_id, []).append(_effect(row))
    stops = holds.live(project) if has_stops and session_ids else []
    for session in open_rows:
        yield (
            session,
            Seen(
                session.id,
                mode=session.mode,
                status=session.status,
                created_at_us=session.created_at_us,
                start_by_us=session.start_by_us,
                lease=_lease(getattr(session, "lease", None)),
                gates=gates.get(session.id, ()),
                effects=effects.get(session.id, ()),
                handoff=_handoff(getattr(session, "handoff", None)),
                loop=(loops or {}).get(session.id),
                fenced=(fenced or {}).get(session.id),
                stopped=holds.covering(stops, session.id, session.agent_id, "", None) is not None,
                helped=session.helped,
            ),
        )


def _said_unknown() -> Any:
    """Query commands that the agent reported as unknown and nobody has resolved."""
    return Effect.objects.filter(
        HAS_BAD_OUTCOME,
        outcome="unknown",
        state__in=("failed", "acknowledged"),
        lane="command",
        resolution="",
    )


def _effects(sessions: list[UUID]) -> Iterable[Effect]:
    """Load dispatched effects without an answer, and effects answered as unknown."""
    released = Effect.objects.filter(_OPEN, session__in=sessions, state="dispatched").exclude(
        leave_basis=_IMPORTED
    )
    return released.union(_said_unknown().filter(session__in=sessions), all=True)


def _lease(lease: Lease | None) -> LeaseSeen | None:
    if lease is None:
        return None
    return LeaseSeen(
        epoch=lease.epoch,
        process=lease.process,
        beat_at_us=lease.beat_at_us,
        progress_at_us=lease.progress_at_us,
        expires_at_us=lease.expires_at_us,
        dead_at_us=lease.dead_at_us,
        wedged_at_us=lease.wedged_at_us,
        quiet_until_us=lease.quiet_until_us,
        released_at_us=lease.released_at_us,
    )


def _gate(gate: Gate) -> GateSeen:
    whose = who(Requirement.of(gate.requirement))
    return GateSeen(gate.id, str(gate), gate.tool, gate.requested_at_us, gate.decide_by_us, whose)


def _effect(effect: Effect) -> EffectSeen:
    unknown = effect.state != "dispatched"
    since = effect.deadline_us if not unknown else effect.changed_us
    return EffectSeen(effect.id, str(effect), effect.tool, since, effect.dispatched_at_us, unknown)


def _handoff(handoff: Handoff | None) -> HandoffSeen | None:
    if handoff is None:
        return None
    return HandoffSeen(
        handoff.id,
        f"handoff {handoff.opened_position}",
        handoff.created_at_us,
        handoff.accept_by_us or 0,
    )
