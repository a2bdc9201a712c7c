"""What the clock decides of gates: a deadline that has passed is passed, whoever writes it down first."""

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


def settle(row: EffectRow, gate: Gate, now: int) -> None:
    """Write down what the clock has decided already. Both rows are locked."""
    status = current_status(gate, now)
    if status != gate.status:
        gates.end(row, gate, status, "", now)


def settle_of(row: EffectRow, now: int) -> None:
    """The same for the gate of a locked effect whose leave is pending."""
    settle(row, Gate.objects.select_for_update().get(id=UUID(hex=row.leave_ref)), now)


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
    late = list(
        Gate.objects.filter(status="pending", decide_by_us__lt=now).values_list("id", flat=True)[
            :most
        ]
    ) + list(
        Gate.objects.filter(status="approved", leave_until_us__lt=now).values_list("id", flat=True)[
            :most
        ]
    )
    return sum(_sweep_one(identity) for identity in late)


def end_lapsed(row: EffectRow, now: int) -> None:
    """Before leave is decided anew: write down that the last gate's time is over."""
    if row.leave_basis == "ruling" and row.leave_ref and row.leave == "granted":
        gate = (
            Gate.objects.select_for_update()
            .filter(id=UUID(hex=row.leave_ref), status__in=OPEN)
            .first()
        )
        if gate is not None:
            settle(row, gate, now)


def over(gate: Gate, now: int) -> bool:
    """Whether leave that people gave ran out unused."""
    return gate.status in GIVEN and gate.leave_until_us is not None and gate.leave_until_us < now
