"""Handoffs as pages show them: five sections, and what is waited for by its handle with a link to it."""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from django.urls import reverse

from approvals.models import Gate
from ledger.models import Effect
from sessions import handoffs

_SECTIONS: Final = (
    ("in_progress", "In progress"),
    ("decided", "Decided, and why"),
    ("needs_attention", "Needs attention next"),
    ("can_wait", "Can wait"),
)


def shown(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Handoffs (with their texts, as sessions/handoffs.py reads them) with `sections`, `waits` and the `row` itself.

    Up to two queries, however many they are: one where any waits on an effect, one where any waits on a gate.
    """
    told = [handoffs.told(row) for row in rows]
    names = _names(thing for one in told for thing in one["waits_on"])
    return [
        one
        | {
            "sections": [(title, one[name]) for name, title in _SECTIONS],
            "waits": [thing | _place_of(thing, names) for thing in one["waits_on"]],
            "row": row,
        }
        for one, row in zip(told, rows, strict=True)
    ]


def _names(things: Iterable[dict[str, Any]]) -> dict[UUID, str]:
    """What the effects and gates among these are called."""
    wanted: dict[str, set[UUID]] = {"effect": set(), "gate": set()}
    for thing in things:
        if (identity := _identity(thing)) is not None:
            wanted[thing["kind"]].add(identity)
    found: dict[UUID, str] = {}
    if wanted["effect"]:
        found |= {one.id: f"{one} {one.tool}".strip() for one in _few(Effect, wanted["effect"], "tool")}
    if wanted["gate"]:
        found |= {one.id: str(one) for one in _few(Gate, wanted["gate"])}
    return found


def _few(model: Any, wanted: set[UUID], *more: str) -> Any:
    return model.objects.filter(id__in=wanted).only("opened_position", *more)


def _place_of(thing: dict[str, Any], names: dict[UUID, str]) -> dict[str, str]:
    """What is waited for by name, and where it is shown: only of an effect or a gate that is there."""
    identity = _identity(thing)
    if identity is None or identity not in names:
        return {"name": "" if thing["kind"] == "text" else thing["kind"], "url": ""}
    return {"name": names[identity], "url": reverse(thing["kind"], args=[identity])}


def _identity(thing: dict[str, Any]) -> UUID | None:
    if thing["kind"] not in ("gate", "effect"):
        return None
    try:
        return UUID(thing.get("ref") or "")
    except ValueError:
        return None
