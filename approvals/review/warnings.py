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

from approvals import labels
from approvals.models import Gate, Vote
from approvals.policies import working_hours as policies_working_hours
from approvals.policies.working_hours import WorkingHours
from db.compiled_query import CompiledQuerySet
from journal.models import Entry
from ledger.models import Effect

REFUSED_STATUSES: Final = ("denied", "denied_session", "changes_requested")
REFUSING_ANSWERS: Final = ("deny", "deny_session", "request_changes")
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
# A denial that its voter took back at once stays denied in the record, and gives no warning
# (approvals/voting/undo.py).
IS_UNDONE: Final = Exists(
    Entry.objects.filter(
        effect=OuterRef("effect"), subject=OuterRef("pk"), kind="gate.undone", lane="system"
    )
)
# Columns of an effect that make a RequestIdentity, in its order.
REQUEST_IDENTITY: Final = (
    "tool",
    "intent_digest",
    "repository_id",
    "moved_refs",
    "environment",
    "resource",
)


class RequestIdentity(NamedTuple):
    """A request and what identifies repetitions of it: tool, arguments and target."""

    gate: UUID
    position: int
    same: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class LastRefusal:
    """The last refusal of the same request, in any session and by any agent, that stands.

    `times` counts all earlier refusals; `vote` is the last vote of the last refused gate.
    """

    gate: UUID
    position: int
    status: str
    vote: Vote
    times: int

    @property
    def word(self) -> str:
        """How it was refused: denied, denied for this session, or changes requested."""
        return labels.STATUS_LABELS[self.status][0]

    def __str__(self) -> str:
        return f"g_{self.position}"


class OutsideHours(NamedTuple):
    """Local day and time of a request outside working hours, and those hours."""

    when: str
    hours: WorkingHours


def find_last_refusals(project: UUID, asks: Iterable[RequestIdentity]) -> dict[UUID, LastRefusal]:
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
    last = {asking: max(refusals) for asking, refusals in before.items() if refusals}
    words = _load_last_votes({gate for _, gate, _ in last.values()})
    return {
        asking: LastRefusal(gate, position, status, words[gate], len(before[asking]))
        for asking, (position, gate, status) in last.items()
        if gate in words
    }


def find_outside_hours(
    requests: Mapping[UUID, tuple[UUID | None, int]],
) -> dict[UUID, OutsideHours]:
    """Find requests outside the working hours of their rules, by gate.

    `requests` maps a gate to its policy set and the time of the request in microseconds.
    """
    of_sets = policies_working_hours.load_working_hours(
        policy_set for policy_set, _ in requests.values()
    )
    flagged = {}
    for gate, (policy_set, at_us) in requests.items():
        working_hours = of_sets.get(policy_set) if policy_set is not None else None
        when = working_hours.outside(at_us) if working_hours is not None else ""
        if working_hours is not None and when:
            flagged[gate] = OutsideHours(when, working_hours)
    return flagged


_EFFECT_FIELDS: Final = tuple(f"effect__{name}" for name in REQUEST_IDENTITY)


def _select_refusals(project: UUID, digests: Sequence[str]) -> Any:
    gates = Gate.objects.filter(
        ~Q(effect__permission_ref=""),  # selects the partial index
        ~IS_UNDONE,
        effect__project=project,
        effect__intent_digest__in=digests,
        status__in=REFUSED_STATUSES,
    )
    return gates.order_by().values_list("opened_position", "id", "status", *_EFFECT_FIELDS)


_REFUSALS: Final = CompiledQuerySet(_select_refusals, project=UUID, digests=[str])


def _load_last_votes(gates: set[UUID]) -> dict[UUID, Vote]:
    if not gates:
        return {}
    votes = (
        Vote.objects.filter(gate__in=gates, answer__in=REFUSING_ANSWERS)
        .select_related("user")
        .order_by("voted_at_us")
    )
    return {vote.gate_id: vote for vote in votes}
