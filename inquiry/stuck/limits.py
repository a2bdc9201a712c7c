"""The one writer of StuckLimit: limits of the rules that are others for one agent, and who said so."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from django.db import transaction

from inquiry.models import StuckLimit
from inquiry.stuck.rules import DEFAULT, LIMITS, Limits
from sessions.models import Agent
from sessions.records import record
from sessions.refused import RefusedError

KEPT_S: Final = 5
LONGEST_S: Final = 30 * 24 * 3600
_LEAST: Final = {"loop_calls": 2, "loop_attempts": 2}  # one call is no loop
_DEADLINES: Final = ("start_s", "progress_s", "orphan_s")  # computed at the write, by the defaults


@dataclass(frozen=True, slots=True)
class Known:
    """The limits of a project's agents. Who has none of their own has the defaults."""

    by_agent: Mapping[UUID, Limits] = field(default_factory=dict)

    def of(self, agent: UUID) -> Limits:
        """The limits for an agent's sessions."""
        return self.by_agent.get(agent, DEFAULT)

    @property
    def sooner_us(self) -> int:
        """How long before its stored deadline a rule may speak at the most, because some agent has a shorter limit."""
        own = self.by_agent.values()
        shorter: list[int] = [getattr(DEFAULT, name) - getattr(one, name) for one in own for name in _DEADLINES]
        return max([0, *shorter]) * 1_000_000


def known(project: UUID) -> Known:
    """A project's limits, read anew after a few seconds: every board and every sweep asks for them."""
    kept = _kept.get(project)
    if kept is None or kept[0] < time.monotonic():
        kept = _kept[project] = (time.monotonic() + KEPT_S, _read(project))
    return kept[1]


_kept: dict[UUID, tuple[float, Known]] = {}


def _read(project: UUID) -> Known:
    found: dict[UUID, Limits] = {}
    for agent, name, value in StuckLimit.objects.filter(project=project).values_list("agent", "name", "value"):
        if name in LIMITS:
            found[agent] = replace(found.get(agent, DEFAULT), **{name: value})
    return Known(found)


@transaction.atomic(savepoint=False)
def put(agent: Agent, name: str, value: int | None, *, actor: str) -> None:
    """Give an agent a limit of its own; None gives it the default again. Raises RefusedError."""
    if name not in LIMITS:
        raise RefusedError(f"There is no limit {name!r}: choose one of {', '.join(LIMITS)}.")
    if value is not None and not _LEAST.get(name, 0) <= value <= LONGEST_S:
        raise RefusedError(f"{name} is a whole number from {_LEAST.get(name, 0)} to {LONGEST_S}.")
    mine = StuckLimit.objects.filter(agent=agent, name=name)
    if value is None:
        mine.delete()
    else:
        StuckLimit.objects.update_or_create(
            agent=agent, name=name, defaults={"value": value, "project_id": agent.project_id}
        )
    transaction.on_commit(lambda: _kept.pop(agent.project_id, None))
    _kept.pop(agent.project_id, None)
    facts = {"agent": agent.id.hex, "limit": name, "value": value}
    record(agent.project_id, "stuck.limit_changed", actor=actor, subject=agent.id, facts=facts, words={})
