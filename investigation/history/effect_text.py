"""Text columns of an effect as of a cut: from its row if unchanged, else from an entry's body.

Only text is read from bodies; no state depends on them. If a body was erased since, the column is
empty and listed as lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from display import entry_bodies
from investigation.history.rebuild_effects import TEXT_PLACEHOLDER, RebuiltEffect
from journal import summaries
from journal.order_keys import attempt_of_resolution
from ledger.models import Attempt, Effect
from sessions import moved_refs

PLAN_COLUMNS: Final = ("tool", "call_id", "turn")
_REFERENCES: Final = ("external_reference", "reference")
TARGET_COLUMNS: Final = ("ref", "environment", "resource")
MOVED_REFS_COLUMN: Final = "moved_refs"  # Computed from the ref.


@dataclass(slots=True)
class EffectTexts:
    """The text columns of one effect and, by number, of its attempts, and the erased columns."""

    effect: dict[str, str] = field(default_factory=dict)
    attempts: dict[int, dict[str, str]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)


def load_past_texts_of_effects(
    project: UUID,
    folded: Mapping[UUID, RebuiltEffect],
    rows: Mapping[UUID, Effect],
    tried: Mapping[UUID, Mapping[int, Attempt]],
) -> dict[UUID, EffectTexts]:
    """Return the text columns of rebuilt effects. At most one query."""
    body_positions = {
        position
        for folded_effect in folded.values()
        for position in _find_body_positions(folded_effect, rows, tried)
    }
    texts = entry_bodies.load_body_texts(project, body_positions) if body_positions else {}
    bodies_by_position = {position: summaries.parse_body(text) for position, text in texts.items()}
    return {
        effect: _build_texts(folded_effect, rows[effect], tried.get(effect, {}), bodies_by_position)
        for effect, folded_effect in folded.items()
    }


def _find_body_positions(
    folded: RebuiltEffect, rows: Mapping[UUID, Effect], tried: Mapping[UUID, Mapping[int, Attempt]]
) -> list[int]:
    """Return the entries whose bodies have text that the rows no longer have."""
    row, stored = folded.row, tried.get(folded.row.id, {})
    positions = []
    if folded.plan is not None and row.planned_mark != rows[row.id].planned_mark:
        positions.append(folded.plan)
    for number, attempt in folded.attempts.items():
        if attempt.dispatched_mark and attempt.dispatched_mark != stored[number].dispatched_mark:
            positions.append(folded.told_by[attempt.dispatched_mark])
        if attempt.external_reference and not _has_same_answer(folded, number, rows, stored):
            positions.append(_parse_place(attempt.external_reference))
            positions += (
                [_parse_place(place)] if (place := _named_reference_place(folded, number)) else []
            )
    return positions


def _named_reference_place(folded: RebuiltEffect, number: int) -> str:
    """Return the place of the reference that a person named when resolving this attempt."""
    row = folded.row
    return (
        row.told_reference
        if row.resolution == "happened" and attempt_of_resolution(row.resolved_mark) == number
        else ""
    )


def _has_same_answer(
    folded: RebuiltEffect, number: int, rows: Mapping[UUID, Effect], stored: Mapping[int, Attempt]
) -> bool:
    has_same_answer = folded.attempts[number].acknowledged_mark == stored[number].acknowledged_mark
    return has_same_answer and folded.row.resolved_mark == rows[folded.row.id].resolved_mark


def _build_texts(
    folded: RebuiltEffect,
    stored: Effect,
    tried: Mapping[int, Attempt],
    bodies_by_position: Mapping[int, dict[str, Any]],
) -> EffectTexts:
    texts = EffectTexts()
    texts.effect = dict.fromkeys((*PLAN_COLUMNS, *TARGET_COLUMNS, MOVED_REFS_COLUMN), "")
    if folded.row.planned_mark and folded.row.planned_mark == stored.planned_mark:
        texts.effect = {name: getattr(stored, name) for name in texts.effect}
    elif folded.plan is not None:
        body = bodies_by_position.get(folded.plan)
        if body is None:
            texts.lost |= texts.effect.keys()
        else:
            target = body.get("target") or {}
            texts.effect |= {name: body.get(name) or "" for name in PLAN_COLUMNS}
            texts.effect |= {name: target.get(name) or "" for name in TARGET_COLUMNS}
            ref, arguments = texts.effect["ref"], body.get("arguments")
            texts.effect[MOVED_REFS_COLUMN] = moved_refs.resolve_moved_refs(
                stored.session_id, ref, arguments
            )
    references: dict[str, str] = {"": ""}
    rows = {stored.id: stored}
    for number, attempt in folded.attempts.items():
        process, reference = "", ""
        if attempt.dispatched_mark and attempt.dispatched_mark == tried[number].dispatched_mark:
            process = tried[number].process
        elif attempt.dispatched_mark:
            process = _read_text(
                bodies_by_position.get(folded.told_by[attempt.dispatched_mark]),
                ("process",),
                "process",
                texts.lost,
            )
        if attempt.external_reference and _has_same_answer(folded, number, rows, tried):
            reference = tried[number].external_reference
        elif attempt.external_reference:
            body = bodies_by_position.get(_parse_place(attempt.external_reference))
            reference = _read_text(body, _REFERENCES, "external_reference", texts.lost)
            if not reference and (place := _named_reference_place(folded, number)):
                reference = _read_text(
                    bodies_by_position.get(_parse_place(place)),
                    _REFERENCES,
                    "external_reference",
                    texts.lost,
                )
        references[attempt.external_reference] = reference
        texts.attempts[number] = {"process": process, "external_reference": reference}
    texts.effect["external_reference"] = references.get(folded.row.external_reference, "")
    return texts


def _read_text(
    body: Mapping[str, Any] | None, names: tuple[str, ...], column: str, lost: set[str]
) -> str:
    """Return the body's text under one of `names`; if erased, add `column` to `lost`."""
    if body is None:
        lost.add(column)
        return ""
    return next((str(body[name]) for name in names if body.get(name)), "")


def _parse_place(reference: str) -> int:
    return int(reference.removeprefix(TEXT_PLACEHOLDER))
