"""Rows of the requests that wait for a person, as the overview lists them.

They have no checks but that of their letters: the inbox and the page of a request run the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Subquery
from django.db.models.functions import Coalesce, Length, Substr

from approvals.checks.checked_request import CheckedRequest
from approvals.checks.run_checks import check_letters
from approvals.inbox.telling_values import TellingValue, list_telling_values
from approvals.models import Gate, Vote
from approvals.review.call_titles import CallTitle, build_call_title
from approvals.review.shown_checks import MarkedValue, collect_marks
from approvals.review.warnings import FIRST_IN_PROJECT, FIRST_OF_AGENT
from approvals.voting.quorum import load_approvals
from db.compiled_query import CompiledQuerySet
from journal import summaries
from journal.models import Body
from ledger.tools import cache

_PLAN_CHARACTERS: Final = 16_384  # characters of a plan that a row reads
_PLAN_BODY: Final = Body.objects.filter(entry=OuterRef("plan_position"))
_COLUMNS: Final[dict[str, Any]] = {
    **{
        name: F(name)
        for name in ("tool", "reversibility", "repository_name", "minimum", "opened_position")
    },
    **{name: F(name) for name in ("requested_at_us", "decide_by_us", "session_id")},
    **{name: F(name) for name in ("effect_id", "plan_position", "policy_set_id", "risk", "rule")},
    "gate": F("id"),
    "agent": F("agent_id"),
    "agent_name": F("agent__name"),
    "whom": Coalesce("requester__username", "session_owner__username"),
    "session_position": F("session__opened_position"),
    **{
        name: F(f"effect__{name}")
        for name in ("ref", "ref_class", "resource", "environment", "intent_digest")
    },
    "first_of_agent": FIRST_OF_AGENT,
    "first_in_project": FIRST_IN_PROJECT,
    "has_votes": Exists(Vote.objects.filter(gate=OuterRef("pk"))),
    "plan_head": Subquery(
        _PLAN_BODY.annotate(head=Substr("text", 1, _PLAN_CHARACTERS)).values("head")
    ),
    "plan_length": Subquery(_PLAN_BODY.annotate(length=Length("text")).values("length")),
}


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A request that waits: its columns, title and telling arguments.

    `gist` summarizes the arguments if none is telling. `share_left` is the part of its time that
    is left, in per cent.
    """

    gate: Any
    title: CallTitle
    telling: tuple[TellingValue, ...]
    gist: str
    approvals: int
    share_left: int
    left_hours: int  # full hours that are left; below one the clock counts
    marks: tuple[MarkedValue, ...] = ()  # values with characters that look like others
    is_first_to_expire: bool = False

    @property
    def share_gone(self) -> int:
        """The part of its time that has passed, in per cent."""
        return 100 - self.share_left

    @property
    def place(self) -> str:
        """Where it acts: the repository, else the resource or environment; may be empty."""
        repository: str = self.gate.repository_name
        return repository or self.gate.environment or ""

    @property
    def remarks(self) -> str:
        """Whether it expires first, its approvals, whether its tool is new; each after a comma."""
        words = ", first to expire" if self.is_first_to_expire else ""
        if self.gate.minimum > 1:
            words += f", {self.approvals} of {self.gate.minimum} approved"
        if self.gate.first_in_project:
            return f"{words}, new tool"
        return (
            f"{words}, agent’s first request for this tool" if self.gate.first_of_agent else words
        )


def load_waiting_rows(
    project: UUID, gates: Sequence[UUID], now: int, first_expiry_us: int | None
) -> list[WaitingRow]:
    """Load the rows of these gates, in their order. One query, two if one has votes.

    Rows that expire at `first_expiry_us` say that they are the first to expire.
    """
    if not gates:
        return []
    read = [
        SimpleNamespace(**dict(zip(_COLUMNS, row, strict=True))) for row in _ROWS.rows(gates=gates)
    ]
    by_id = {row.gate: row for row in read}
    voted = load_approvals([row.gate for row in read if row.has_votes])
    rows = [
        _build_row(project, by_id[gate], sum(not vote.fault for vote in voted.get(gate, ())), now)
        for gate in gates
        if gate in by_id
    ]
    return [
        replace(row, is_first_to_expire=row.gate.decide_by_us == first_expiry_us) for row in rows
    ]


def _build_row(project: UUID, row: Any, approvals: int, now: int) -> WaitingRow:
    head, length = row.plan_head or "", row.plan_length or 0  # empty if erased
    is_complete = length <= _PLAN_CHARACTERS
    arguments = (
        summaries.parse_body(head).get("arguments")
        if is_complete
        else summaries.extract_arguments(head)
    )
    title = build_call_title(
        row.tool,
        arguments,
        ref=row.ref,
        repository=row.repository_name,
        resource=row.resource,
    )
    declared = cache.load_tool(project, row.tool).telling
    telling = tuple(
        pair
        for pair in list_telling_values(declared, arguments, title.object)
        if pair.value != title.object  # shown once
    )
    gist = (
        summaries.summarize_arguments(arguments) if is_complete else summaries.summarize_plan(head)
    )
    whole = max(row.decide_by_us - row.requested_at_us, 1)
    left = min(max(row.decide_by_us - now, 0), whole)
    return WaitingRow(
        row,
        title,
        telling,
        "" if telling else gist,
        approvals,
        left * 100 // whole,
        left // 3_600_000_000,
        collect_marks(check_letters(_build_request(row, arguments))),
    )


def _build_request(row: Any, arguments: Any) -> CheckedRequest:
    return CheckedRequest(
        gate=row.gate,
        effect=row.effect_id,
        session=row.session_id,
        agent=row.agent,
        opened_position=row.opened_position,
        plan_position=row.plan_position,
        requested_at_us=row.requested_at_us,
        tool=row.tool,
        arguments=arguments,
        preconditions={},
        claim="",
        repository=row.repository_name,
        ref=row.ref,
        ref_class=row.ref_class,
        environment=row.environment,
        resource=row.resource,
        reversibility=row.reversibility,
        risk=row.risk,
        policy_set=row.policy_set_id,
        rule=row.rule,
        intent_digest=row.intent_digest,
    )


def _select_rows(gates: Sequence[UUID]) -> Any:
    named = {f"of_{name}": column for name, column in _COLUMNS.items()}
    return Gate.objects.filter(id__in=gates).annotate(**named).values_list(*named)


_ROWS: Final = CompiledQuerySet(_select_rows, gates=[UUID])
