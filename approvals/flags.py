"""Warnings of a request: refused before, first use, outside working hours.

All are computed from the journal's tables, for a page of gates at once: the number of queries does
not depend on the number of gates.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from approvals import hours
from approvals.hours import Hours
from approvals.models import Gate, Vote
from journal.compiled import Compiled
from ledger.models import Effect

REFUSED: Final = ("denied", "denied_final", "returned")
NOES: Final = ("deny", "deny_final", "return")
# Annotations for a query of gates. Earlier requests have any status; uses are effects of any kind.
FIRST_OF_AGENT: Final = ~Exists(
    Gate.objects.filter(
        project=OuterRef("project"),
        agent=OuterRef("agent"),
        tool=OuterRef("tool"),
        opened_position__lt=OuterRef("opened_position"),
    )
)
FIRST_IN_PROJECT: Final = ~Exists(
    Effect.objects.filter(
        project=OuterRef("project"),
        tool=OuterRef("tool"),
        opened_position__lt=OuterRef("effect__opened_position"),
    )
)
# Columns of an effect that make an Ask, in its order.
ASK: Final = ("tool", "intent_digest", "repository_id", "moved_refs", "environment", "resource")


class Ask(NamedTuple):
    """A request and what identifies repetitions of it: tool, arguments and target."""

    gate: UUID
    position: int
    same: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """The last refusal of the same request, in any session and by any agent.

    `times` counts all earlier refusals; `vote` is the last vote of the last refused gate.
    """

    gate: UUID
    position: int
    status: str
    vote: Vote
    times: int

    @property
    def word(self) -> str:
        """How it was refused: denied, denied for this session, or returned."""
        return "denied for this session" if self.status == "denied_final" else self.status

    def __str__(self) -> str:
        return f"g_{self.position}"


class Outside(NamedTuple):
    """Local day and time of a request outside working hours, and those hours."""

    when: str
    hours: Hours


def again(project: UUID, asks: Iterable[Ask]) -> dict[UUID, Again]:
    """Find the last refusal of each repeated request, by gate. At most two queries."""
    listed = list(asks)
    if not listed:
        return {}
    refused: dict[tuple[object, ...], list[tuple[int, UUID, str]]] = defaultdict(list)
    digests = sorted({str(request.same[1]) for request in listed})
    for position, gate, status, *same in _REFUSALS.rows(project=project, digests=digests):
        refused[tuple(same)].append((position, gate, status))
    before = {
        ask.gate: [request for request in refused[ask.same] if request[0] < ask.position]
        for ask in listed
    }
    last = {asking: max(noes) for asking, noes in before.items() if noes}
    words = _load_last_votes({gate for _, gate, _ in last.values()})
    return {
        asking: Again(gate, position, status, words[gate], len(before[asking]))
        for asking, (position, gate, status) in last.items()
        if gate in words
    }


def asked_again(gates: Sequence[Gate]) -> dict[UUID, Again]:
    """Find the last refusals for gates of one project, whose effects are loaded."""
    asks = [
        Ask(gate.id, gate.opened_position, tuple(getattr(gate.effect, name) for name in ASK))
        for gate in gates
    ]
    return again(gates[0].project_id, asks) if gates else {}


def outside(requests: Mapping[UUID, tuple[UUID | None, int]]) -> dict[UUID, Outside]:
    """Find requests outside the working hours of their rules, by gate.

    `requests` maps a gate to its policy set and the time of the request in microseconds.
    """
    of_sets = hours.of_sets(policy_set for policy_set, _ in requests.values())
    flagged = {}
    for gate, (policy_set, at_us) in requests.items():
        working_hours = of_sets.get(policy_set) if policy_set is not None else None
        when = working_hours.outside(at_us) if working_hours is not None else ""
        if working_hours is not None and when:
            flagged[gate] = Outside(when, working_hours)
    return flagged


_EFFECT_FIELDS: Final = tuple(f"effect__{name}" for name in ASK)


def _select_refusals(project: UUID, digests: Sequence[str]) -> Any:
    gates = Gate.objects.filter(
        ~Q(effect__leave_ref=""),  # selects the partial index
        effect__project=project,
        effect__intent_digest__in=digests,
        status__in=REFUSED,
    )
    return gates.order_by().values_list("opened_position", "id", "status", *_EFFECT_FIELDS)


_REFUSALS: Final = Compiled(_select_refusals, project=UUID, digests=[str])


def _load_last_votes(gates: set[UUID]) -> dict[UUID, Vote]:
    if not gates:
        return {}
    votes = (
        Vote.objects.filter(gate__in=gates, answer__in=NOES)
        .select_related("user")
        .order_by("voted_at_us")
    )
    return {vote.gate_id: vote for vote in votes}
