"""Check whether people refused the same before, or something about the same thing.

The reviewer sees who refused it, when, in which words, and what both requests have in common.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from approvals import labels
from approvals.checks.check_results import CheckResult
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.refused_requests import RefusedRequest, load_refused_requests
from approvals.gates.statuses import US
from approvals.models import Vote
from approvals.review.warnings import (
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
_SAME_PARTY_US: Final = 24 * 3600 * US  # refusals of the same session or agent warn for this long
_MAX_VALUE_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class EarlierDenials:
    """Refusals before the requests of a page. `repeated` are those of the same request, by gate."""

    repeated: dict[UUID, LastRefusal]
    reasons: dict[UUID, str]  # of the last refusing vote, by gate that was refused
    related: dict[UUID, tuple[RefusedRequest, str, str]]  # refusal, kind and value that it shares
    now_us: int


def load_earlier_denials(project: UUID, requests: Sequence[CheckedRequest]) -> EarlierDenials:
    """Load the refusals that concern the requests of a page; at most six queries."""
    asks = [
        RequestIdentity(request.gate, request.opened_position, request.identity)
        for request in requests
        if request.identity
    ]
    repeated = find_last_refusals(project, asks)
    refused = load_refused_requests(project, requests)
    related = {}
    for request in requests:
        match = None if request.gate in repeated else refused.find_related(request)
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


def _load_refusing_votes(gates: set[UUID]) -> dict[UUID, Vote]:
    """Load the last refusing vote of each gate. One query."""
    if not gates:
        return {}
    return {vote.gate_id: vote for vote in _REFUSING_VOTES.rows(gates=sorted(gates))}


def _select_refusing_votes(gates: Sequence[UUID]) -> Any:
    votes = Vote.objects.filter(gate__in=gates, answer__in=REFUSING_ANSWERS)
    return votes.select_related("user").order_by("voted_at_us")


_REFUSING_VOTES: Final = CompiledQuerySet(_select_refusing_votes, gates=[UUID])


def _load_reasons(positions: dict[UUID, int]) -> dict[UUID, str]:
    """Load the reasons of votes by gate, from the journal positions of the votes. One query."""
    if not positions:
        return {}
    texts = dict(_REASONS.rows(positions=sorted(positions.values())))
    reasons = {
        gate: summaries.parse_body(texts.get(position) or "").get("reason")
        for gate, position in positions.items()
    }
    return {gate: reason for gate, reason in reasons.items() if isinstance(reason, str)}


def _select_reasons(positions: Sequence[int]) -> Any:
    return Body.objects.filter(entry__in=positions).values_list("entry_id", "text")


_REASONS: Final = CompiledQuerySet(_select_reasons, positions=[int])
