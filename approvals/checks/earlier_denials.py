"""Check whether people refused the same before, or something about the same thing.

The reviewer sees who refused it, when, in which words, and what both requests have in common.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.db.models import OuterRef, Subquery
from django.db.models.functions import Substr

from approvals import labels
from approvals.checks.check_results import CheckResult
from approvals.checks.checked_request import CheckedRequest
from approvals.gates.statuses import US
from approvals.models import Gate, Vote
from approvals.review.identities import find_identities
from approvals.review.warnings import (
    REFUSED_STATUSES,
    REFUSING_ANSWERS,
    LastRefusal,
    RequestIdentity,
    find_last_refusals,
)
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from journal import summaries
from journal.models import Body

DENIED_BEFORE: Final = "denied_before"
WINDOW_US: Final = 90 * 24 * 3600 * US  # before the request, in which refusals are compared
_SAME_PARTY_US: Final = 24 * 3600 * US  # refusals of the same session or agent warn for this long
_MAX_REFUSALS: Final = 200  # newest of a page
_PLAN_CHARACTERS: Final = 2_048  # characters of a refused plan that are compared
_MAX_VALUE_CHARACTERS: Final = 60
# Kinds that say what a call is about. A host or a version is shared by unrelated calls.
_TELLING_KINDS: Final = (
    *(
        "recipient",
        "order",
        "customer",
        "person",
        "account",
        "ticket",
        "table",
        "file",
        "volume",
        "commit",
    ),
    *("branch", "target"),
)


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A refused request, with what it is about and the words of the last refusing vote."""

    gate: UUID
    position: int
    status: str
    tool: str
    session: UUID
    agent: UUID
    ended_at_us: int
    identities: dict[str, frozenset[str]]
    voter: str = ""
    reason: str = ""

    @property
    def word(self) -> str:
        """How it was refused: denied, denied for this session, or changes requested."""
        return labels.STATUS_LABELS[self.status][0]

    def __str__(self) -> str:
        return f"g_{self.position}"


@dataclass(frozen=True, slots=True)
class EarlierDenials:
    """Refusals before the requests of a page. `repeated` are those of the same request, by gate."""

    repeated: dict[UUID, LastRefusal]
    reasons: dict[UUID, str]  # of the last refusing vote, by gate that was refused
    related: dict[UUID, tuple[RefusedRequest, str, str]]  # refusal, kind and value that it shares
    now_us: int


def load_earlier_denials(project: UUID, requests: Sequence[CheckedRequest]) -> EarlierDenials:
    """Load the refusals that concern the requests of a page; at most five queries."""
    asks = [
        RequestIdentity(request.gate, request.opened_position, request.identity)
        for request in requests
        if request.identity
    ]
    repeated = find_last_refusals(project, asks)
    refusals = _load_refusals(project, requests)
    related = {}
    for request in requests:
        match = None if request.gate in repeated else find_related_refusal(request, refusals)
        if match is not None:
            related[request.gate] = match
    gates = {match[0].gate for match in related.values()}
    votes: dict[UUID, Vote] = {refusal.gate: refusal.vote for refusal in repeated.values()}
    votes.update(_load_refusing_votes(gates))
    reasons = _load_reasons({gate: vote.position for gate, vote in votes.items()})
    return EarlierDenials(
        repeated,
        reasons,
        {
            gate: (_with_vote(refusal, votes, reasons), kind, value)
            for gate, (refusal, kind, value) in related.items()
        },
        now_us(),
    )


def find_related_refusal(
    request: CheckedRequest, refusals: Sequence[RefusedRequest]
) -> tuple[RefusedRequest, str, str] | None:
    """Return the newest earlier refusal about the same thing, with the kind and value. Pure.

    It has the same tool, and names the same recipient, order, file, table or the like.
    """
    own = find_identities(
        request.arguments,
        {"repository": request.repository, "ref": request.ref, "resource": request.resource},
    )
    for refusal in refusals:
        if refusal.tool != request.tool or refusal.position >= request.opened_position:
            continue
        for kind in _TELLING_KINDS:
            shared = own.get(kind, frozenset()) & refusal.identities.get(kind, frozenset())
            if shared and not (kind == "branch" and _differs_otherwise(own, refusal.identities)):
                return refusal, kind, min(shared)
    return None


def find_earlier_denials(request: CheckedRequest, facts: EarlierDenials) -> Iterator[CheckResult]:
    """Yield the warning about an earlier refusal of `request`, if any. Pure."""
    if (last := facts.repeated.get(request.gate)) is not None:
        name = last.vote.user.get_username()
        times = f" Refused {last.times} times in all." if last.times > 1 else ""
        yield _build_result(
            "danger",
            last.word,
            name,
            facts.now_us - last.vote.voted_at_us,
            facts.reasons.get(last.gate, ""),
            f"The same request.{times}",
            str(last),
        )
    elif (match := facts.related.get(request.gate)) is not None:
        refusal, kind, value = match
        own = request.session == refusal.session or request.agent == refusal.agent
        lately = request.requested_at_us - refusal.ended_at_us <= _SAME_PARTY_US
        noun = "file" if kind == "file" else kind
        yield _build_result(
            "warning" if own and lately else "notice",
            refusal.word,
            refusal.voter,
            facts.now_us - refusal.ended_at_us,
            refusal.reason,
            f"Same {noun}: {_cut_value(value)}.",
            str(refusal),
        )


def _build_result(
    level: str, word: str, name: str, ago_us: int, reason: str, same: str, gate: str
) -> CheckResult:
    ago = labels.format_age(0, ago_us)
    quote = f"“{reason}” " if reason else ""
    return CheckResult(
        DENIED_BEFORE,
        level,
        short=f"{word} {ago} ago",
        title=f"{word.capitalize()} {ago} ago by {name}:",
        sentence=f"{quote}{same}",
        gate=gate,
    )


def _differs_otherwise(own: dict[str, frozenset[str]], other: dict[str, frozenset[str]]) -> bool:
    """True if both name things of one kind, and not the same: another commit on the same branch."""
    return any(
        own.get(kind) and other.get(kind) and not own[kind] & other[kind]
        for kind in _TELLING_KINDS
        if kind != "branch"
    )


def _cut_value(value: str) -> str:
    words = value.strip()
    half = _MAX_VALUE_CHARACTERS // 2
    return words if len(words) <= 2 * half else f"{words[:half]}…{words[-half:]}"


def _with_vote(
    refusal: RefusedRequest, votes: dict[UUID, Vote], reasons: dict[UUID, str]
) -> RefusedRequest:
    vote = votes.get(refusal.gate)
    name = vote.user.get_username() if vote is not None else ""
    return replace(refusal, voter=name, reason=reasons.get(refusal.gate, ""))


def _select_refused(project: UUID, tools: Sequence[str], since: int, until: int) -> Any:
    refused = Gate.objects.filter(
        project=project,
        status__in=REFUSED_STATUSES,
        decided_at_us__range=(since, until),
        tool__in=tools,
    )
    plan = Body.objects.filter(entry=OuterRef("plan_position")).annotate(
        head=Substr("text", 1, _PLAN_CHARACTERS)
    )
    columns = ("id", "opened_position", "status", "tool", "session_id", "agent_id")
    target = ("repository_name", "effect__ref", "effect__resource")
    return (
        refused.order_by("-decided_at_us")
        .annotate(head=Subquery(plan.values("head")))
        .values_list(*columns, "decided_at_us", *target, "head")[:_MAX_REFUSALS]
    )


_REFUSED: Final = CompiledQuerySet(_select_refused, project=UUID, tools=[str], since=int, until=int)


def _load_refusals(project: UUID, requests: Sequence[CheckedRequest]) -> list[RefusedRequest]:
    """Load the newest refusals of the same tools, newest first. One query."""
    if not requests:
        return []
    asked_us = [request.requested_at_us for request in requests]
    rows = _REFUSED.rows(
        project=project,
        tools=sorted({request.tool for request in requests}),
        since=min(asked_us) - WINDOW_US,
        until=now_us(),
    )
    refusals = []
    for gate, position, status, tool, session, agent, decided_us, repository, ref, *rest in rows:
        resource, head = rest
        identities = _read_identities(head or "", repository, ref, resource)
        refusals.append(
            RefusedRequest(gate, position, status, tool, session, agent, decided_us, identities)
        )
    return refusals


@lru_cache(maxsize=2 * _MAX_REFUSALS)  # plans never change, and pages are reloaded
def _read_identities(
    head: str, repository: str, ref: str, resource: str
) -> dict[str, frozenset[str]]:
    """Return what the beginning of a plan's body is about."""
    plan = summaries.parse_body(head) or summaries.parse_body(summaries.close_truncated_json(head))
    target = {"repository": repository, "ref": ref, "resource": resource}
    return find_identities(plan.get("arguments"), target)


def _load_refusing_votes(gates: set[UUID]) -> dict[UUID, Vote]:
    if not gates:
        return {}
    votes = Vote.objects.filter(gate__in=gates, answer__in=REFUSING_ANSWERS)
    return {vote.gate_id: vote for vote in votes.select_related("user").order_by("voted_at_us")}


def _load_reasons(positions: dict[UUID, int]) -> dict[UUID, str]:
    """Load the reasons of votes by gate, from the journal positions of the votes. One query."""
    if not positions:
        return {}
    texts = dict(Body.objects.filter(entry__in=positions.values()).values_list("entry_id", "text"))
    reasons = {
        gate: summaries.parse_body(texts.get(position) or "").get("reason")
        for gate, position in positions.items()
    }
    return {gate: reason for gate, reason in reasons.items() if isinstance(reason, str)}
