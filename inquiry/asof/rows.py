"""Rows of a list as of a cut: their columns, and what else of them the list shows that other rows say.

The names of people, agents and repositories are those of now; which of them are named is told as of the cut.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from django.contrib.auth.models import User

from inquiry.asof import sessions, told
from inquiry.asof.cut import Cut
from journal import gists
from ledger.models import Effect
from sessions.models import Agent, Repository, Session, Task


class _Named(NamedTuple):
    """What a list shows of another row beside its own: under which name, by which column, and what of it."""

    name: str
    column: str
    model: Any
    shown: str


_OF_EFFECTS: Final = (
    _Named("agent_name", "agent_id", Agent, "name"),
    _Named("repository_name", "repository_id", Repository, "name"),
    _Named("parent_position", "parent_effect_id", Effect, "opened_position"),
    _Named("compensates_position", "compensates_id", Effect, "opened_position"),
    _Named("task_position", "task_id", Task, "opened_position"),
    _Named("task_key", "task_id", Task, "key"),
)
_OF_SESSIONS: Final = (
    _Named("agent_name", "agent_id", Agent, "name"),
    _Named("repository_name", "repository_id", Repository, "name"),
    _Named("owner_name", "owner_id", User, "username"),
    _Named("parent_position", "parent_id", Session, "opened_position"),
)
_POSITIONS: Final = ("session_position", "effect_position", "parent_position", "compensates_position")


def as_they_were(rows: list[Any], again: Mapping[Any, Any], cut: Cut) -> list[Any]:
    """`rows`, fetched as they are now, in whose columns stands what stood there at the cut.

    `again` has those that changed since, made again, by id. A few queries, however many rows there are.
    """
    changed: list[Any] = []
    for row in rows:
        then = again.get(row.pk)
        if then is not None:
            changed.append(row)
            for column in then._meta.concrete_fields:
                setattr(row, column.attname, getattr(then, column.attname))
        for name in _POSITIONS:  # what was named, and was not there yet
            position = row.__dict__.get(name)
            if position is not None and position > cut.position:
                setattr(row, name, None)
        if getattr(row, "deadline_us", None) is not None and row.state == "dispatched":
            # Pages say unknown of what is past its deadline by now; it was not yet, or had been for long.
            row.deadline_us = 0 if row.deadline_us < cut.at_us else None
    if rows and isinstance(rows[0], Effect):
        _name(changed, _OF_EFFECTS, cut)
        _set_heads(changed)
    elif rows and isinstance(rows[0], Session):
        _name(changed, _OF_SESSIONS, cut)
        heard = sessions.heard([row.pk for row in rows], cut)
        for row in rows:
            row.seen_at_us = heard.get(row.pk) or row.created_at_us
    return rows


def shown_of(model: Any, ids: Iterable[Any], shown: str) -> dict[Any, Any]:
    """What rows of a model have in a column, by id."""
    found: dict[Any, Any] = {}
    wanted = sorted({one for one in ids if one is not None}, key=str)
    for start in range(0, len(wanted), told.AT_ONCE):
        part = model._default_manager.filter(pk__in=wanted[start : start + told.AT_ONCE])
        found |= dict(part.values_list("pk", shown))
    return found


def _name(rows: list[Any], names: Iterable[_Named], cut: Cut) -> None:
    for one in names:
        named = [row for row in rows if one.name in row.__dict__]
        if not named:
            continue
        known = shown_of(one.model, [getattr(row, one.column) for row in named], one.shown)
        for row in named:
            value = known.get(getattr(row, one.column))
            late = one.name in _POSITIONS and value is not None and value > cut.position
            setattr(row, one.name, None if late else value)


def _set_heads(rows: list[Any]) -> None:
    """The beginnings of the plans that stood then, where a list shows those."""
    headed = {row.pk: row for row in rows if "plan_head" in row.__dict__}
    heads = gists.heads([row.plan_position for row in headed.values() if row.plan_position is not None])
    for row in headed.values():
        row.plan_head = heads.get(row.plan_position)


__all__ = ["as_they_were", "shown_of"]
