"""Effects that facts name before anybody tells of them: stored, so that whatever is told of them later finds them."""

from collections.abc import Mapping
from uuid import UUID

from journal import naming
from ledger.effects import Report
from ledger.models import Effect


def opening(
    named: Mapping[UUID, Report], told: set[UUID], project: UUID, received_us: int
) -> list[Report]:
    """The reports of effects that plans name. `told` are those of which the same batch tells more.

    An effect of which nobody has told is opened by an entry of its own: that of the plan which names it opens the
    effect that was planned.
    """
    unheard = named.keys() - told
    unheard -= (
        set(Effect.objects.filter(id__in=unheard).values_list("id", flat=True))
        if unheard
        else set()
    )
    about = {
        effect: {"session": named[effect].session, "effect": effect} for effect in sorted(unheard)
    }
    for effect, position in naming.name(project, "effect.named", about, received_us).items():
        named[effect].fact.position = position
    return list(named.values())
