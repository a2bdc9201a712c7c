"""Queries as of a past moment: what has changed since is made again from facts, and judged in plain Python.

The rest stands in its tables as it stood. What is asked of rows that belong to others, and may have changed, is noted
beside the answer: it is told as it stands now.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from inquiry.asof import gates, replay, sessions
from inquiry.asof.cut import Cut, UnfitError, read
from inquiry.query.entity import Entity
from inquiry.query.fields import Context, Test
from inquiry.query.syntax import Fault, One, Query
from sessions.models import Project

# Which rows changed since a cut, and what makes them again.
_MAKE_AGAIN: Final[dict[str, tuple[Callable[[UUID, Cut], frozenset[UUID]], Callable[[UUID, Any, Cut], Any]]]] = {
    "effect": (replay.changed_effects, replay.effects),
    "session": (replay.changed_sessions, sessions.sessions),
    "gate": (replay.changed_gates, gates.gates),
}


@dataclass(slots=True)
class Past:
    """The moment of a query: rows that changed since as they stood (`again`), and the ids of those that match."""

    cut: Cut
    again: dict[Any, Any] = field(default_factory=dict)
    met: list[Any] = field(default_factory=list)


def cut_of(said: One, project: Project, now_us: int) -> Cut:
    """The cut that `asof:` names. Raises Fault."""
    try:
        return read(said.text, project.id, now_us)
    except UnfitError as unfit:
        raise Fault(said.at, len(said.text), str(unfit)) from None


def judge(query: Query, said: One, entity: Entity, context: Context, parts: Sequence[Test], cut: Cut) -> Past:
    """Make again what changed since, and see what of it matches. Raises Fault where too much has changed."""
    found = Past(cut)
    if entity.name == "event":
        return found  # entries never change
    if any(part.holds is None and not part.lasts for part in parts):
        context.notes.append("What is asked here of rows that belong to others is told as those stand now.")
    if query.grouping is not None:
        context.notes.append("What changed since then is grouped and measured as it stands now.")
    if entity.name not in _MAKE_AGAIN:
        context.notes.append("Uses and revocations are told as they stand now.")
        return found
    changed, make = _MAKE_AGAIN[entity.name]
    try:
        found.again = make(context.project.id, changed(context.project.id, cut), cut)
    except UnfitError as unfit:
        raise Fault(said.at, len(said.text), str(unfit)) from None
    met = set(found.again)
    for part in parts:
        if part.holds is not None:
            met = {pk for pk in met if part.holds(found.again[pk])}
        elif met:
            there = entity.of(context.project).filter(part.q, pk__in=list(met))
            met = set(there.values_list("pk", flat=True))
    found.met = list(met)
    return found


def as_they_were(rows: list[Any], past: Past | None) -> list[Any]:
    """`rows`, in whose columns stands what stood there then."""
    if past is None:
        return rows
    for row in rows:
        then = past.again.get(row.pk)
        if then is not None:
            for column in then._meta.concrete_fields:
                setattr(row, column.attname, getattr(then, column.attname))
        if getattr(row, "deadline_us", None) is not None and row.state == "dispatched":
            # Pages say unknown of what is past its deadline by now; it was not yet, or had been for long.
            row.deadline_us = 0 if row.deadline_us < past.cut.at_us else None
    return rows


def values_then(values: tuple[Any, ...], columns: Sequence[str], then: Any) -> tuple[Any, ...]:
    """`values` of a row's columns with those that it had `then`; names of other rows stay. None: nothing changed."""
    if then is None:
        return values
    return tuple(value if "__" in name else getattr(then, name) for name, value in zip(columns, values, strict=True))
