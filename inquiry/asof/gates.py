"""Gates and their votes as of a cut. What a gate binds never changes, nor how it ended; how it stood before does."""

import copy
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from approvals.deadlines import current_status
from approvals.models import Gate, Vote
from inquiry.asof import told
from inquiry.asof.cut import Cut
from inquiry.asof.told import Told

_ENDED: Final = ("returned", "expired", "lapsed", "used", "revoked", "cancelled")
# What only the end of a gate, or its ruling, sets.
_OF_RULING: Final = {"decided_at_us": None, "leave_until_us": None}
_OF_END: Final = {"ended_at_us": None, "used_at_us": None, "used_attempt": None, "reason": ""}


class Then(NamedTuple):
    """A gate as of a cut (not saved), its clocks read at that moment, and the votes that were given by then."""

    gate: Gate
    votes: list[Vote]


def gates(project: UUID, ids: Iterable[UUID], cut: Cut) -> dict[UUID, Gate]:
    """The gates of `ids` in the state as of `cut`, not saved; those that were not asked yet are absent."""
    return {identity: then.gate for identity, then in whole(project, ids, cut).items()}


def whole(project: UUID, ids: Iterable[UUID], cut: Cut, *, by_the_clock: bool = True) -> dict[UUID, Then]:
    """The same with their votes."""
    known: dict[UUID, Gate] = {}
    for part in told.parts(ids):
        for row in Gate.objects.filter(id__in=part).select_related("effect", "session", "agent"):
            if row.project_id == project and row.opened_position <= cut.position:
                known[row.id] = row
    said: dict[UUID | None, list[Told]] = {}
    for one in told.of_effects({row.effect_id for row in known.values()}, cut.position):
        if one.kind.startswith("gate."):
            said.setdefault(one.subject, []).append(one)
    votes: dict[UUID, list[Vote]] = {}
    for part in told.parts(known):
        cast = Vote.objects.filter(gate__in=part, position__lte=cut.position).select_related("user")
        for vote in cast.order_by("position"):
            votes.setdefault(vote.gate_id, []).append(vote)
    found = {key: _then(row, said.get(key, [])) for key, row in known.items()}
    for gate in found.values() if by_the_clock else ():
        gate.status = current_status(gate, cut.at_us)
    return {key: Then(gate, votes.get(key, [])) for key, gate in found.items()}


def stored(project: UUID, ids: Iterable[UUID], cut: Cut) -> dict[UUID, Gate]:
    """The gates of `ids` as their rows stood: what the clock alone decides is as the sweeper had told it by then.

    So do searches find gates by their status, whatever a page says of one by the clock.
    """
    return {identity: then.gate for identity, then in whole(project, ids, cut, by_the_clock=False).items()}


def of_effect(project: UUID, effect: UUID, cut: Cut) -> list[Gate]:
    """Every gate that an effect was held at by then, the latest first."""
    ids = Gate.objects.filter(effect=effect)
    found = gates(project, ids.values_list("id", flat=True), cut)
    return sorted(found.values(), key=lambda gate: gate.opened_position, reverse=True)


def _then(stored: Gate, said: list[Told]) -> Gate:
    status, version, decide_by_us = "pending", 1, stored.decide_by_us
    for one in said:
        verb = one.kind.removeprefix("gate.")
        by_agent = (one.lane, verb) == ("command", "cancelled")
        if not one.is_ours and not by_agent:
            continue  # an agent's report of what only people or Gatebook say
        version += verb in ("voted", "extended")
        if verb in ("requested", "extended"):
            decide_by_us = one.facts["decide_by_us"]
        elif verb == "ruled" and one.facts["ruling"] in ("approved", "denied", "denied_final"):
            status, version = one.facts["ruling"], version + 1
        elif verb in _ENDED:
            status, version = verb, version + 1
    gate = copy.copy(stored)
    changed: dict[str, object] = {"status": status, "version": version, "decide_by_us": decide_by_us}
    if status in ("pending", "approved"):
        changed |= _OF_END
    if status == "pending":
        changed |= _OF_RULING
    for name, value in changed.items():
        setattr(gate, name, value)
    return gate
