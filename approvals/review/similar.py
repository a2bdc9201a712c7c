"""Fact 6 of a gate page: decisions on similar requests, and by what they are similar.

Decisions on something else must neither reassure nor warn, so requests that share only tool and
repository are listed without their outcome. Two requests that name no recipient do not have the
same one; two with the same arguments that name one do, and count there too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, F, OuterRef

from approvals.digests import is_target_named
from approvals.gates.gates import current_gate_status
from approvals.models import Gate
from approvals.review.plan_digests import (
    Identities,
    PlanDigest,
    StoredPlan,
    digest_plan,
    digest_target,
    load_plan_digests,
)
from approvals.review.warnings import IS_UNDONE, REQUEST_IDENTITY
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from journal.models import Body

MAX_SIMILAR: Final = 5  # of each degree
_MAX_CANDIDATES: Final = 40  # newest requests with the same tool and repository
_DEGREES: Final = (
    "same arguments and target",
    "same arguments, no target named",
    "same arguments, another target",
)
_MAX_KINDS: Final = 3  # kinds of identifiers that the page compares


class SimilarGates(NamedTuple):
    """Gates that are similar by what `words` says, newest first; none is an answer too."""

    words: str
    gates: list[Any]

    @property
    def counted(self) -> str:
        """Counts by decision: 3 approved, 1 denied, 1 waiting; none without gates."""
        if not self.gates:
            return "none"
        kinds = Counter(_STATUS_LABELS[gate.status] for gate in self.gates)
        return ", ".join(f"{number} {kind}" for kind, number in kinds.items())


@dataclass(slots=True)
class SimilarDecisions:
    """Requests similar to one, most similar first.

    `others` share only tool and repository.
    """

    alike: list[SimilarGates] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)


_STATUS_LABELS: Final = {
    **dict.fromkeys(("approved", "used", "expired_unused"), "approved"),
    **dict.fromkeys(("denied", "denied_session"), "denied"),
    "changes_requested": "changes requested",
    **{name: name for name in ("expired", "revoked", "cancelled")},
    "pending": "waiting",
}


def load_similar_decisions(gate: Gate, plan: Mapping[str, Any]) -> SimilarDecisions:
    """Load decisions on requests similar to `gate`. At most two queries."""
    same = tuple(getattr(gate.effect, name) for name in REQUEST_IDENTITY)
    own = digest_plan(gate.tool, plan)
    about = digest_target(gate.repository_name, gate.effect.ref, gate.effect.resource)
    about = {**about, **own.identities}
    result = SimilarDecisions()
    degrees: list[list[Any]] = [[] for _ in _DEGREES]
    by_kind: dict[str, list[Any]] = {kind: [] for kind in [*about][:_MAX_KINDS]}
    now = now_us()
    neighbours, plans = _load_candidates(gate)
    for neighbour in neighbours:
        neighbour.status = current_gate_status(neighbour, now)
        degree = _similarity_degree(same, neighbour)
        if degree is not None:
            degrees[degree].append(neighbour)
        its = own if degree is not None else plans.get(neighbour.id)
        kinds = (
            _find_shared_kinds(about, neighbour, its)
            if its is not None and its.kind == own.kind
            else []
        )
        for kind in kinds:
            by_kind.setdefault(kind, []).append(neighbour)
        if not kinds and degree is None:
            result.others.append(neighbour)
    result.alike = [
        SimilarGates(words, gates[:MAX_SIMILAR])
        for words, gates in zip(_DEGREES, degrees, strict=True)
        if gates
    ]
    result.alike += [
        SimilarGates(f"same {kind}", gates[:MAX_SIMILAR]) for kind, gates in by_kind.items()
    ]
    return result


class _NearGate(SimpleNamespace):
    """A candidate, with the columns of _COLUMNS only."""

    def __init__(self, row: Sequence[Any]) -> None:
        self.__dict__.update(zip(_COLUMNS, row, strict=True))

    def __str__(self) -> str:
        return f"g_{self.opened_position}"


def _load_candidates(gate: Gate) -> tuple[list[Any], Mapping[Any, PlanDigest]]:
    """Load the candidates, and what the plans of those with other arguments are about."""
    rows = _CANDIDATES.rows(
        project=gate.project_id, tool=gate.tool, repository=gate.repository_name, gate=gate.id
    )
    neighbours = [_NearGate(row) for row in rows]
    plans = {
        neighbour.id: StoredPlan(neighbour.plan_position, gate.tool)
        for neighbour in neighbours
        if neighbour.has_body and neighbour.effect_intent_digest != gate.effect.intent_digest
    }
    return neighbours, load_plan_digests(plans)


_GATE_COLUMNS: Final = (
    *("id", "opened_position", "plan_position", "status", "repository_name"),
    *("decide_by_us", "permission_until_us"),
)
_JOINED_COLUMNS: Final[dict[str, Any]] = {
    # An erased plan is not compared, also if a process has read it before.
    "has_body": Exists(Body.objects.filter(entry=OuterRef("plan_position"))),
    **{f"effect_{name}": F(f"effect__{name}") for name in (*REQUEST_IDENTITY, "ref")},
}
_COLUMNS: Final = (*_GATE_COLUMNS, *_JOINED_COLUMNS)


def _select_candidates(project: UUID, tool: str, repository: str, gate: UUID) -> Any:
    near = Gate.objects.filter(~IS_UNDONE, project=project, tool=tool, repository_name=repository)
    newest = near.exclude(id=gate).order_by("-opened_position")
    return newest.annotate(**_JOINED_COLUMNS).values_list(*_COLUMNS)[:_MAX_CANDIDATES]


_CANDIDATES: Final = CompiledQuerySet(
    _select_candidates, project=UUID, tool=str, repository=str, gate=UUID
)


def _similarity_degree(same: tuple[Any, ...], other: Any) -> int | None:
    """Return the degree of similarity, 0 the highest; None if the arguments differ."""
    its = tuple(getattr(other, f"effect_{name}") for name in REQUEST_IDENTITY)
    if its == same:
        return 0 if is_target_named(same[2:]) else 1
    return 2 if its[:2] == same[:2] else None


def _find_shared_kinds(about: Identities, other: Any, plan: PlanDigest) -> list[str]:
    """Return the kinds of identifiers that a request of the same kind of call shares."""
    target = digest_target(other.repository_name, other.effect_ref, other.effect_resource)
    its = {**plan.identities, **target}
    return [kind for kind, digests in about.items() if digests & its.get(kind, frozenset())]
