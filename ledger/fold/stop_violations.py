"""Detect executions during a stop: violation `executed_while_stopped`.

Only the server's clock counts, and times of agents are ignored; pages show both. An attempt without
a command is known to have happened from its first report on. If a stop covered it at that moment,
nothing proves that it ran earlier. Never violations: attempts dispatched by command, since no
command passes a stop; attempts reported before the stop, whenever their outcome arrives; those
first reported after the stop was lifted; and imports, which are about the past.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ledger import stops as ledger_stops
from ledger.fold.effect_state import Fact
from ledger.store.effect_rows import AttemptRow, EffectRow

STOP_VIOLATION: Final = "executed_while_stopped"
_MOVING: Final = ("effect.dispatched", "effect.acknowledged", "effect.failed", "effect.probed")


class _Execution(NamedTuple):
    """An attempt without a command, its first report and reporting agent."""

    row: EffectRow
    heard_us: int
    agent: UUID


def mark_stop_violations(
    rows: Mapping[UUID, EffectRow],
    attempts: Mapping[UUID, Mapping[int, AttemptRow]],
    facts: Iterable[tuple[UUID, Fact]],
) -> list[EffectRow]:
    """Mark and return the effects that `facts` show to have run during a stop.

    One query, a second if there are stops. Between two changes of a stop the result does not depend
    on the order of facts: the reporting agent is checked with each fact, and what only a plan
    states (tool, agent) once the plan has arrived.
    """
    executions = [
        execution
        for effect, fact in facts
        for execution in _executions_in(rows[effect], attempts.get(effect, {}), fact)
    ]
    if not executions:
        return []
    stops = ledger_stops.load_stops_since(
        executions[0].row.project_id, min(execution.heard_us for execution in executions)
    )
    violating: dict[UUID, EffectRow] = {}
    for row, heard_us, agent in executions if stops else ():
        in_force = [
            stop
            for stop in stops
            if stop.set_at_us <= heard_us < (stop.lifted_at_us or heard_us + 1)
        ]
        agents = {agent, row.agent_id if row.planned_mark else agent}
        if any(
            ledger_stops.find_covering_stop(in_force, row.session_id, agent_id, row.tool, row.id)
            for agent_id in agents
        ):
            row.violates = True
            violating[row.id] = row
    return list(violating.values())


def _executions_in(
    row: EffectRow, attempts: Mapping[int, AttemptRow], fact: Fact
) -> list[_Execution]:
    if fact.kind == "effect.planned":
        candidates, agent = list(attempts.values()) if row.replanned else [], row.agent_id
    elif fact.kind in _MOVING and not fact.imports:
        attempt = attempts.get(fact.attempt)  # None if a probe did not find it
        candidates, agent = [attempt] if attempt is not None else [], fact.agent or row.agent_id
    else:
        return []
    return [
        _Execution(row, candidate.heard_us, agent)
        for candidate in candidates
        if candidate.lane == "evidence" and candidate.heard_us is not None
    ]
