"""Rows of a list as of a cut: their columns, and what the list shows of related rows.

Names of people, agents and repositories are current ones; the relations are those of the cut.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from django.contrib.auth.models import User

from accounts.models import Agent, Repository
from display.run_times import derive_run_time
from investigation.history import past_entries, past_sessions
from investigation.history.moment import JournalCut
from journal import summaries
from ledger.models import Attempt, Effect
from sessions.models import Session, Task


class _RelatedColumn(NamedTuple):
    """A related value that a list shows: its name, the column of the relation, and the value."""

    name: str
    column: str
    model: Any
    shown: str


_EFFECT_RELATIONS: Final = (
    _RelatedColumn("agent_name", "agent_id", Agent, "name"),
    _RelatedColumn("repository_name", "repository_id", Repository, "name"),
    _RelatedColumn("parent_position", "parent_effect_id", Effect, "opened_position"),
    _RelatedColumn("compensates_position", "compensates_id", Effect, "opened_position"),
    _RelatedColumn("task_position", "task_id", Task, "opened_position"),
    _RelatedColumn("task_key", "task_id", Task, "key"),
)
_SESSION_RELATIONS: Final = (
    _RelatedColumn("agent_name", "agent_id", Agent, "name"),
    _RelatedColumn("repository_name", "repository_id", Repository, "name"),
    _RelatedColumn("owner_name", "owner_id", User, "username"),
    _RelatedColumn("parent_position", "parent_id", Session, "opened_position"),
)
_POSITIONS: Final = (
    "session_position",
    "effect_position",
    "parent_position",
    "compensates_position",
)


def set_past_values(rows: list[Any], rebuilt: Mapping[Any, Any], cut: JournalCut) -> list[Any]:
    """Set the columns of `rows` to their values at the cut.

    `rebuilt` has the rebuilt rows that changed since, by id. Takes a few queries for any number of
    rows.
    """
    changed: list[Any] = []
    for row in rows:
        past_row = rebuilt.get(row.pk)
        if past_row is not None:
            changed.append(row)
            for column in past_row._meta.concrete_fields:
                setattr(row, column.attname, getattr(past_row, column.attname))
        for name in _POSITIONS:  # A related row that did not exist yet.
            position = row.__dict__.get(name)
            if position is not None and position > cut.position:
                setattr(row, name, None)
        if getattr(row, "deadline_us", None) is not None and row.state == "dispatched":
            # Pages show a dispatch past its deadline as unknown; evaluate the deadline at the cut.
            row.deadline_us = 0 if row.deadline_us < cut.at_us else None
    if rows and isinstance(rows[0], Effect):
        _set_related(changed, _EFFECT_RELATIONS, cut)
        _set_plan_heads(changed)
        _set_run_times(changed, cut)
    elif rows and isinstance(rows[0], Session):
        _set_related(changed, _SESSION_RELATIONS, cut)
        last_received = past_sessions.load_last_received([row.pk for row in rows], cut)
        for row in rows:
            row.seen_at_us = last_received.get(row.pk) or row.created_at_us
    return rows


def load_column(model: Any, ids: Iterable[Any], shown: str) -> dict[Any, Any]:
    """Return a column of the rows of a model, by id."""
    values_by_id: dict[Any, Any] = {}
    unique_ids = sorted({row_id for row_id in ids if row_id is not None}, key=str)
    for start in range(0, len(unique_ids), past_entries.IDS_PER_QUERY):
        part = model._default_manager.filter(
            pk__in=unique_ids[start : start + past_entries.IDS_PER_QUERY]
        )
        values_by_id |= dict(part.values_list("pk", shown))
    return values_by_id


def _set_related(rows: list[Any], names: Iterable[_RelatedColumn], cut: JournalCut) -> None:
    for relation in names:
        rows_with_name = [row for row in rows if relation.name in row.__dict__]
        if not rows_with_name:
            continue
        values_by_id = load_column(
            relation.model,
            [getattr(row, relation.column) for row in rows_with_name],
            relation.shown,
        )
        for row in rows_with_name:
            value = values_by_id.get(getattr(row, relation.column))
            is_later = relation.name in _POSITIONS and value is not None and value > cut.position
            setattr(row, relation.name, None if is_later else value)


def _set_plan_heads(rows: list[Any]) -> None:
    """Set the beginnings of the past plans, where a list shows them."""
    headed = {row.pk: row for row in rows if "plan_head" in row.__dict__}
    heads = summaries.load_plan_heads(
        [row.plan_position for row in headed.values() if row.plan_position is not None]
    )
    for row in headed.values():
        row.plan_head = heads.get(row.plan_position)


def _set_run_times(rows: list[Any], cut: JournalCut) -> None:
    """Set when effects ran by the attempt that was their last at the cut, where a list shows it.

    A time that an agent reported only after the cut counts if the attempt was known by then.
    """
    shown = [row for row in rows if "ran_us" in row.__dict__]
    known_attempts: dict[tuple[Any, int], Attempt] = {}
    for start in range(0, len(shown), past_entries.IDS_PER_QUERY):
        part = [row.pk for row in shown[start : start + past_entries.IDS_PER_QUERY]]
        for row in Attempt.objects.filter(effect__in=part):
            known_attempts[row.effect_id, row.number] = row
    for row in shown:
        attempt = known_attempts.get((row.pk, row.attempt_count))
        heard_us = (attempt.received_us or attempt.heard_us) if attempt is not None else None
        is_later = heard_us is not None and heard_us > cut.at_us
        row.ran_us = None if is_later else derive_run_time(attempt).us


__all__ = ["load_column", "set_past_values"]
