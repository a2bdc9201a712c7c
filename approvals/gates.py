"""The one writer of Gate: how a gate opens, moves and ends, and how its effect's leave follows.

Every move is one conditional UPDATE on status and version. Rows are locked in one order everywhere: session, effect,
gate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db import transaction
from django.db.models import F, QuerySet

from approvals import reading, waker
from approvals.binding import preconditions_digest
from approvals.matching import Requirement
from approvals.models import Gate
from approvals.reading import Asked
from approvals.states import GIVEN, LEAVE_OF, MOVES, OPEN, US
from journal import entries, outbox, sql
from journal.clock import now_us
from journal.compiled import Compiled
from ledger import effects, leaves
from ledger.leaves import Grant
from ledger.rows import EffectRow
from sessions.origin import Origin, Repeated


class Gone(Exception):
    """The gate moved on between looking and locking; look again."""


@dataclass(slots=True)
class Request:
    """A gate about to be written, once its effect is."""

    id: UUID
    origin: Origin
    asked: Asked
    policy_set: UUID
    rule: str
    requirement: Requirement
    digest: str


def open_for(request: Request, effect: EffectRow, plan_position: int) -> None:
    """Write the gate and its request, and note who is to hear of it."""
    origin, now = request.origin, request.origin.received_us
    parties = reading.parties(effect.session_id, origin.agent)
    about = reading.reversibility_and_risk(origin.project, effect)
    needed = request.requirement.strengthened(about.reversibility, about.risk)
    facts: dict[str, Any] = {
        "digest": request.digest,
        "preconditions": preconditions_digest(request.asked.preconditions),
        "requirement": needed.hash,
        "minimum": needed.minimum,
        "deny_threshold": needed.deny_threshold,
        "decide_by_us": now + needed.decide_within_s * US,
        "leave_for_s": needed.leave_for_s,
        "policy_set": request.policy_set.hex,
        "rule": request.rule,
        "risk": about.risk,
        "reversibility": about.reversibility,
        "plan": plan_position,
    }
    if parties.on_behalf_of:
        facts["on_behalf_of"] = parties.on_behalf_of
    appended = entries.record(
        origin.project,
        "gate.requested",
        event_id=entries.keyed_digest("gate", request.id.hex),
        text=_json({"kind": "gate.requested", "gate": request.id, **facts, "asks": needed.as_dict()}),
        received_us=now,
        actor=origin.actor,
        facts=_json(facts),
        session=effect.session_id,
        effect=effect.id,
        subject=request.id,
    )
    Gate.objects.create(
        id=request.id,
        project_id=origin.project,
        session_id=effect.session_id,
        effect_id=effect.id,
        agent_id=origin.agent,
        opened_position=appended.position,
        plan_position=plan_position,
        digest=request.digest,
        intent_digest=effect.intent_digest,
        preconditions_digest=facts["preconditions"],
        requirement=needed.as_dict(),
        requirement_hash=needed.hash,
        policy_set_id=request.policy_set,
        rule=request.rule,
        risk=about.risk,
        reversibility=about.reversibility,
        tool=effect.tool,
        repository_name=request.asked.repository,
        requester_id=parties.requester,
        session_owner_id=parties.session_owner,
        agent_owner_id=parties.agent_owner,
        self_approval=needed.self_approval,
        minimum=needed.minimum,
        deny_threshold=needed.deny_threshold,
        step_up=needed.step_up,
        reason_of_yes=needed.reason_of_yes,
        requested_at_us=now,
        decide_by_us=facts["decide_by_us"],
        leave_for_s=needed.leave_for_s,
    )
    outbox.put(
        origin.project,
        entry=appended.position,
        topic="gate.requested",
        deduplication_key=f"gate.requested:{request.id.hex}",
        due_at_us=now,
    )


def cancel(origin: Origin, gate: UUID) -> Gate | None:
    """Withdraw a request: only the agent that asked may. None when the project has no such gate of that agent.

    A gate that has ended stays as it is and is returned.
    """
    known = Gate.objects.filter(project=origin.project, id=gate, agent=origin.agent).first()
    if known is None:
        return None
    row, locked, _ = lock(known)
    draft = origin.draft(
        "gate.cancelled",
        facts=_json({"reason": "by_agent"}),
        session=known.session_id,
        effect=known.effect_id,
        subject=known.id,
    )
    if current_status(locked, origin.received_us) not in OPEN:
        if entries.look(draft, origin.received_us) is not None:
            raise Repeated  # it ended by this very command
        return locked
    # The command's own entry says it, under the agent's key.
    if entries.append([draft], origin.received_us)[0].status is not entries.Status.CREATED:
        raise Repeated
    move(locked, "cancelled", ended_at_us=origin.received_us, reason="by_agent")
    _tell(locked, origin.received_us)
    _follow(row, locked, origin.received_us)
    return locked


def cancel_of_session(session: UUID, received_us: int) -> int:
    """End every open gate of a session that ended, and return how many."""
    ended = 0
    for gate in Gate.objects.filter(session=session, status__in=OPEN).order_by("effect"):
        row, locked, _ = lock(gate)
        if current_status(locked, received_us) in OPEN:
            end(row, locked, "cancelled", "session_ended", received_us)
            ended += 1
    return ended


class Locked(NamedTuple):
    """A gate and its effect, both locked and brought up to date as of `at_us`: whatever follows is of that moment."""

    row: EffectRow
    gate: Gate
    at_us: int


def lock(gate: Gate) -> Locked:
    """Lock a gate and its effect, in the order that dispatch takes them, and bring its clocks up to date."""
    row = effects.load([gate.effect_id])[gate.effect_id]
    (locked,) = _LOCKED.rows(gate=gate.id)
    at_us = now_us()  # only now: whoever waited for the rows acts after whoever had them
    settle(row, locked, at_us)
    return Locked(row, locked, at_us)


def _one_locked(gate: UUID) -> "QuerySet[Gate]":
    return Gate.objects.select_for_update().filter(id=gate)


_LOCKED: Final = Compiled(_one_locked, gate=UUID)


def current_status(gate: Gate, now: int) -> str:
    """The status as of `now`: a passed deadline is passed, whether or not the sweeper has been."""
    if gate.status == "pending" and gate.decide_by_us < now:
        return "expired"
    if gate.status == "approved" and over(gate, now):
        return "lapsed"
    return gate.status


def settle_of(row: EffectRow, now: int) -> None:
    """The same for the gate of a locked effect whose leave is pending."""
    settle(row, Gate.objects.select_for_update().get(id=UUID(hex=row.leave_ref)), now)


def settle(row: EffectRow, gate: Gate, now: int) -> None:
    """Write down what the clock has decided already. Both rows are locked."""
    status = current_status(gate, now)
    if status != gate.status:
        end(row, gate, status, "", now)


def end(
    row: EffectRow,
    gate: Gate,
    status: str,
    reason: str,
    now: int,
    actor: str = entries.SYSTEM_SOURCE,
    told: Mapping[str, Any] = MappingProxyType({}),
    *,
    votes: int = 0,
) -> None:
    """Close a locked gate and let its effect's leave follow. `told` are more facts for the book; `votes` as of move."""
    close(gate, status, reason, now, actor, told, votes=votes)
    _follow(row, gate, now)


def _follow(row: EffectRow, gate: Gate, now: int) -> None:
    """Let the leave of a locked effect follow its gate, which has ended."""
    if row.leave in ("pending", "granted") and row.leave_ref == gate.id.hex:
        leave, basis = LEAVE_OF[gate.status]
        leaves.give_leave(row, Grant(leave, basis, gate.id.hex), now)


def approve(row: EffectRow, gate: Gate, now: int, votes: int) -> None:
    """Let the effect go: the quorum is complete. Both rows are locked; the ruling's entry is the caller's.

    `votes` as of move.
    """
    until = now + gate.leave_for_s * US
    move(gate, "approved", votes=votes, decided_at_us=now, leave_until_us=until)
    leaves.give_leave(row, Grant(*LEAVE_OF["approved"], gate.id.hex, until), now)
    entries.record(
        gate.project_id,
        "effect.granted",
        event_id=entries.keyed_digest("granted", gate.id.hex),
        text=_json({"effect": row.id, "leave": "granted", "basis": "ruling", "gate": gate.id}),
        received_us=now,
        facts=_json({"leave": "granted", "basis": "ruling", "until_us": until}),
        session=row.session_id,
        effect=row.id,
        subject=gate.id,
    )
    _tell(gate, now)


def extend(row: EffectRow, gate: Gate, until: int) -> None:
    """Let people decide until `until`. Both rows are locked."""
    touch(gate, decide_by_us=until)
    leaves.give_leave(row, Grant(*LEAVE_OF["pending"], gate.id.hex, until), now_us())


def touch(gate: Gate, **values: int) -> None:
    """Change what people may change of an open, locked gate (its deadline), or only note that a vote came in."""
    if not Gate.objects.filter(id=gate.id, version=gate.version).update(version=F("version") + 1, **values):
        raise Gone
    gate.version += 1
    for name, value in values.items():
        setattr(gate, name, value)


@transaction.atomic(durable=True)
def _sweep_one(identity: UUID) -> bool:
    gate = Gate.objects.filter(id=identity).first()
    if gate is None:
        return False
    before = gate.status
    locked = lock(gate).gate
    return locked.status != before


def sweep(most: int = 500) -> int:
    """Write down every deadline that has passed, each gate in a transaction of its own; return how many ended."""
    now = now_us()
    late = list(Gate.objects.filter(status="pending", decide_by_us__lt=now).values_list("id", flat=True)[:most]) + list(
        Gate.objects.filter(status="approved", leave_until_us__lt=now).values_list("id", flat=True)[:most]
    )
    return sum(_sweep_one(identity) for identity in late)


def end_lapsed(row: EffectRow, now: int) -> None:
    """Before leave is decided anew: write down that the last gate's time is over."""
    if row.leave_basis == "ruling" and row.leave_ref and row.leave == "granted":
        gate = Gate.objects.select_for_update().filter(id=UUID(hex=row.leave_ref), status__in=OPEN).first()
        if gate is not None:
            settle(row, gate, now)


def use(gate: Gate, attempt: int, received_us: int) -> None:
    """Note which attempt used the leave. One that was received before the ruling used it no sooner than that."""
    now = max(received_us, gate.decided_at_us or 0)
    move(gate, "used", used_at_us=now, used_attempt=attempt, ended_at_us=now)
    _record(gate, "gate.used", now, {"attempt": attempt})


def close(
    gate: Gate, status: str, reason: str, now: int, actor: str, told: Mapping[str, Any], *, votes: int = 0
) -> None:
    decided = {} if gate.decided_at_us is not None or status in ("expired", "cancelled") else {"decided_at_us": now}
    move(gate, status, votes=votes, ended_at_us=now, reason=reason, **decided)
    if status not in ("denied", "denied_final"):
        _record(gate, f"gate.{status}", now, {"reason": reason, **told}, actor)
    _tell(gate, now)


def _tell(gate: Gate, now: int) -> None:
    """Note that whoever listens is to hear how the gate stands."""
    outbox.put(
        gate.project_id,
        entry=gate.opened_position,
        topic="gate.resolved",
        deduplication_key=f"gate.resolved:{gate.id.hex}:{gate.status}",
        due_at_us=now,
    )


def move(gate: Gate, status: str, *, votes: int = 0, **values: Any) -> None:
    """One conditional UPDATE on status and version: whoever was quicker has the word.

    `votes` is how many have come in with it of which `touch` was not told: each is a version too.
    """
    if status not in MOVES.get(gate.status, ()):
        raise Gone
    version = gate.version + votes + 1
    changed = {"status": status, "version": version, **values}
    condition = [sql.vendor_id(gate.id), gate.status, gate.version]
    assigned = ", ".join(f"{name} = %s" for name in changed)
    text = f"UPDATE approvals_gate SET {assigned} WHERE id = %s AND status = %s AND version = %s"
    if not sql.write(text, [*changed.values(), *condition]):
        raise Gone
    gate.status, gate.version = status, version
    if status != "used":  # whoever used it is not waiting for it
        waker.announce([gate.id])
    for name, value in values.items():
        setattr(gate, name, value)


def _record(gate: Gate, kind: str, now: int, facts: dict[str, Any], actor: str = entries.SYSTEM_SOURCE) -> None:
    entries.record(
        gate.project_id,
        kind,
        event_id=entries.keyed_digest(kind, gate.id.hex),
        text=_json({"kind": kind, "gate": gate.id, **facts}),
        received_us=now,
        actor=actor,
        facts=_json(facts),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=gate.id,
    )


def over(gate: Gate, now: int) -> bool:
    return gate.status in GIVEN and gate.leave_until_us is not None and gate.leave_until_us < now


def _json(facts: dict[str, Any]) -> str:
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()
