"""Deadlines of gates: a passed deadline counts as passed, recorded or not."""

from typing import Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from approvals import gates
from approvals.models import Gate
from approvals.states import GIVEN, OPEN
from journal.clock import now_us
from journal.compiled import Compiled
from ledger import effects
from ledger.rows import EffectRow


class Locked(NamedTuple):
    """A gate and its effect, both locked and up to date as of `at_us`."""

    row: EffectRow
    gate: Gate
    at_us: int


def lock(gate: Gate) -> Locked:
    """Lock a gate and its effect in the order of dispatch, and apply passed deadlines."""
    row = effects.load([gate.effect_id])[gate.effect_id]
    (locked,) = _GATE_LOCK.rows(gate=gate.id)
    at_us = now_us()  # read after the locks: this transaction follows the one that held them
    settle(row, locked, at_us)
    return Locked(row, locked, at_us)


def _gate_lock_query(gate: UUID) -> "QuerySet[Gate]":
    return Gate.objects.select_for_update().filter(id=gate)


_GATE_LOCK: Final = Compiled(_gate_lock_query, gate=UUID)


def current_status(gate: Gate, now: int) -> str:
    """Return the status as of `now`, also if no sweep has recorded it yet."""
    if gate.status == "pending" and gate.decide_by_us < now:
        return "expired"
    if gate.status == "approved" and over(gate, now):
        return "lapsed"
    return gate.status


def settle(row: EffectRow, gate: Gate, now: int) -> None:
    """Record a deadline that has passed. Both rows are locked."""
    status = current_status(gate, now)
    if status != gate.status:
        gates.end(row, gate, status, "", now)


def settle_of(row: EffectRow, now: int) -> None:
    """Settle the gate of a locked effect whose permission is pending."""
    settle(row, Gate.objects.select_for_update().get(id=UUID(hex=row.leave_ref)), now)


@transaction.atomic(durable=True)
def _expire_one(identity: UUID) -> bool:
    gate = Gate.objects.filter(id=identity).first()
    if gate is None:
        return False
    before = gate.status
    locked = lock(gate).gate
    return locked.status != before


def sweep(limit: int = 500) -> int:
    """Record passed deadlines, each gate in its own transaction; return how many."""
    now = now_us()
    undecided = Gate.objects.filter(status="pending", decide_by_us__lt=now)
    unused = Gate.objects.filter(status="approved", leave_until_us__lt=now)
    late = [
        gate for gates in (undecided, unused) for gate in gates.values_list("id", flat=True)[:limit]
    ]
    return sum(_expire_one(identity) for identity in late)


def end_lapsed(row: EffectRow, now: int) -> None:
    """Record that an effect's last gate has expired, before a new decision."""
    if row.leave_basis == "ruling" and row.leave_ref and row.leave == "granted":
        gate = (
            Gate.objects.select_for_update()
            .filter(id=UUID(hex=row.leave_ref), status__in=OPEN)
            .first()
        )
        if gate is not None:
            settle(row, gate, now)


def over(gate: Gate, now: int) -> bool:
    """True if an approval expired unused."""
    return gate.status in GIVEN and gate.leave_until_us is not None and gate.leave_until_us < now
