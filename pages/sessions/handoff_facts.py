"""Handoffs for display: five sections, and what they wait on with links."""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from django.urls import reverse

from approvals.models import Gate
from ledger.models import Effect
from sessions import handoffs

_SECTIONS: Final = (
    ("in_progress", "In progress"),
    ("decided", "Decisions and reasons"),
    ("needs_attention", "Needs attention next"),
    ("can_wait", "Can wait"),
)


def handoffs_for_page(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return handoffs with `sections`, `waits` and the `row`.

    The rows have their texts, as sessions/handoffs.py loads them. Up to two queries: one if any
    waits on an effect, one if any waits on a gate.
    """
    texts = [handoffs.handoff_to_json(row) for row in rows]
    names = _load_names(thing for text in texts for thing in text["waits_on"])
    return [
        text
        | {
            "sections": [(title, text[name]) for name, title in _SECTIONS],
            "waits": [thing | _name_and_url(thing, names) for thing in text["waits_on"]],
            "row": row,
        }
        for text, row in zip(texts, rows, strict=True)
    ]


def _load_names(things: Iterable[dict[str, Any]]) -> dict[UUID, str]:
    """Return the display names of the effects and gates among these."""
    ids_by_kind: dict[str, set[UUID]] = {"effect": set(), "gate": set()}
    for thing in things:
        if (identity := _reference_id(thing)) is not None:
            ids_by_kind[thing["kind"]].add(identity)
    names: dict[UUID, str] = {}
    if ids_by_kind["effect"]:
        names |= {
            row.id: f"{row} {row.tool}".strip()
            for row in _load_few(Effect, ids_by_kind["effect"], "tool")
        }
    if ids_by_kind["gate"]:
        names |= {row.id: str(row) for row in _load_few(Gate, ids_by_kind["gate"])}
    return names


def _load_few(model: Any, ids: set[UUID], *columns: str) -> Any:
    return model.objects.filter(id__in=ids).only("opened_position", *columns)


def _name_and_url(thing: dict[str, Any], names: dict[UUID, str]) -> dict[str, str]:
    """Return name and address of an effect or gate that is waited on."""
    identity = _reference_id(thing)
    if identity is None or identity not in names:
        return {"name": "" if thing["kind"] == "text" else thing["kind"], "url": ""}
    return {"name": names[identity], "url": reverse(thing["kind"], args=[identity])}


def _reference_id(thing: dict[str, Any]) -> UUID | None:
    if thing["kind"] not in ("gate", "effect"):
        return None
    try:
        return UUID(thing.get("ref") or "")
    except ValueError:
        return None
