"""The words of an effect as it stood: from its row where the same fact still stands, else from that fact's body.

Only words are read from bodies, and no state follows from them. A body that was erased since has none: the column is
empty, and named as lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from inquiry import bodies
from inquiry.asof.folding import WORDS_OF, Folded
from journal import gists
from journal.order import attempt_of
from ledger.models import Attempt, Effect
from sessions import repositories

OF_PLANS: Final = ("tool", "call_id", "turn")
_REFERENCES: Final = ("external_reference", "reference")
OF_TARGETS: Final = ("ref", "environment", "resource")
MOVED: Final = "moved_refs"  # computed from the ref


@dataclass(slots=True)
class Found:
    """The words of one effect by column, those of its attempts by number, and which columns were erased since."""

    effect: dict[str, str] = field(default_factory=dict)
    attempts: dict[int, dict[str, str]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)


def words(
    project: UUID,
    folded: Mapping[UUID, Folded],
    rows: Mapping[UUID, Effect],
    tried: Mapping[UUID, Mapping[int, Attempt]],
) -> dict[UUID, Found]:
    """The words of effects that were made again; one query, and none where what stands is what stood."""
    wanted = {position for one in folded.values() for position in _positions(one, rows, tried)}
    texts = bodies.texts(project, wanted) if wanted else {}
    read = {position: gists.parsed(text) for position, text in texts.items()}
    return {effect: _found(one, rows[effect], tried.get(effect, {}), read) for effect, one in folded.items()}


def _positions(one: Folded, rows: Mapping[UUID, Effect], tried: Mapping[UUID, Mapping[int, Attempt]]) -> list[int]:
    """The entries whose bodies have words of it that its rows have no more."""
    row, stored = one.row, tried.get(one.row.id, {})
    found = []
    if one.plan is not None and row.planned_mark != rows[row.id].planned_mark:
        found.append(one.plan)
    for number, attempt in one.attempts.items():
        if attempt.dispatched_mark and attempt.dispatched_mark != stored[number].dispatched_mark:
            found.append(one.told_by[attempt.dispatched_mark])
        if attempt.external_reference and not _same_answer(one, number, rows, stored):
            found.append(_position(attempt.external_reference))
            found += [_position(told)] if (told := _told_of(one, number)) else []
    return found


def _told_of(one: Folded, number: int) -> str:
    """Where the reference stands that a person named who said of this attempt that it happened."""
    row = one.row
    return row.told_reference if row.resolution == "happened" and attempt_of(row.resolved_mark) == number else ""


def _same_answer(one: Folded, number: int, rows: Mapping[UUID, Effect], stored: Mapping[int, Attempt]) -> bool:
    same = one.attempts[number].acknowledged_mark == stored[number].acknowledged_mark
    return same and one.row.resolved_mark == rows[one.row.id].resolved_mark


def _found(one: Folded, stored: Effect, tried: Mapping[int, Attempt], read: Mapping[int, dict[str, Any]]) -> Found:
    found = Found()
    found.effect = dict.fromkeys((*OF_PLANS, *OF_TARGETS, MOVED), "")
    if one.row.planned_mark and one.row.planned_mark == stored.planned_mark:
        found.effect = {name: getattr(stored, name) for name in found.effect}
    elif one.plan is not None:
        body = read.get(one.plan)
        if body is None:
            found.lost |= found.effect.keys()
        else:
            target = body.get("target") or {}
            found.effect |= {name: body.get(name) or "" for name in OF_PLANS}
            found.effect |= {name: target.get(name) or "" for name in OF_TARGETS}
            ref, arguments = found.effect["ref"], body.get("arguments")
            found.effect[MOVED] = repositories.moved_refs(stored.session_id, ref, arguments)
    references: dict[str, str] = {"": ""}
    rows = {stored.id: stored}
    for number, attempt in one.attempts.items():
        process, reference = "", ""
        if attempt.dispatched_mark and attempt.dispatched_mark == tried[number].dispatched_mark:
            process = tried[number].process
        elif attempt.dispatched_mark:
            process = _word(read.get(one.told_by[attempt.dispatched_mark]), ("process",), "process", found.lost)
        if attempt.external_reference and _same_answer(one, number, rows, tried):
            reference = tried[number].external_reference
        elif attempt.external_reference:
            body = read.get(_position(attempt.external_reference))
            reference = _word(body, _REFERENCES, "external_reference", found.lost)
            if not reference and (told := _told_of(one, number)):
                reference = _word(read.get(_position(told)), _REFERENCES, "external_reference", found.lost)
        references[attempt.external_reference] = reference
        found.attempts[number] = {"process": process, "external_reference": reference}
    found.effect["external_reference"] = references.get(one.row.external_reference, "")
    return found


def _word(body: Mapping[str, Any] | None, names: tuple[str, ...], column: str, lost: set[str]) -> str:
    """The word that a body has under one of `names`; of an erased body none, and the column is lost."""
    if body is None:
        lost.add(column)
        return ""
    return next((str(body[name]) for name in names if body.get(name)), "")


def _position(reference: str) -> int:
    return int(reference.removeprefix(WORDS_OF))
