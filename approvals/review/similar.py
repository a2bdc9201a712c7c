"""Fact 6 of a gate page: decisions on similar requests, and by what they are similar.

Decisions on something else must neither reassure nor warn, so requests that share only tool and
repository are listed without their outcome. Two requests that name no recipient do not have the
same one.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import F, OuterRef, Subquery
from django.db.models.functions import Substr

from approvals.diff import destructive_pushes
from approvals.digests import is_target_named
from approvals.gates.deadlines import current_gate_status
from approvals.models import Gate
from approvals.review.identities import find_identities
from approvals.review.warnings import REQUEST_IDENTITY
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from journal import summaries
from journal.models import Body

MAX_SIMILAR: Final = 5  # of each degree
_MAX_CANDIDATES: Final = 40  # newest requests with the same tool and repository
_PLAN_CHARACTERS: Final = 2048  # characters of a plan used to compute its kind
_DEGREES: Final = (
    "same arguments and target",
    "same arguments, no target named",
    "same arguments, another target",
)
_MAX_KINDS: Final = 3  # kinds of identifiers that the page compares
_COMMANDS: Final = ("command", "cmd", "commands", "code", "script", "sql")
_COMMAND_SEPARATORS: Final = re.compile(r"[;&|\n]+")
_PROGRAM_PREFIX: Final = re.compile(r"(?:\w+=\S*\s+|sudo\s+|env\s+|time\s+|nohup\s+|\s+)*")
_PROGRAMS_WITH_VERBS: Final = frozenset(
    [
        "apt",
        "apt-get",
        "aws",
        "az",
        "brew",
        "cargo",
        "docker",
        "gcloud",
        "gh",
        "git",
        "go",
        "helm",
        "kubectl",
        "make",
        "npm",
        "pip",
        "pnpm",
        "systemctl",
        "terraform",
        "uv",
        "yarn",
    ]
)
_WORD: Final = re.compile(r"[A-Za-z][\w-]*")


class SimilarGates(NamedTuple):
    """Gates that are similar by what `words` says, newest first; none is an answer too."""

    words: str
    gates: list[Gate]

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
    others: list[Gate] = field(default_factory=list)


_STATUS_LABELS: Final = {
    **dict.fromkeys(("approved", "used", "expired_unused"), "approved"),
    **dict.fromkeys(("denied", "denied_session"), "denied"),
    "changes_requested": "changes requested",
    **{name: name for name in ("expired", "revoked", "cancelled")},
    "pending": "waiting",
}


def load_similar_decisions(gate: Gate, plan: Mapping[str, Any]) -> SimilarDecisions:
    """Load decisions on requests similar to `gate`. One query."""
    same = tuple(getattr(gate.effect, name) for name in REQUEST_IDENTITY)
    own, about = call_kind(gate.tool, plan), _find_plan_identities(gate, gate.effect, plan)
    result = SimilarDecisions()
    degrees: list[list[Gate]] = [[] for _ in _DEGREES]
    by_kind: dict[str, list[Gate]] = {kind: [] for kind in [*about][:_MAX_KINDS]}
    now = now_us()
    for neighbour in _load_candidates(gate):
        neighbour.status = current_gate_status(neighbour, now)
        degree = _similarity_degree(same, neighbour)
        if degree is not None:
            degrees[degree].append(neighbour)
            continue
        kinds = _find_shared_kinds(own, about, neighbour)
        for kind in kinds:
            by_kind.setdefault(kind, []).append(neighbour)
        if not kinds:
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


def _load_candidates(gate: Gate) -> list[Any]:
    return _CANDIDATES.rows(
        project=gate.project_id, tool=gate.tool, repository=gate.repository_name, gate=gate.id
    )


def _select_candidates(project: UUID, tool: str, repository: str, gate: UUID) -> Any:
    plan = Body.objects.filter(entry=OuterRef("plan_position")).annotate(
        head=Substr("text", 1, _PLAN_CHARACTERS)
    )
    near = Gate.objects.filter(project=project, tool=tool, repository_name=repository)
    annotated = near.exclude(id=gate).annotate(
        head=Subquery(plan.values("head")),
        **{f"effect_{name}": F(f"effect__{name}") for name in (*REQUEST_IDENTITY, "ref")},
    )
    return annotated.order_by("-opened_position")[:_MAX_CANDIDATES]


_CANDIDATES: Final = CompiledQuerySet(
    _select_candidates, project=UUID, tool=str, repository=str, gate=UUID
)


def _similarity_degree(same: tuple[Any, ...], other: Any) -> int | None:
    """Return the degree of similarity, 0 the highest; None if the arguments differ."""
    its = tuple(getattr(other, f"effect_{name}") for name in REQUEST_IDENTITY)
    if its == same:
        return 0 if is_target_named(same[2:]) else 1
    return 2 if its[:2] == same[:2] else None


def _find_plan_identities(
    gate: Any, target: Any, plan: Mapping[str, Any]
) -> dict[str, frozenset[str]]:
    columns = {"repository": gate.repository_name, "ref": target.ref, "resource": target.resource}
    return find_identities(plan.get("arguments"), columns)


def _find_shared_kinds(own: object, about: Mapping[str, frozenset[str]], other: Any) -> list[str]:
    """Return the kinds of identifiers that a request of the same kind of call shares."""
    head = other.head or ""
    plan = summaries.parse_body(head) or summaries.parse_body(summaries.close_truncated_json(head))
    if not plan or call_kind(other.tool, plan) != own:
        return []
    target = SimpleNamespace(ref=other.effect_ref, resource=other.effect_resource)
    its = _find_plan_identities(other, target, plan)
    return [kind for kind, values in about.items() if values & its.get(kind, frozenset())]


def call_kind(tool: str, plan: Mapping[str, Any]) -> object:
    """Return the kind of a call: argument names, switches, programs, pushes."""
    arguments = plan.get("arguments")
    named = arguments if isinstance(arguments, dict) else {"": arguments}
    switched = {name for name, value in named.items() if value is True}
    runs = {word for name in (*_COMMANDS, "") for word in _iterate_programs(named.get(name))}
    return (
        frozenset(named),
        switched,
        runs,
        destructive_pushes.describe_destructive_push(tool, arguments, plan.get("preconditions")),
    )


def _iterate_programs(value: Any) -> Iterator[str]:
    """Yield each program of a command with verb and options: git push --force, rm -rf."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    if not isinstance(value, str):
        return
    for part in _COMMAND_SEPARATORS.split(value):
        words = _PROGRAM_PREFIX.sub("", part, count=1).split()
        if not words:
            continue
        program = words[0].rpartition("/")[2]
        verb = (
            next((word for word in words[1:] if _WORD.fullmatch(word)), "")
            if program in _PROGRAMS_WITH_VERBS
            else ""
        )
        options = sorted({word.partition("=")[0] for word in words[1:] if word.startswith("-")})
        yield " ".join([program, verb, *options])
