"""Placeholder effects that plans name before their own facts arrive."""

from collections.abc import Mapping
from uuid import UUID

from journal import placeholders
from ledger.models import Effect
from ledger.store.writer import FactReport


def open_placeholders(
    named: Mapping[UUID, FactReport], reported: set[UUID], project: UUID, received_us: int
) -> list[FactReport]:
    """Return reports of named effects; `told` have facts in this batch.

    An effect without facts gets an entry of its own: the entry of the naming plan opens the
    planned effect.
    """
    unreported = named.keys() - reported
    unreported -= (
        set(Effect.objects.filter(id__in=unreported).values_list("id", flat=True))
        if unreported
        else set()
    )
    about = {
        effect: {"session": named[effect].session, "effect": effect}
        for effect in sorted(unreported)
    }
    for effect, position in placeholders.append_placeholders(
        project, "effect.named", about, received_us
    ).items():
        named[effect].fact.position = position
    return list(named.values())
