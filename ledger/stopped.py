"""What was reported although it had been stopped: told once as a breach, `executed_while_on_hold`.

Only the server's clock counts. An attempt that no command opened is known to have happened from the moment it was first
heard of; when a stop that covers it was in force at that moment, nothing here shows that it ran before. What agents say
of the time acquits nobody, as it accuses nobody: the page shows it beside. Never a breach: an attempt that was
dispatched by command (no command passes a stop) or was heard of before the stop, whenever its outcome is told; what
was first heard of after the stop was lifted; and imports, which tell of what is long past.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ledger import holds
from ledger.fold import Fact
from ledger.rows import AttemptRow, EffectRow

BREACH: Final = "executed_while_on_hold"
_MOVING: Final = ("effect.dispatched", "effect.acknowledged", "effect.failed", "effect.probed")


class _Told(NamedTuple):
    """An attempt that happened without a command, when it was first heard of, and who told of it."""

    row: EffectRow
    heard_us: int
    agent: UUID


def breaching(
    rows: Mapping[UUID, EffectRow],
    attempts: Mapping[UUID, Mapping[int, AttemptRow]],
    facts: Iterable[tuple[UUID, Fact]],
) -> list[EffectRow]:
    """Mark and return the effects that `facts`, folded already, show to have been done while a stop covered them.

    One query, a second where there are stops. Facts that agree give the same breaches in whatever order they come
    between two moves of a stop: who told of an attempt is asked about with each fact, and what only a plan tells (tool,
    agent) once it is heard.
    """
    executions = [
        execution
        for effect, fact in facts
        for execution in _told(rows[effect], attempts.get(effect, {}), fact)
    ]
    if not executions:
        return []
    stops = holds.since(
        executions[0].row.project_id, min(execution.heard_us for execution in executions)
    )
    violating: dict[UUID, EffectRow] = {}
    for row, heard_us, agent in executions if stops else ():
        in_force = [
            execution
            for execution in stops
            if execution.set_at_us <= heard_us < (execution.lifted_at_us or heard_us + 1)
        ]
        agents = {agent, row.agent_id if row.planned_mark else agent}
        if any(
            holds.covering(in_force, row.session_id, execution, row.tool, row.id)
            for execution in agents
        ):
            row.violates = True
            violating[row.id] = row
    return list(violating.values())


def _told(row: EffectRow, attempts: Mapping[int, AttemptRow], fact: Fact) -> list[_Told]:
    if fact.kind == "effect.planned":
        candidates, agent = list(attempts.values()) if row.replanned else [], row.agent_id
    elif fact.kind in _MOVING and not fact.imports:
        attempt = attempts.get(fact.attempt)  # none where a look found nothing of it
        candidates, agent = [attempt] if attempt is not None else [], fact.agent or row.agent_id
    else:
        return []
    return [
        _Told(row, candidate.heard_us, agent)
        for candidate in candidates
        if candidate.lane == "evidence" and candidate.heard_us is not None
    ]
