"""What stands out about a request before anybody reads it, from the book alone: an earlier no, a first time, the hour.

A list asks for a whole page of gates at once, so that the number of queries does not depend on how many there are.
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
# To be put on a query of gates. A request before is one of any status; a use is anything the book knows of.
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
# The columns of an effect that an Ask is made of, in its order.
ASK: Final = ("tool", "intent_digest", "repository_id", "moved_refs", "environment", "resource")


class Ask(NamedTuple):
    """A request, and what makes another the same: tool and arguments, and the target."""

    gate: UUID
    position: int
    same: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """The last time that people said no to the same, in whatever session and whoever asked.

    `times` counts every no before the request that this is told of; `vote` is the last word of the last.
    """

    gate: UUID
    position: int
    status: str
    vote: Vote
    times: int

    @property
    def word(self) -> str:
        """What was said: denied, denied for good, or returned."""
        return "denied for good" if self.status == "denied_final" else self.status

    def __str__(self) -> str:
        return f"g_{self.position}"


class Outside(NamedTuple):
    """When a request was made, as a day and a time where the hours are, and the hours it lies outside of."""

    when: str
    hours: Hours


def again(project: UUID, asks: Iterable[Ask]) -> dict[UUID, Again]:
    """What was refused before, by the gate that asks for it once more. At most two queries."""
    listed = list(asks)
    if not listed:
        return {}
    refused: dict[tuple[object, ...], list[tuple[int, UUID, str]]] = defaultdict(list)
    digests = sorted({str(one.same[1]) for one in listed})
    for position, gate, status, *same in _REFUSALS.rows(project=project, digests=digests):
        refused[tuple(same)].append((position, gate, status))
    before = {ask.gate: [one for one in refused[ask.same] if one[0] < ask.position] for ask in listed}
    last = {asking: max(noes) for asking, noes in before.items() if noes}
    words = _last_words({gate for _, gate, _ in last.values()})
    return {
        asking: Again(gate, position, status, words[gate], len(before[asking]))
        for asking, (position, gate, status) in last.items()
        if gate in words
    }


def asked_again(gates: Sequence[Gate]) -> dict[UUID, Again]:
    """The same for gates of one project, whose effects are loaded."""
    asks = [Ask(one.id, one.opened_position, tuple(getattr(one.effect, name) for name in ASK)) for one in gates]
    return again(gates[0].project_id, asks) if gates else {}


def outside(asked: Mapping[UUID, tuple[UUID | None, int]]) -> dict[UUID, Outside]:
    """What was asked outside the hours of the rules that asked, by gate; of each its policy set, and when (in µs)."""
    of_sets = hours.of_sets(policy_set for policy_set, _ in asked.values())
    found = {}
    for gate, (policy_set, at_us) in asked.items():
        told = of_sets.get(policy_set) if policy_set is not None else None
        when = told.outside(at_us) if told is not None else ""
        if told is not None and when:
            found[gate] = Outside(when, told)
    return found


_OF_EFFECT: Final = tuple(f"effect__{name}" for name in ASK)


def _refusals(project: UUID, digests: Sequence[str]) -> Any:
    found = Gate.objects.filter(
        ~Q(effect__leave_ref=""),  # names the index: every effect that somebody was asked about
        effect__project=project,
        effect__intent_digest__in=digests,
        status__in=REFUSED,
    )
    return found.order_by().values_list("opened_position", "id", "status", *_OF_EFFECT)


_REFUSALS: Final = Compiled(_refusals, project=UUID, digests=[str])


def _last_words(gates: set[UUID]) -> dict[UUID, Vote]:
    if not gates:
        return {}
    votes = Vote.objects.filter(gate__in=gates, answer__in=NOES).select_related("user").order_by("voted_at_us")
    return {one.gate_id: one for one in votes}
