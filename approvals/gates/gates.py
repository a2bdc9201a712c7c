"""The one writer of Gate: how a gate opens, changes status, reaches its deadline and ends.

The permission of its effect follows. Every change is one conditional UPDATE on status and version.
A passed deadline counts as passed, recorded or not.
Rows are locked in the same order everywhere: session, effect, gate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet, Subquery

from accounts import projects
from accounts.models import Agent
from accounts.people import ensure_pseudonym
from approvals.digests import (
    BOUND_TARGET_COLUMNS,
    compute_approval_digest,
    compute_preconditions_digest,
    may_be_same_target,
)
from approvals.gates import listener
from approvals.gates.statuses import (
    APPROVED_STATUSES,
    GATE_TRANSITIONS,
    OPEN_STATUSES,
    PERMISSION_OF_STATUS,
    US,
)
from approvals.models import Gate
from approvals.policies import policy_evaluation
from approvals.policies.engine import Requirement
from approvals.policies.policy_evaluation import PlanPayload
from db import raw_sql
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from db.row_changes import RowChange, write_row_changes
from journal import entries, outbox
from journal.entries import Origin
from journal.models import Entry
from ledger import permissions
from ledger.permissions import Grant
from ledger.store import reader
from ledger.store.effect_rows import EffectRow
from sessions import sessions
from sessions.models import Session

OWNER_FACTS: Final = ("session_owner", "agent_owner")  # in the entry: who may not approve


class GateConflict(Exception):
    """The gate changed between reading and locking; read it again."""


@dataclass(frozen=True, slots=True)
class GateDraft:
    """A gate to open: its id, and the rule that requires approval."""

    id: UUID
    policy_set: UUID
    rule: str
    requirement: Requirement


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


def find_session_denial(
    session: UUID, agent: UUID, tool: str, intent: str, target: Mapping[str, Any]
) -> UUID | None:
    """Return the gate on which people denied the same action for the session, or None.

    A target that leaves a column empty could be anything, so a denial also applies where the
    targets may be the same: an agent cannot get past it by naming more or less. On whose behalf the
    agent acts does not matter.
    """
    denied_gates = Gate.objects.filter(
        session=session, status="denied_session", agent=agent, tool=tool, intent_digest=intent
    )
    rows = denied_gates.values_list("id", *(f"effect__{name}" for name in BOUND_TARGET_COLUMNS))
    bound = tuple(target.get(name) or "" for name in BOUND_TARGET_COLUMNS)
    return next(
        (
            gate
            for gate, *denied_target in rows.order_by("opened_position")
            if may_be_same_target(bound, denied_target)
        ),
        None,
    )


def open_gate(
    draft: GateDraft, origin: Origin, payload: PlanPayload, effect: EffectRow, plan_position: int
) -> None:
    """Write the gate of a written effect and its entry, and enqueue the notification."""
    now = origin.received_us
    parties = load_request_parties(effect.session_id, origin.agent)
    severity = policy_evaluation.compute_severity(origin.project, effect, payload.arguments)
    requirement = draft.requirement.strengthened(severity.reversibility, severity.risk)
    digest = compute_approval_digest(
        effect.session_id,
        origin.agent,
        effect.tool,
        effect.intent_digest,
        policy_evaluation.get_target_columns(effect),
        parties.on_behalf_of or "",
    )
    facts: dict[str, Any] = {
        "digest": digest,
        "preconditions": compute_preconditions_digest(payload.preconditions),
        "requirement": requirement.hash,
        "minimum": requirement.minimum,
        "deny_threshold": requirement.deny_threshold,
        "decide_by_us": now + requirement.decide_within_s * US,
        "valid_for_s": requirement.valid_for_s,
        "policy_set": draft.policy_set.hex,
        "rule": draft.rule,
        "risk": severity.risk,
        "reversibility": severity.reversibility,
        "plan": plan_position,
        "step_up": requirement.step_up,
        "reason_of_yes": requirement.reason_of_yes,
        "self_approval": int(requirement.self_approval),
    }
    if parties.on_behalf_of:
        facts["on_behalf_of"] = parties.on_behalf_of
    owners = (parties.session_owner, parties.agent_owner)
    for name, owner, pseudonym in zip(OWNER_FACTS, owners, parties.owners, strict=True):
        # Empty where there is none, so that a check can tell that none was left out.
        facts[name] = ""
        if owner is not None:
            facts[name] = pseudonym or ensure_pseudonym(User.objects.get(id=owner))
    entry = entries.record_system_entry(
        origin.project,
        "gate.requested",
        event_id=entries.keyed_digest("gate", draft.id.hex),
        text=entries.dump_sorted_json(
            {"kind": "gate.requested", "gate": draft.id, **facts, "asks": requirement.as_dict()}
        ),
        received_us=now,
        actor=origin.actor,
        facts=entries.dump_sorted_json(facts),
        session=effect.session_id,
        effect=effect.id,
        subject=draft.id,
    )
    Gate.objects.create(
        id=draft.id,
        project_id=origin.project,
        session_id=effect.session_id,
        effect_id=effect.id,
        agent_id=origin.agent,
        opened_position=entry.position,
        plan_position=plan_position,
        digest=digest,
        intent_digest=effect.intent_digest,
        preconditions_digest=facts["preconditions"],
        requirement=requirement.as_dict(),
        requirement_hash=requirement.hash,
        policy_set_id=draft.policy_set,
        rule=draft.rule,
        risk=severity.risk,
        reversibility=severity.reversibility,
        tool=effect.tool,
        repository_name=payload.repository,
        requester_id=parties.requester,
        session_owner_id=parties.session_owner,
        agent_owner_id=parties.agent_owner,
        self_approval=requirement.self_approval,
        minimum=requirement.minimum,
        deny_threshold=requirement.deny_threshold,
        step_up=requirement.step_up,
        reason_of_yes=requirement.reason_of_yes,
        requested_at_us=now,
        decide_by_us=facts["decide_by_us"],
        valid_for_s=requirement.valid_for_s,
    )
    outbox.queue_delivery(
        origin.project,
        entry=entry.position,
        topic="gate.requested",
        deduplication_key=f"gate.requested:{draft.id.hex}",
        due_at_us=now,
    )


def reopen_gate(row: EffectRow, gate: Gate, identity: UUID, now: int) -> None:
    """Open a request again under the id `identity`, with the terms of an ended one.

    Both rows are locked. The new request waits for all of its approvals, as long as its rule says.
    """
    first = Entry.objects.get(project=gate.project_id, position=gate.opened_position)
    until = now + Requirement.of(gate.requirement).decide_within_s * US
    facts = orjson.loads(first.facts) | {"decide_by_us": until}
    entry = entries.record_system_entry(
        gate.project_id,
        "gate.requested",
        event_id=entries.keyed_digest("gate", identity.hex),
        text=entries.dump_sorted_json(
            {"kind": "gate.requested", "gate": identity, **facts, "asks": gate.requirement}
        ),
        received_us=now,
        actor=first.actor,
        facts=entries.dump_sorted_json(facts),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=identity,
    )
    terms = {name: getattr(gate, name) for name in _TERMS}
    Gate.objects.create(
        **terms,
        id=identity,
        opened_position=entry.position,
        requested_at_us=now,
        decide_by_us=until,
    )
    permissions.change_permission(row, Grant("pending", "policy", identity.hex, until), now)
    outbox.queue_delivery(
        gate.project_id,
        entry=entry.position,
        topic="gate.requested",
        deduplication_key=f"gate.requested:{identity.hex}",
        due_at_us=now,
    )


# What a request that is made again has in common with the first one.
_TERMS: Final = (
    "project_id",
    "session_id",
    "effect_id",
    "agent_id",
    "plan_position",
    "digest",
    "intent_digest",
    "preconditions_digest",
    "requirement",
    "requirement_hash",
    "policy_set_id",
    "rule",
    "risk",
    "reversibility",
    "tool",
    "repository_name",
    "requester_id",
    "session_owner_id",
    "agent_owner_id",
    "self_approval",
    "minimum",
    "deny_threshold",
    "step_up",
    "reason_of_yes",
    "valid_for_s",
)


def end_gate(
    row: EffectRow,
    gate: Gate,
    status: str,
    reason: str,
    now: int,
    actor: str = entries.SYSTEM_SOURCE,
    more_facts: Mapping[str, Any] = MappingProxyType({}),
    *,
    votes: int = 0,
) -> None:
    """Close a locked gate and update its effect's permission.

    `more_facts` are stored in the journal entry; `votes` as of `change_gate_status`.
    """
    close_gate(gate, status, reason, now, actor, more_facts, votes=votes)
    apply_gate_to_permission(row, gate, now)


def apply_gate_to_permission(row: EffectRow, gate: Gate, now: int) -> None:
    """Update the permission of a locked effect whose gate has ended."""
    if row.permission in ("pending", "granted") and row.permission_ref == gate.id.hex:
        permission, basis = PERMISSION_OF_STATUS[gate.status]
        permissions.store_grant(row, Grant(permission, basis, gate.id.hex), now)


def approve_gate(row: EffectRow, gate: Gate, now: int, votes: int) -> None:
    """Grant the permission: the quorum is complete.

    Both rows are locked; the caller writes the entry of the decision. `votes` as of
    `change_gate_status`.
    """
    until = now + gate.valid_for_s * US
    change_gate_status(gate, "approved", votes=votes, decided_at_us=now, permission_until_us=until)
    permissions.store_grant(row, Grant("granted", "ruling", gate.id.hex, until), now)
    entries.record_system_entry(
        gate.project_id,
        "effect.granted",
        event_id=entries.keyed_digest("granted", gate.id.hex),
        text=entries.dump_sorted_json(
            {"effect": row.id, "permission": "granted", "basis": "ruling", "gate": gate.id}
        ),
        received_us=now,
        facts=entries.dump_sorted_json(
            {"permission": "granted", "basis": "ruling", "until_us": until}
        ),
        session=row.session_id,
        effect=row.id,
        subject=gate.id,
    )
    enqueue_gate_notification(gate, now)


def extend_gate(row: EffectRow, gate: Gate, until: int) -> None:
    """Extend the time to decide to `until`. Both rows are locked."""
    touch_gate(gate, decide_by_us=until)
    permissions.store_grant(row, Grant("pending", "policy", gate.id.hex, until), now_us())


def touch_gate(gate: Gate, **values: int) -> None:
    """Change the deadline of an open, locked gate, or only count a vote as a version."""
    if not Gate.objects.filter(id=gate.id, version=gate.version).update(
        version=F("version") + 1, **values
    ):
        raise GateConflict
    gate.version += 1
    for name, value in values.items():
        setattr(gate, name, value)


def use_gate(gate: Gate, attempt: int, received_us: int) -> None:
    """Record which attempt used the permission.

    A dispatch received before the decision counts as used at the time of the decision.
    """
    now = max(received_us, gate.decided_at_us or 0)
    _record_gate_entry(gate, "gate.used", now, {"attempt": attempt})
    change_gate_status(gate, "used", used_at_us=now, used_attempt=attempt, ended_at_us=now)


def close_gate(
    gate: Gate,
    status: str,
    reason: str,
    now: int,
    actor: str,
    more_facts: Mapping[str, Any],
    *,
    votes: int = 0,
) -> None:
    decided = (
        {}
        if gate.decided_at_us is not None or status in ("expired", "cancelled")
        else {"decided_at_us": now}
    )
    # The entry comes first: a guard refuses a status without one (approval_guards.py).
    if status not in ("denied", "denied_session"):
        _record_gate_entry(gate, f"gate.{status}", now, {"reason": reason, **more_facts}, actor)
    change_gate_status(gate, status, votes=votes, ended_at_us=now, reason=reason, **decided)
    enqueue_gate_notification(gate, now)


def enqueue_gate_notification(gate: Gate, now: int) -> None:
    """Enqueue the notification of the gate's status."""
    outbox.queue_delivery(
        gate.project_id,
        entry=gate.opened_position,
        topic="gate.resolved",
        deduplication_key=f"gate.resolved:{gate.id.hex}:{gate.status}",
        due_at_us=now,
    )


def change_gate_status(gate: Gate, status: str, *, votes: int = 0, **values: Any) -> None:
    """Change status by one conditional UPDATE on status and version; else raise GateConflict.

    `votes` is how many votes came in that `touch_gate` was not called for: each counts as a
    version.
    """
    if status not in GATE_TRANSITIONS.get(gate.status, ()):
        raise GateConflict
    version = gate.version + votes + 1
    changed = {"status": status, "version": version, **values}
    condition = [raw_sql.vendor_id(gate.id), gate.status, gate.version]
    assigned = ", ".join(f"{name} = %s" for name in changed)
    text = f"UPDATE approvals_gate SET {assigned} WHERE id = %s AND status = %s AND version = %s"
    if not raw_sql.execute_write(text, [*changed.values(), *condition]):
        raise GateConflict
    gate.status, gate.version = status, version
    if status != "used":  # the agent that used the permission does not wait for it
        listener.announce_gates([gate.id])
    for name, value in values.items():
        setattr(gate, name, value)


class LockedGate(NamedTuple):
    """A gate and its effect, both locked and up to date as of `at_us`."""

    row: EffectRow
    gate: Gate
    at_us: int


def lock_gate(gate: Gate) -> LockedGate:
    """Lock a gate and its effect in the order of dispatch, and apply passed deadlines."""
    row = reader.lock_effects([gate.effect_id])[gate.effect_id]
    (locked,) = _GATE_LOCK.rows(gate=gate.id)
    at_us = now_us()  # read after the locks: this transaction follows the one that held them
    settle_gate(row, locked, at_us)
    return LockedGate(row, locked, at_us)


def _gate_lock_query(gate: UUID) -> "QuerySet[Gate]":
    return Gate.objects.select_for_update().filter(id=gate)


_GATE_LOCK: Final = CompiledQuerySet(_gate_lock_query, gate=UUID)


def current_gate_status(gate: Gate, now: int) -> str:
    """Return the status as of `now`, also if no sweep has recorded it yet."""
    if gate.status == "pending" and gate.decide_by_us < now:
        return "expired"
    if gate.status == "approved" and is_approval_expired(gate, now):
        return "expired_unused"
    return gate.status


def settle_gate(row: EffectRow, gate: Gate, now: int) -> None:
    """Record a deadline that has passed. Both rows are locked."""
    status = current_gate_status(gate, now)
    if status != gate.status:
        end_gate(row, gate, status, "", now)


def settle_gate_of_effect(row: EffectRow, now: int) -> None:
    """Settle the gate of a locked effect whose permission is pending."""
    settle_gate(row, Gate.objects.select_for_update().get(id=UUID(hex=row.permission_ref)), now)


def settle_permission(row: EffectRow, now: int) -> Gate | None:
    """Record that a locked effect's permission has expired, or the request for it.

    Return the gate that grants the permission, locked; None without one.
    """
    if row.permission == "pending" and permissions.is_permission_expired(row, now):
        settle_gate_of_effect(row, now)
    elif row.permission == "granted" and row.permission_basis == "ruling":
        gate = Gate.objects.select_for_update().get(id=UUID(hex=row.permission_ref))
        settle_gate(row, gate, now)
        return gate if gate.status == "approved" else None
    elif row.permission == "granted" and permissions.is_permission_expired(row, now):
        permissions.change_permission(row, Grant("none", "expired_unused"), now)
    return None


@transaction.atomic(durable=True)
def _expire_one(identity: UUID) -> bool:
    gate = Gate.objects.filter(id=identity).first()
    if gate is None:
        return False
    before = gate.status
    locked = lock_gate(gate).gate
    return locked.status != before


def expire_due_gates(limit: int = 500) -> int:
    """Record passed deadlines, each gate in its own transaction; return how many."""
    now = now_us()
    undecided = Gate.objects.filter(status="pending", decide_by_us__lt=now)
    unused = Gate.objects.filter(status="approved", permission_until_us__lt=now)
    hidden = list(projects.query_hidden_samples().values_list("id", flat=True))
    late = [
        gate
        for late_gates in (undecided, unused)
        for gate in late_gates.exclude(project__in=hidden).values_list("id", flat=True)[:limit]
    ]
    return sum(_expire_one(identity) for identity in late)


def settle_last_gate(row: EffectRow, now: int) -> None:
    """Record that an effect's last gate has expired, before a new decision."""
    if row.permission_basis == "ruling" and row.permission_ref and row.permission == "granted":
        gate = (
            Gate.objects.select_for_update()
            .filter(id=UUID(hex=row.permission_ref), status__in=OPEN_STATUSES)
            .first()
        )
        if gate is not None:
            settle_gate(row, gate, now)


def is_approval_expired(gate: Gate, now: int) -> bool:
    """True if an approval expired unused."""
    return (
        gate.status in APPROVED_STATUSES
        and gate.permission_until_us is not None
        and gate.permission_until_us < now
    )


def restore_gates(changes: Sequence[RowChange]) -> None:
    """Restore gates to what the journal gives (manage.py rebuild)."""
    write_row_changes(Gate, changes)


def _record_gate_entry(
    gate: Gate, kind: str, now: int, facts: dict[str, Any], actor: str = entries.SYSTEM_SOURCE
) -> None:
    entries.record_system_entry(
        gate.project_id,
        kind,
        event_id=entries.keyed_digest(kind, gate.id.hex),
        text=entries.dump_sorted_json({"kind": kind, "gate": gate.id, **facts}),
        received_us=now,
        actor=actor,
        facts=entries.dump_sorted_json(facts),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=gate.id,
    )
