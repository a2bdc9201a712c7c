"""Gates and their votes as of a cut. The bound content and the end of a gate never change."""

import copy
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from approvals.gates.gates import current_gate_status
from approvals.models import Gate, Vote
from investigation.history import past_entries as history_entries
from investigation.history.moment import JournalCut
from investigation.history.past_entries import PastEntry

_ENDED: Final = ("changes_requested", "expired", "expired_unused", "used", "revoked", "cancelled")
# Columns that only the end of a gate, or its ruling, sets.
_OF_RULING: Final = {"decided_at_us": None, "permission_until_us": None}
_OF_END: Final = {"ended_at_us": None, "used_at_us": None, "used_attempt": None, "reason": ""}


class GateAsOf(NamedTuple):
    """A gate as of a cut (not saved), with its status at that time and the votes cast by then."""

    gate: Gate
    votes: list[Vote]


def rebuild_gates(project: UUID, ids: Iterable[UUID], cut: JournalCut) -> dict[UUID, Gate]:
    """Return the gates of `ids` as of `cut`, not saved. Later ones are absent."""
    return {
        identity: gate_then.gate
        for identity, gate_then in rebuild_gates_with_votes(project, ids, cut).items()
    }


def rebuild_gates_with_votes(
    project: UUID, ids: Iterable[UUID], cut: JournalCut, *, by_the_clock: bool = True
) -> dict[UUID, GateAsOf]:
    """Return the gates with their votes."""
    gates_by_id: dict[UUID, Gate] = {}
    for part in history_entries.split_ids(ids):
        for row in Gate.objects.filter(id__in=part).select_related("effect", "session", "agent"):
            if row.project_id == project and row.opened_position <= cut.position:
                gates_by_id[row.id] = row
    entries_by_gate: dict[UUID | None, list[PastEntry]] = {}
    for entry in history_entries.load_effect_entries(
        {row.effect_id for row in gates_by_id.values()}, cut.position
    ):
        if entry.kind.startswith("gate."):
            entries_by_gate.setdefault(entry.subject, []).append(entry)
    votes: dict[UUID, list[Vote]] = {}
    for part in history_entries.split_ids(gates_by_id):
        votes_cast = Vote.objects.filter(gate__in=part, position__lte=cut.position).select_related(
            "user"
        )
        for vote in votes_cast.order_by("position"):
            votes.setdefault(vote.gate_id, []).append(vote)
    rebuilt = {
        key: fold_gate_entries(row, entries_by_gate.get(key, []))
        for key, row in gates_by_id.items()
    }
    for gate in rebuilt.values() if by_the_clock else ():
        gate.status = current_gate_status(gate, cut.at_us)
    return {key: GateAsOf(gate, votes.get(key, [])) for key, gate in rebuilt.items()}


def rebuild_stored_gates(project: UUID, ids: Iterable[UUID], cut: JournalCut) -> dict[UUID, Gate]:
    """Return the gates of `ids` as stored then: expiry counts once the sweeper had recorded it.

    Searches select gates by the stored status, although pages show the status by the clock.
    """
    return {
        identity: gate_then.gate
        for identity, gate_then in rebuild_gates_with_votes(
            project, ids, cut, by_the_clock=False
        ).items()
    }


def rebuild_gates_of_effect(project: UUID, effect: UUID, cut: JournalCut) -> list[Gate]:
    """Return all gates of an effect at the cut, the latest first."""
    ids = Gate.objects.filter(effect=effect)
    gates_by_id = rebuild_gates(project, ids.values_list("id", flat=True), cut)
    return sorted(gates_by_id.values(), key=lambda gate: gate.opened_position, reverse=True)


def fold_gate_entries(stored: Gate, entries: list[PastEntry]) -> Gate:
    """Return a copy of a gate with the status, version and deadline that its entries give."""
    status, version, decide_by_us = "pending", 1, stored.decide_by_us
    for entry in entries:
        verb = entry.kind.removeprefix("gate.")
        by_agent = (entry.lane, verb) == ("command", "cancelled")
        if not entry.is_ours and not by_agent:
            continue  # An agent's report of a kind that only people or Gatebook create.
        version += verb in ("voted", "extended")
        if verb in ("requested", "extended"):
            decide_by_us = entry.facts["decide_by_us"]
        elif verb == "ruled" and entry.facts["ruling"] in ("approved", "denied", "denied_session"):
            status, version = entry.facts["ruling"], version + 1
        elif verb in _ENDED:
            status, version = verb, version + 1
    gate = copy.copy(stored)
    changed: dict[str, object] = {
        "status": status,
        "version": version,
        "decide_by_us": decide_by_us,
    }
    if status in ("pending", "approved"):
        changed |= _OF_END
    if status == "pending":
        changed |= _OF_RULING
    for name, value in changed.items():
        setattr(gate, name, value)
    return gate
