"""Rows of the tables of effects: which columns they read, and a page of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Expression, F, QuerySet

from display import effect_runs
from journal import summaries
from ledger.models import Effect

DAY_US: Final = 86_400_000_000
SKEW_US: Final = 2_000_000  # if clocks differ by more, both are shown
# Columns that effect tables show. An effect has twice as many; each costs as much as showing it.
EFFECT_TABLE_COLUMNS: Final = (
    "opened_position",
    "project",
    "session",
    "agent",
    "tool",
    "plan_position",
    "received_us",
    "planned_at_us",
    "deadline_us",
    "state",
    "outcome",
    "permission",
    "permission_basis",
    "permission_until_us",
    "policy_rule",
    "policy_outcome",
    "attempt_count",
    "violates",
    "task",
    "repository",
    "ref",
    "ref_class",
    "environment",
    "intent_digest",
)


class FoundEffect(NamedTuple):
    """The columns of an effect that a table of found effects shows, by their names in a query.

    Fifty of these take a millisecond less than fifty models.
    """

    id: UUID
    opened_position: int
    session_id: UUID
    agent_id: UUID
    tool: str
    plan_position: int | None
    received_us: int
    deadline_us: int | None
    state: str
    outcome: str
    permission: str
    permission_basis: str
    violates: bool
    ref: str
    ref_class: str
    environment: str
    plan_head: str | None
    session_position: int
    agent_name: str
    repository_name: str | None

    @property
    def pk(self) -> UUID:
        return self.id

    def __str__(self) -> str:
        return f"e_{self.opened_position}"


@dataclass(slots=True)
class EffectTableRow:
    """One effect in a table."""

    effect: Any  # a FoundEffect, or a model loaded with `select_row_columns`
    marked: bool = False
    corrected_us: int | None = None  # when it was planned by the corrected clock, if requested

    @property
    def run(self) -> effect_runs.RunTimes:
        """Return when it ran; the effect was loaded with `annotate_runs`."""
        return effect_runs.read_run_times(self.effect)

    @property
    def gist(self) -> str | None:
        """Return the one-line summary of its call, untrusted.

        None without a readable plan.

        Parsed at each access: tables that show other text of an effect do not use it.
        """
        return summaries.summarize_plan_head(self.effect.plan_head)


@dataclass(slots=True)
class Timeline:
    """One page of rows, newest first, and the positions of its neighbors."""

    rows: list[EffectTableRow] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    marked_is_here: bool = True  # False if the row of `at` is not on this page

    @property
    def day(self) -> str:
        """Return the day (UTC) on which all rows arrived, empty for several days."""
        return common_day(row.effect.received_us for row in self.rows)

    @property
    def ran_day(self) -> str:
        """Return the day (UTC) on which all rows ran that did, empty for several days."""
        return common_day(us for row in self.rows if (us := row.run.ran_us) is not None)

    @property
    def has_agent_time(self) -> bool:
        """Return True if an agent time differs from the server time: then both are shown."""
        pairs = [(row.effect.planned_at_us, row.effect.received_us) for row in self.rows]
        return any(
            agent_us is not None and abs(agent_us - arrived) > SKEW_US
            for agent_us, arrived in pairs
        )

    @property
    def agent_day(self) -> str:
        """Return the day on which agents planned all rows, empty for several days."""
        return common_day(
            row.effect.planned_at_us for row in self.rows if row.effect.planned_at_us is not None
        )

    @property
    def tries(self) -> bool:
        """Return True if any of these rows was attempted more than once."""
        return any(row.effect.attempt_count > 1 for row in self.rows)

    @property
    def tasks(self) -> bool:
        """Return True if any of these rows belongs to a task."""
        return any(row.effect.task_id is not None for row in self.rows)


def common_day(times: Iterable[int]) -> str:
    """Return the only day (UTC) of a column of times, for its head; or empty."""
    days = {us // DAY_US for us in times}
    return (date(1970, 1, 1) + timedelta(days=days.pop())).isoformat() if len(days) == 1 else ""


def select_row_columns(effects: "QuerySet[Effect]", **joined: Expression | F) -> "QuerySet[Effect]":
    """Limit effects to the columns that a row shows, and add the start of the plan.

    `joined` are columns of other tables.
    """
    return effects.only(*EFFECT_TABLE_COLUMNS).annotate(
        plan_head=summaries.select_plan_heads(), **joined
    )


def to_effect_rows(effects: Iterable[Any], at: int | None = None) -> list[EffectTableRow]:
    """Return rows for effects loaded with `select_row_columns`; marks number `at`."""
    return [EffectTableRow(effect, effect.opened_position == at) for effect in effects]
