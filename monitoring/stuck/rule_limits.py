"""The one writer of StuckLimit: limits of the stuck rules per agent."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from django.db import transaction

from accounts.audit_log import record_admin_entry
from accounts.models import Agent
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from monitoring.models import StuckLimit
from monitoring.stuck.rules import DEFAULT_LIMITS, LIMIT_NAMES, RuleLimits

CACHE_S: Final = 5
LONGEST_S: Final = 30 * 24 * 3600
_MIN_VALUES: Final = {"loop_calls": 2, "loop_attempts": 2}  # one call is no loop
_DEADLINES: Final = ("start_s", "progress_s", "orphan_s")  # computed at the write, by the defaults


@dataclass(frozen=True, slots=True)
class ProjectLimits:
    """The limits of a project's agents. Agents without own limits have the defaults."""

    by_agent: Mapping[UUID, RuleLimits] = field(default_factory=dict)

    def of(self, agent: UUID) -> RuleLimits:
        """Return the limits for an agent's sessions."""
        return self.by_agent.get(agent, DEFAULT_LIMITS)

    @property
    def sooner_us(self) -> int:
        """Microseconds by which the shortest agent limit precedes the stored deadlines."""
        agent_limits = self.by_agent.values()
        shorter: list[int] = [
            getattr(DEFAULT_LIMITS, name) - getattr(limits, name)
            for limits in agent_limits
            for name in _DEADLINES
        ]
        return max([0, *shorter]) * 1_000_000


def load_limits(project: UUID) -> ProjectLimits:
    """Return a project's limits, cached for a few seconds: every board and sweep needs them."""
    cached = _cache.get(project)
    if cached is None or cached[0] < time.monotonic():
        cached = _cache[project] = (time.monotonic() + CACHE_S, _read_limits(project))
    return cached[1]


_cache: dict[UUID, tuple[float, ProjectLimits]] = {}


def _read_limits(project: UUID) -> ProjectLimits:
    by_agent: dict[UUID, RuleLimits] = {}
    for agent, name, value in StuckLimit.objects.filter(project=project).values_list(
        "agent", "name", "value"
    ):
        if name in LIMIT_NAMES:
            by_agent[agent] = replace(by_agent.get(agent, DEFAULT_LIMITS), **{name: value})
    return ProjectLimits(by_agent)


@transaction.atomic(savepoint=False)
def set_limit(agent: Agent, name: str, value: int | None, *, actor: str) -> None:
    """Set a limit of an agent; None restores the default. Raises ChangeRefused."""
    if name not in LIMIT_NAMES:
        raise ChangeRefused(f"Unknown limit {name!r}. Choose one of {', '.join(LIMIT_NAMES)}.")
    if value is not None and not _MIN_VALUES.get(name, 0) <= value <= LONGEST_S:
        raise ChangeRefused(
            f"{name} is out of range. Use a whole number from {_MIN_VALUES.get(name, 0)} to "
            f"{LONGEST_S}."
        )
    # The entry comes first: guards refuse a limit without one (limit_guards.py).
    facts = {"agent": agent.id.hex, "limit": name, "value": value}
    record_admin_entry(
        agent.project_id,
        "stuck.limit_changed",
        actor=actor,
        subject=agent.id,
        facts=facts,
        words={},
    )
    stored = StuckLimit.objects.filter(agent=agent, name=name)
    if value is None:
        stored.delete()
    else:
        StuckLimit.objects.update_or_create(
            agent=agent, name=name, defaults={"value": value, "project_id": agent.project_id}
        )
    transaction.on_commit(lambda: _cache.pop(agent.project_id, None))
    _cache.pop(agent.project_id, None)


def restore_limits(changes: Sequence[RowChange]) -> None:
    """Restore limits to what the journal gives (manage.py rebuild)."""
    write_row_changes(StuckLimit, changes)
