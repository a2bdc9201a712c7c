"""Record outcomes of effects and withdraw effects, together with their gates.

`supersede_with_gates` and `acknowledge_with_gates` are the commands. `end_gates_of_moved_effects`
closes the gates of effects that happened without waiting. plan_command.py and dispatch_command.py
plan and dispatch effects; approvals/voting/votes.py writes the votes of people.
"""

from collections.abc import Iterable
from uuid import UUID

import orjson
from django.db.models import Q

from approvals.gates import gates
from approvals.gates.statuses import OPEN_STATUSES
from approvals.models import Gate
from journal.entries import Origin
from journal.models import Entry
from ledger import commands, permissions
from ledger.commands import CommandResult
from ledger.models import Attempt
from ledger.permissions import Grant
from ledger.refusals import Refusal
from ledger.states import MOVED_PERMISSIONS
from ledger.store.effect_rows import EffectRow
from sessions import writers


def supersede_with_gates(origin: Origin, effect: UUID) -> CommandResult:
    """Withdraw an effect that has not happened, and its open gate. Raises LookupError."""
    row, attempts = commands.lock_effect(origin, effect)
    writers.require_writer(
        origin,
        row.session_id,
        "effect.superseded",
        task=row.task_id,
        effect=row.id,
        also=commands.planning_agent(row),
    )
    refusal = commands.find_supersede_refusal(row, origin.received_us)
    if refusal is not None:
        return CommandResult(row, 409, refusal)
    stale_lease = writers.check_epoch(
        origin.project, row.session_id, origin.lease_epoch, row.task_id
    )
    if stale_lease is not None:
        writers.record_fenced_command(
            origin, row.session_id, stale_lease, kind="effect.superseded", effect=row.id
        )
        return CommandResult(row, 409, Refusal("LEASE_LOST", stale_lease.sentence))
    open_gates = list(
        Gate.objects.select_for_update().filter(effect=row.id, status__in=OPEN_STATUSES)
    )
    for gate in open_gates:
        gates.settle_gate(row, gate, origin.received_us)
    result = commands.record_superseded(origin, row, attempts)
    for gate in open_gates:
        if gate.status in OPEN_STATUSES:
            gates.end_gate(row, gate, "cancelled", "superseded", origin.received_us, origin.actor)
    return result


def acknowledge_with_gates(
    origin: Origin, effect: UUID, *, attempt: int, outcome: str, external_reference: str
) -> CommandResult:
    """Record the outcome of an attempt. Raises LookupError.

    A late outcome may end the gate that was opened for the next attempt. An outcome is recorded
    even while a stop is in force or permission is missing.
    """
    result = commands.acknowledge_attempt(
        origin,
        effect,
        attempt=attempt,
        outcome=outcome,
        external_reference=external_reference,
    )
    if result.status == 202:
        end_gates_of_moved_effects([result.effect], origin.received_us)
    return result


def end_gates_of_moved_effects(rows: Iterable[EffectRow], received_us: int) -> None:
    """End the open gates of locked effects that were reported as done or withdrawn.

    Where a gate was cancelled because an earlier attempt turned out to have happened, and the
    attempt that the gate was for ran as well, the permission of that attempt is the gate's. The
    gate stays as it ended.
    """
    changed_rows = {
        row.id: row
        for row in rows
        if row.recalled
        or (
            row.permission_ref
            and (row.permission in MOVED_PERMISSIONS or row.state == "superseded")
        )
    }
    if not changed_rows:
        return
    condition = Q(status__in=OPEN_STATUSES)
    if any(row.recalled for row in changed_rows.values()):
        condition |= Q(status="cancelled", reason="happened")
    affected_gates = Gate.objects.select_for_update().filter(condition, effect__in=changed_rows)
    for gate in affected_gates.order_by("effect", "opened_position"):
        row = changed_rows[gate.effect_id]
        if gate.status == "cancelled":
            if row.recalled and row.permission_until_us in (
                gate.permission_until_us,
                gate.decide_by_us,
            ):
                basis = "ruling" if row.permission == "used" else row.permission_basis
                permissions.change_permission(
                    row,
                    Grant(row.permission, basis, gate.id.hex, row.permission_until_us),
                    received_us,
                )
            continue
        gates.settle_gate(row, gate, received_us)
        if gate.status not in OPEN_STATUSES:
            continue
        if row.spent_by:
            gates.use_gate(gate, row.spent_by, received_us)
        elif row.state == "superseded":
            gates.end_gate(row, gate, "cancelled", "superseded", received_us)
        elif row.permission == "bypassed":
            gates.end_gate(row, gate, "cancelled", "bypassed", received_us)
        else:
            gates.end_gate(row, gate, "cancelled", "happened", received_us)
            permissions.change_permission(row, _permission_of_attempt(row), received_us)


def _permission_of_attempt(row: EffectRow) -> Grant:
    """Return the permission of an earlier attempt that turned out to have happened."""
    permission_entries = Entry.objects.filter(
        effect=row.id, kind__in=("effect.planned", "effect.granted")
    ).order_by("-position")
    attempt = (
        Attempt.objects.filter(effect=row.id)
        .exclude(acknowledged_mark="")
        .order_by("-number")
        .first()
    )
    gate = (
        Gate.objects.filter(effect=row.id, used_attempt=attempt.number).first()
        if attempt is not None
        else None
    )
    if gate is not None:
        return Grant(row.permission, "ruling", gate.id.hex)
    decisions = (
        orjson.loads(facts) for facts in permission_entries.values_list("facts", flat=True)
    )
    return Grant(
        row.permission,
        next(
            (
                decision["basis"]
                for decision in decisions
                if decision.get("permission") == "granted"
            ),
            "observe",
        ),
    )
