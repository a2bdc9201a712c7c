"""Reads what the rules need: which sessions could be stuck, by the indexes of deadlines, and what is known of them.

A fixed number of queries for any number of sessions.
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

MOST: Final = 500  # sessions of which facts are read at once
_OPEN: Final = Func(
    F("state"), template="%(expressions)s IN ('planned', 'dispatched', 'failed')", output_field=BooleanField()
)
_IMPORTED: Final = "import"  # the basis of leave of what was recorded elsewhere, long ago
_BOTH_ENDS: Final = ExpressionWrapper(F("requested_at_us") + F("decide_by_us"), output_field=BigIntegerField())


@dataclass(slots=True)
class Found:
    """A session, what is known of it and why it is stuck."""

    session: Session
    seen: Seen
    reasons: list[Reason]


def candidates(project: UUID, now_us: int, limits: Known) -> list[UUID]:
    """Sessions of the project of which a deadline has passed, or an episode is open. One query.

    Deadlines are asked of the whole installation and the project is told apart afterwards: beside it a planner takes an
    index of the project for as narrow as that of the deadline, and walks through all of its sessions.
    """
    due = now_us + limits.sooner_us
    held = Lease.objects.filter(kind="session", released_at_us__isnull=True)
    overdue = Effect.objects.filter(IS_NOT_ACKNOWLEDGED, project=project, state="dispatched", deadline_us__lt=now_us)
    half_gone = Gate.objects.alias(both=_BOTH_ENDS).filter(project=project, status="pending", both__lt=2 * now_us)
    open_ones = StuckTransition.objects.filter(project=project, cleared_us__isnull=True, session__isnull=False)
    arms: list[Any] = [
        Session.objects.filter(start_by_us__lt=due).values_list("project", "id"),
        held.filter(dead_at_us__lt=due).values_list("project", "session"),
        held.filter(wedged_at_us__lt=due).values_list("project", "session"),
        Handoff.objects.filter(accept_by_us__lt=due).values_list("project", "session"),
        overdue.exclude(leave_basis=_IMPORTED).values_list("project", "session"),
        _said_unknown().filter(project=project).values_list("project", "session"),
        half_gone.values_list("project", "session"),
        open_ones.values_list("project", "session"),
    ]
    first, *others = [arm.order_by() for arm in arms]
    return [session for home, session in first.union(*others) if home == project]


def found(project: UUID, sessions: Collection[UUID], now_us: int, limits: Known, **more: Any) -> list[Found]:
    """What is known of these sessions of one project, and why they are stuck; those that are not are left out."""
    every = [Found(one, seen, []) for one, seen in facts(project, sessions, now_us, **more)]
    for one in every:
        one.reasons = status(one.seen, now_us, limits.of(one.session.agent_id))
    return [one for one in every if one.reasons]


def facts(
    project: UUID,
    sessions: Collection[UUID],
    now_us: int,
    *,
    loops: dict[UUID, Loop] | None = None,
    fenced: dict[UUID, Fenced] | None = None,
    has_stops: bool = True,
) -> Iterable[tuple[Session, Seen]]:
    """What the rules know of these sessions; of ended ones no more than that. Three queries, four with stops.

    `loops` and `fenced` are what was found by inquiry/stuck/loops.py; no deadline tells of them.
    """
    of_a_task = Lease.objects.filter(kind="task", released_at_us__isnull=True)
    rows: Any = Session.objects.filter(project=project, id__in=sessions).annotate(
        lease=FilteredRelation("leases", condition=Q(leases__kind="session")),
        handoff=FilteredRelation("handoffs", condition=Q(handoffs__accept_by_us__isnull=False)),
        helped=Exists(of_a_task.filter(session=OuterRef("id"), expires_at_us__gte=now_us)),
    )
    joined = rows.select_related("agent", "owner", "agent__owner", "lease", "handoff")
    open_rows: list[Any] = [one for one in joined if one.status not in ENDED]
    among = [one.id for one in open_rows]
    gates: dict[UUID, list[GateSeen]] = {}
    for gate in Gate.objects.filter(session__in=among, status="pending"):
        gates.setdefault(gate.session_id, []).append(_gate(gate))
    effects: dict[UUID, list[EffectSeen]] = {}
    for row in _effects(among):
        effects.setdefault(row.session_id, []).append(_effect(row))
    stops = holds.live(project) if has_stops and among else []
    for one in open_rows:
        yield (
            one,
            Seen(
                one.id,
                mode=one.mode,
                status=one.status,
                created_at_us=one.created_at_us,
                start_by_us=one.start_by_us,
                lease=_lease(getattr(one, "lease", None)),
                gates=gates.get(one.id, ()),
                effects=effects.get(one.id, ()),
                handoff=_handoff(getattr(one, "handoff", None)),
                loop=(loops or {}).get(one.id),
                fenced=(fenced or {}).get(one.id),
                stopped=holds.covering(stops, one.id, one.agent_id, "", None) is not None,
                helped=one.helped,
            ),
        )


def _said_unknown() -> Any:
    """Commands of which the agent itself said that nobody knows; a person or a probe has yet to."""
    return Effect.objects.filter(
        HAS_BAD_OUTCOME, outcome="unknown", state__in=("failed", "acknowledged"), lane="command", resolution=""
    )


def _effects(sessions: list[UUID]) -> Iterable[Effect]:
    """What was dispatched and not answered, and what was answered by nobody knows."""
    released = Effect.objects.filter(_OPEN, session__in=sessions, state="dispatched").exclude(leave_basis=_IMPORTED)
    return released.union(_said_unknown().filter(session__in=sessions), all=True)


def _lease(one: Lease | None) -> LeaseSeen | None:
    if one is None:
        return None
    return LeaseSeen(
        epoch=one.epoch,
        process=one.process,
        beat_at_us=one.beat_at_us,
        progress_at_us=one.progress_at_us,
        expires_at_us=one.expires_at_us,
        dead_at_us=one.dead_at_us,
        wedged_at_us=one.wedged_at_us,
        quiet_until_us=one.quiet_until_us,
        released_at_us=one.released_at_us,
    )


def _gate(one: Gate) -> GateSeen:
    whose = who(Requirement.of(one.requirement))
    return GateSeen(one.id, str(one), one.tool, one.requested_at_us, one.decide_by_us, whose)


def _effect(one: Effect) -> EffectSeen:
    unknown = one.state != "dispatched"
    since = one.deadline_us if not unknown else one.changed_us
    return EffectSeen(one.id, str(one), one.tool, since, one.dispatched_at_us, unknown)


def _handoff(one: Handoff | None) -> HandoffSeen | None:
    if one is None:
        return None
    return HandoffSeen(one.id, f"handoff {one.opened_position}", one.created_at_us, one.accept_by_us or 0)
