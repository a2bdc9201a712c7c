"""Placeholder effects that plans name before their own facts arrive."""

from collections.abc import Mapping, Set
from dataclasses import replace
from uuid import UUID

from journal import placeholders
from ledger.models import Effect
from ledger.store.writer import EffectFact


def open_placeholders(
    stubs: Mapping[UUID, EffectFact], reported: Set[UUID], project: UUID, received_us: int
) -> list[EffectFact]:
    """Return the facts of named effects; `reported` have facts in this batch.

    An effect without facts gets an entry of its own: the entry of the naming plan opens the
    planned effect.
    """
    unreported = stubs.keys() - reported
    unreported -= (
        set(Effect.objects.filter(id__in=unreported).values_list("id", flat=True))
        if unreported
        else set()
    )
    about = {
        effect: {"session": stubs[effect].session, "effect": effect}
        for effect in sorted(unreported)
    }
    positions = placeholders.append_placeholders(project, "effect.named", about, received_us)
    return [
        replace(stub, fact=replace(stub.fact, position=positions[effect]))
        if effect in positions
        else stub
        for effect, stub in stubs.items()
    ]
