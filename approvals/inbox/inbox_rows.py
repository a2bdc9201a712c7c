"""Row objects of the inbox lists: gates with a summary and warnings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Subquery
from django.db.models.functions import Coalesce, Length, Substr

from approvals.checks import run_checks
from approvals.checks.check_results import CheckResult
from approvals.checks.checked_request import CheckedRequest, build_checked_request
from approvals.checks.claims.environment_claims import find_production_value
from approvals.checks.outliers import STANDS_OUT
from approvals.diff import destructive_pushes, hidden_characters
from approvals.gates.gates import current_gate_status
from approvals.gates.statuses import OPEN_STATUSES
from approvals.inbox.telling_values import TellingValue, list_telling_values
from approvals.labels import describe_aftermath
from approvals.models import Addressee, Gate, Vote
from approvals.policies.policy_evaluation import (
    Severity,
    compute_declared_risk,
    get_plan_arguments,
)
from approvals.review import changed_requests
from approvals.review.call_titles import CallTitle, build_call_title
from approvals.review.card import MAX_GLANCE_CHARACTERS, MAX_GLANCE_LINES
from approvals.review.changed_requests import EarlierRequest, GateRequest
from approvals.review.warnings import (
    FIRST_IN_PROJECT,
    FIRST_OF_AGENT,
    REQUEST_IDENTITY,
    OutsideHours,
    RequestIdentity,
    find_outside_hours,
)
from approvals.voting.quorum import load_approvals
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from journal import summaries
from journal.models import Body
from ledger.tools import cache
from ledger.tools.cache import UNDECLARED, CachedDeclaration
from web.templatetags.gatebook import derive_shown_state

# The answer that ended a gate of this status; gates of other statuses were approved.
_DECIDING_ANSWERS: Final = {
    "denied": "deny",
    "denied_session": "deny_session",
    "changes_requested": "request_changes",
}
_OUTCOME_FIELDS: Final = ("state", "permission", "outcome", "deadline_us")
_PLAN_CHARACTERS: Final = 16_384  # characters of a plan that a row reads


@dataclass
class InboxRow:
    """A gate in a list. `gist`, shown without telling arguments, is agent text."""

    gate: Any  # a _GateRow
    title: CallTitle
    gist: str = ""
    telling: tuple[TellingValue, ...] = ()  # the arguments that tell it apart; agent text
    declared: CachedDeclaration = UNDECLARED  # its tool, raised by its arguments
    hidden: int = 0
    blanks: int = 0  # length of the longest run of blanks shown as a count
    long: bool = False
    fits: bool = True  # the arguments fit the limits of a card
    takes: tuple[str, ...] = ()  # destructive effects of a push, by its arguments
    before: EarlierRequest | None = None  # earlier version that was not approved
    reused: bool = False  # its key, or that of `before`, was sent with other content
    first: str = ""  # first use of the tool: in the "project", or by the "agent"
    outside: OutsideHours | None = None  # set if requested outside working hours
    votes: int = 0
    deciders: str = ""  # names of those who decided it: rita, sam
    became: str = ""  # state of its effect, after its permission was used
    afterwards: str = ""  # what happened to its effect otherwise, as text
    checks: tuple[CheckResult, ...] = ()
    production_value: str = ""  # the argument that names production; agent text
    request: CheckedRequest | None = None  # set while pending, if its plan can be read
    like: list["InboxRow"] = field(default_factory=list)  # similar requests, folded under this row
    apart: list["InboxRow"] = field(default_factory=list)  # those that stand out; never folded
    # What those that stand out differ in: ((name, ((count, value, stands out), ...)), ...)
    tally: tuple[tuple[str, tuple[tuple[int, str, bool], ...]], ...] = ()
    ticked: bool = False  # kept as selected

    @property
    def prose(self) -> bool:
        """True if all no-break spaces of its arguments are typography."""
        return not (self.hidden or self.long)

    @cached_property
    def groups(self) -> bool:
        """True if it may be decided together with similar requests."""
        plain = self.fits and not (self.hidden or self.blanks or self.long or self.suspicious)
        at_request, step_up = Severity(self.gate.reversibility, self.gate.risk), self.gate.step_up
        return (
            plain
            and self.gate.status == "pending"
            and all(is_batchable(about, step_up) for about in (at_request, self.now))
        )

    @property
    def now(self) -> Severity:
        """Reversibility and risk of a request made now, by the tool's declaration."""
        gate, declared = self.gate, self.declared
        risk = compute_declared_risk(declared, gate.effect_environment, gate.effect_ref_class)
        return Severity(declared.reversibility, risk)

    @property
    def suspicious(self) -> bool:
        """True if destructive, resubmitted, with a reused key or a warning."""
        return bool(self.takes or self.before or self.reused or self.is_warned)

    @property
    def is_warned(self) -> bool:
        """True if a check warns, so that the row stands out."""
        return any(result.is_warning for result in self.checks)

    @property
    def stands_out(self) -> bool:
        """True if it differs from requests that are otherwise alike."""
        return any(result.check == STANDS_OUT for result in self.checks)

    @property
    def has_ticked_like(self) -> bool:
        """True if a request folded under this row is selected."""
        return any(row.ticked for row in self.like)

    @property
    def set_ids(self) -> str:
        """The ids of this row and of those folded under it or apart, for the batch page."""
        return ",".join(str(row.gate.id) for row in (self, *self.like, *self.apart))

    @property
    def set_size(self) -> int:
        """How many requests `set_ids` names."""
        return 1 + len(self.like) + len(self.apart)

    @property
    def is_flagged(self) -> bool:
        """True if there is a warning, or more than one approval is needed."""
        grave = self.hidden or self.blanks or self.long or self.suspicious
        mild = self.first or self.outside or self.votes or self.checks or self.gate.assignee
        return bool(grave or mild or self.gate.minimum > 1)

    @property
    def has_end(self) -> bool:
        """True if the row shows who decided or what happened."""
        return bool(self.deciders or self.became or self.afterwards)


def is_batchable(about: Severity, step_up: str) -> bool:
    """Return True if reversible, of at most medium risk, and without step-up."""
    return (
        about.reversibility in ("read", "reversible")
        and about.risk in ("low", "medium")
        and step_up == "none"
    )


def load_inbox_rows(listed: Sequence[UUID]) -> list[InboxRow]:
    """Load the rows of gates, in their order; the number of queries is constant."""
    if not listed:
        return []
    by_id: dict[UUID, Any] = {gate.id: gate for gate in map(_GateRow, _ROWS.rows(gates=listed))}
    gates, now = [by_id[gate_id] for gate_id in listed], now_us()
    voted = [gate.id for gate in gates if gate.has_votes]
    approvals = load_approvals(voted) if voted else {}
    waiting = [_gate_request(gate) for gate in gates if gate.status == "pending"]
    earlier = (
        changed_requests.find_earlier_requests(gates[0].project_id, waiting) if waiting else {}
    )
    tried = {gate.id: [gate.effect_id] for gate in gates if gate.status == "pending"}
    for gate_id, version in earlier.items():
        tried[gate_id].append(version.effect)
    reused = (
        changed_requests.find_reused_keys(gates[0].project_id, chain.from_iterable(tried.values()))
        if tried
        else set()
    )
    ended = [gate.id for gate in gates if gate.decided_at_us is not None]
    deciders = _load_deciders(ended) if ended else {}
    late = find_outside_hours(
        {gate.id: (gate.policy_set_id, gate.requested_at_us) for gate in gates}
    )
    plans = {
        gate.id: summaries.parse_body(gate.plan_head or "")
        if (gate.plan_length or 0) <= _PLAN_CHARACTERS
        else {}
        for gate in gates
    }
    requests = {
        gate.id: build_checked_request(gate, _EffectColumns(gate), plans[gate.id])
        for gate in gates
        if gate.status == "pending" and plans[gate.id]
    }
    checks = run_checks.check_requests(gates[0].project_id, list(requests.values()))
    rows = []
    for gate in gates:
        gate.status = current_gate_status(gate, now)
        head, length = gate.plan_head or "", gate.plan_length or 0  # empty if erased
        plan = plans[gate.id]
        value = plan.get("arguments")
        texts = list(hidden_characters.iterate_strings(value))
        hidden, blanks = hidden_characters.count_hidden_content(value)
        declared = cache.load_tool(gate.project_id, gate.tool)
        takes = destructive_pushes.describe_destructive_push(
            gate.tool, value, plan.get("preconditions"), gate.effect_ref
        )
        title = build_call_title(
            gate.tool,
            value if length <= _PLAN_CHARACTERS else summaries.extract_arguments(head),
            ref=gate.effect_ref,
            repository=gate.repository_name,
            resource=gate.effect_resource,
            forced="forced push" in takes,
        )
        telling = list_telling_values(declared.telling, value, title.object)
        rows.append(
            InboxRow(
                gate,
                title=title,
                gist="" if telling else _summarize_plan(value, head, length),
                telling=telling,
                declared=declared.raise_by_arguments(get_plan_arguments(plan)),
                hidden=hidden,
                blanks=blanks,
                long=length > _PLAN_CHARACTERS,
                fits=sum(map(len, texts)) <= MAX_GLANCE_CHARACTERS
                and sum(text.count("\n") for text in texts) < MAX_GLANCE_LINES,
                takes=takes,
                before=earlier.get(gate.id),
                reused=not reused.isdisjoint(tried.get(gate.id, ())),
                first=_first_use(gate),
                outside=late.get(gate.id),
                checks=checks.get(gate.id, ()),
                production_value=find_production_value(value),
                request=requests.get(gate.id),
                deciders=", ".join(
                    deciders.get((gate.id, _DECIDING_ANSWERS.get(gate.status, "approve")), ())
                ),
                became=_effect_state(gate, now) if gate.status == "used" else "",
                afterwards=describe_aftermath(
                    gate.status, gate.effect_state, gate.effect_permission
                )
                if gate.status not in (*OPEN_STATUSES, "used")
                else "",
                votes=sum(
                    not approval.fault or gate.status not in OPEN_STATUSES
                    for approval in approvals.get(gate.id, ())
                ),
            )
        )
    return rows


def _summarize_plan(arguments: Any, head: str, length: int) -> str:
    if length <= _PLAN_CHARACTERS:
        return summaries.summarize_arguments(arguments)
    return summaries.summarize_plan(head)


# Only columns: fifty rows of five joined models would cost more than the rest of the page.
_GATE_COLUMNS: Final = (
    "id",
    "project_id",
    "policy_set_id",
    "status",
    "reversibility",
    "risk",
    "tool",
    "rule",
    "repository_name",
    "minimum",
    "step_up",
    "opened_position",
    "plan_position",
    "requested_at_us",
    "decide_by_us",
    "decided_at_us",
    "permission_until_us",
    "session_id",
    "agent_id",
    "effect_id",
    "ended_at_us",
    "reason",
)
_PLAN_BODY: Final = Body.objects.filter(entry=OuterRef("plan_position"))
_JOINED_COLUMNS: Final[dict[str, Any]] = {
    "agent_name": F("agent__name"),
    "whom": Coalesce("requester__username", "session_owner__username"),
    "first_of_agent": FIRST_OF_AGENT,
    "first_in_project": FIRST_IN_PROJECT,
    "plan_head": Subquery(
        _PLAN_BODY.annotate(head=Substr("text", 1, _PLAN_CHARACTERS)).values("head")
    ),
    "plan_length": Subquery(_PLAN_BODY.annotate(length=Length("text")).values("length")),
    "has_votes": Exists(Vote.objects.filter(gate=OuterRef("pk"))),
    "assignee": Subquery(
        Addressee.objects.filter(gate=OuterRef("pk"), relation="assigned").values("user__username")
    ),
    **{
        f"effect_{name}": F(f"effect__{name}")
        for name in (*REQUEST_IDENTITY, *_OUTCOME_FIELDS, "ref", "ref_class")
    },
}
_COLUMNS: Final = (*_GATE_COLUMNS, *_JOINED_COLUMNS)


class _GateRow(SimpleNamespace):
    """A gate in a list, with the columns of _GATE_COLUMNS and _JOINED_COLUMNS only."""

    def __init__(self, row: Sequence[Any]) -> None:
        self.__dict__.update(zip(_COLUMNS, row, strict=True))

    def __str__(self) -> str:
        return f"g_{self.opened_position}"


class _EffectColumns:
    """The columns of the effect of a _GateRow."""

    def __init__(self, gate: _GateRow) -> None:
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gate, f"effect_{name}")


def _select_rows(gates: Sequence[UUID]) -> Any:
    return Gate.objects.filter(id__in=gates).annotate(**_JOINED_COLUMNS).values_list(*_COLUMNS)


_ROWS: Final = CompiledQuerySet(_select_rows, gates=[UUID])


def _load_deciders(gates: Sequence[UUID]) -> dict[tuple[UUID, str], list[str]]:
    """Load who gave which answer to each gate, in the order of the votes. One query."""
    names: dict[tuple[UUID, str], list[str]] = {}
    votes = Vote.objects.filter(gate__in=gates).order_by("position")
    for gate, answer, name in votes.values_list("gate", "answer", "user__username"):
        names.setdefault((gate, answer), []).append(name)
    return names


def _first_use(gate: Any) -> str:
    """Return where the gate is the first use of its tool: project, agent, or empty."""
    if gate.first_in_project:
        return "project"
    return "agent" if gate.first_of_agent else ""


def _effect_state(gate: Any, now: int) -> str:
    return derive_shown_state(
        SimpleNamespace(**{name: getattr(gate, f"effect_{name}") for name in _OUTCOME_FIELDS}), now
    )


def _request_identity(gate: Any) -> RequestIdentity:
    return RequestIdentity(
        gate.id,
        gate.opened_position,
        tuple(getattr(gate, f"effect_{name}") for name in REQUEST_IDENTITY),
    )


def _gate_request(gate: Any) -> GateRequest:
    ask = _request_identity(gate)
    return GateRequest(
        gate.id,
        gate.opened_position,
        gate.session_id,
        gate.agent_id,
        gate.requested_at_us,
        ask.same,
        gate.plan_position,
    )
