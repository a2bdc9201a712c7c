"""The one writer of StuckLimit: limits of the stuck rules per agent."""

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
    """The limits of a project's agents. Agents without own limits have the defaults."""

    by_agent: Mapping[UUID, Limits] = field(default_factory=dict)

    def of(self, agent: UUID) -> Limits:
        """Return the limits for an agent's sessions."""
        return self.by_agent.get(agent, DEFAULT)

    @property
    def sooner_us(self) -> int:
        """Microseconds by which the shortest agent limit precedes the stored deadlines."""
        agent_limits = self.by_agent.values()
        shorter: list[int] = [
            getattr(DEFAULT, name) - getattr(limits, name)
            for limits in agent_limits
            for name in _DEADLINES
        ]
        return max([0, *shorter]) * 1_000_000


def known(project: UUID) -> Known:
    """Return a project's limits, cached for a few seconds: every board and sweep needs them."""
    cached = _kept.get(project)
    if cached is None or cached[0] < time.monotonic():
        cached = _kept[project] = (time.monotonic() + KEPT_S, _read(project))
    return cached[1]


_kept: dict[UUID, tuple[float, Known]] = {}


def _read(project: UUID) -> Known:
    by_agent: dict[UUID, Limits] = {}
    for agent, name, value in StuckLimit.objects.filter(project=project).values_list(
        "agent", "name", "value"
    ):
        if name in LIMITS:
            by_agent[agent] = replace(by_agent.get(agent, DEFAULT), **{name: value})
    return Known(by_agent)


@transaction.atomic(savepoint=False)
def put(agent: Agent, name: str, value: int | None, *, actor: str) -> None:
    """Set a limit of an agent; None restores the default. Raises RefusedError."""
    if name not in LIMITS:
        raise RefusedError(f"Unknown limit {name!r}. Choose one of {', '.join(LIMITS)}.")
    if value is not None and not _LEAST.get(name, 0) <= value <= LONGEST_S:
        raise RefusedError(
            f"{name} is out of range. Use a whole number from {_LEAST.get(name, 0)} to {LONGEST_S}."
        )
    stored = StuckLimit.objects.filter(agent=agent, name=name)
    if value is None:
        stored.delete()
    else:
        StuckLimit.objects.update_or_create(
            agent=agent, name=name, defaults={"value": value, "project_id": agent.project_id}
        )
    transaction.on_commit(lambda: _kept.pop(agent.project_id, None))
    _kept.pop(agent.project_id, None)
    facts = {"agent": agent.id.hex, "limit": name, "value": value}
    record(
        agent.project_id,
        "stuck.limit_changed",
        actor=actor,
        subject=agent.id,
        facts=facts,
        words={},
    )
