"""Deadlines of gates: a passed deadline counts as passed, recorded or not."""

from typing import Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from accounts import projects
from approvals.gates import gates
from approvals.gates.statuses import APPROVED_STATUSES, OPEN_STATUSES
from approvals.models import Gate
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from ledger import permissions
from ledger.permissions import Grant
from ledger.store import writer
from ledger.store.effect_rows import EffectRow


class LockedGate(NamedTuple):
    """A gate and its effect, both locked and up to date as of `at_us`."""

    row: EffectRow
    gate: Gate
    at_us: int


def lock_gate(gate: Gate) -> LockedGate:
    """Lock a gate and its effect in the order of dispatch, and apply passed deadlines."""
    row = writer.load_effects([gate.effect_id])[gate.effect_id]
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
        gates.end_gate(row, gate, status, "", now)


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
        for gates in (undecided, unused)
        for gate in gates.exclude(project__in=hidden).values_list("id", flat=True)[:limit]
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
