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

from approvals import anew, lurking, pushes
from approvals.anew import Asked, Before
from approvals.card import FITS_CHARACTERS, FITS_LINES
from approvals.deadlines import current_status
from approvals.flags import (
    ASK,
    FIRST_IN_PROJECT,
    FIRST_OF_AGENT,
    Again,
    Ask,
    Outside,
    again,
    outside,
)
from approvals.matching import risk_of
from approvals.models import Gate, Vote
from approvals.quorum import yeses
from approvals.reading import About
from approvals.states import OPEN
from approvals.words import afterwards
from journal import gists
from journal.clock import now_us
from journal.compiled import Compiled
from journal.models import Body
from journal.templatetags.gatebook import shown_state
from ledger.declared import UNDECLARED
from ledger.models_tools import Tool

# The answer that ended a gate of this status; gates of other statuses were approved.
_DECIDING_ANSWERS: Final = {"denied": "deny", "denied_final": "deny_final", "returned": "return"}
_OUTCOME_FIELDS: Final = ("state", "leave", "outcome", "deadline_us")
_PLAN_CHARACTERS: Final = 16_384  # characters of a plan that a row reads


@dataclass
class Row:
    """A gate in a list. `gist` is agent text.

    `hidden` counts hidden characters of its plan.
    """

    gate: Any  # a _GateRow
    gist: str = ""
    hidden: int = 0
    blanks: int = 0  # length of the longest run of blanks shown as a count
    long: bool = False
    fits: bool = True  # the arguments fit the limits of a card
    takes: tuple[str, ...] = ()  # destructive effects of a push, by its arguments
    again: Again | None = None  # last refusal of the same request
    before: Before | None = None  # earlier version that was not approved
    reused: bool = False  # its key, or that of `before`, was sent with other content
    first: str = ""  # first use of the tool: in the "project", or by the "agent"
    outside: Outside | None = None  # set if requested outside working hours
    votes: int = 0
    deciders: str = ""  # names of those who decided it: rita, sam
    became: str = ""  # state of its effect, after its permission was used
    afterwards: str = ""  # what happened to its effect otherwise, as text
    like: list["Row"] = field(default_factory=list)  # similar requests, folded under this row

    @cached_property
    def groups(self) -> bool:
        """True if it may be decided together with similar requests."""
        plain = self.fits and not (self.hidden or self.blanks or self.long or self.suspicious)
        at_request, step_up = About(self.gate.reversibility, self.gate.risk), self.gate.step_up
        return (
            plain
            and self.gate.status == "pending"
            and all(batchable(about, step_up) for about in (at_request, self.now))
        )

    @property
    def now(self) -> About:
        """Reversibility and risk of a request made now, by the tool's declaration."""
        gate, undo = self.gate, self.gate.declared_now or UNDECLARED.reversibility
        declared = gate.declared_now is not None
        return About(undo, risk_of(undo, gate.effect_environment, gate.effect_ref_class, declared))

    @property
    def suspicious(self) -> bool:
        """True if destructive, refused before, resubmitted or with a reused key."""
        return bool(self.takes or self.again or self.before or self.reused)

    @property
    def is_flagged(self) -> bool:
        """True if there is a warning, or more than one approval is needed."""
        grave = self.hidden or self.blanks or self.long or self.suspicious
        return bool(grave or self.first or self.outside or self.votes or self.gate.minimum > 1)

    @property
    def has_end(self) -> bool:
        """True if the row shows who decided or what happened."""
        return bool(self.deciders or self.became or self.afterwards)


def batchable(about: About, step_up: str) -> bool:
    """Return True if reversible, of at most medium risk, and without step-up."""
    return (
        about.reversibility in ("read", "reversible")
        and about.risk in ("low", "medium")
        and step_up == "none"
    )


def entries_of(listed: Sequence[UUID]) -> list[Row]:
    """Load the rows of gates, in their order; the number of queries is constant."""
    if not listed:
        return []
    by_id: dict[UUID, Any] = {gate.id: gate for gate in map(_GateRow, _ROWS.rows(gates=listed))}
    gates, now = [by_id[gate_id] for gate_id in listed], now_us()
    approvals = yeses([gate.id for gate in gates if gate.has_votes])
    refused = again(gates[0].project_id, map(_request_identity, gates))
    waiting = [_gate_request(gate) for gate in gates if gate.status == "pending"]
    earlier = anew.before(gates[0].project_id, waiting) if waiting else {}
    tried = {gate.id: [gate.effect_id] for gate in gates if gate.status == "pending"}
    for gate_id, version in earlier.items():
        tried[gate_id].append(version.effect)
    reused = (
        anew.reused(gates[0].project_id, chain.from_iterable(tried.values())) if tried else set()
    )
    ended = [gate.id for gate in gates if gate.decided_at_us is not None]
    deciders = _load_deciders(ended) if ended else {}
    late = outside({gate.id: (gate.policy_set_id, gate.requested_at_us) for gate in gates})
    rows = []
    for gate in gates:
        gate.status = current_status(gate, now)
        head, length = gate.plan_head or "", gate.plan_length or 0  # empty if erased
        plan = gists.parsed(head) if length <= _PLAN_CHARACTERS else {}
        value = plan.get("arguments")
        texts = list(lurking.texts(value))
        hidden, blanks = lurking.found(texts)
        rows.append(
            Row(
                gate,
                gist=gists.gist(value) if length <= _PLAN_CHARACTERS else gists.beginning(head),
                hidden=hidden,
                blanks=blanks,
                long=length > _PLAN_CHARACTERS,
                fits=sum(map(len, texts)) <= FITS_CHARACTERS
                and sum(text.count("\n") for text in texts) < FITS_LINES,
                takes=pushes.takes(gate.tool, value, plan.get("preconditions")),
                again=refused.get(gate.id),
                before=earlier.get(gate.id),
                reused=not reused.isdisjoint(tried.get(gate.id, ())),
                first=_first_use(gate),
                outside=late.get(gate.id),
                deciders=", ".join(
                    deciders.get((gate.id, _DECIDING_ANSWERS.get(gate.status, "approve")), ())
                ),
                became=_effect_state(gate, now) if gate.status == "used" else "",
                afterwards=afterwards(gate.status, gate.effect_state, gate.effect_leave)
                if gate.status not in (*OPEN, "used")
                else "",
                votes=sum(
                    not approval.fault or gate.status not in OPEN
                    for approval in approvals.get(gate.id, ())
                ),
            )
        )
    return rows


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
    "leave_until_us",
    "session_id",
    "agent_id",
    "effect_id",
    "ended_at_us",
    "reason",
)
_PLAN_BODY: Final = Body.objects.filter(entry=OuterRef("plan_position"))
_JOINED_COLUMNS: Final[dict[str, Any]] = {
    "agent_name": F("agent__name"),
    "declared_now": Subquery(
        Tool.objects.filter(project=OuterRef("project"), name=OuterRef("tool")).values(
            "reversibility"
        )[:1]
    ),
    "whom": Coalesce("requester__username", "session_owner__username"),
    "first_of_agent": FIRST_OF_AGENT,
    "first_in_project": FIRST_IN_PROJECT,
    "plan_head": Subquery(
        _PLAN_BODY.annotate(head=Substr("text", 1, _PLAN_CHARACTERS)).values("head")
    ),
    "plan_length": Subquery(_PLAN_BODY.annotate(length=Length("text")).values("length")),
    "has_votes": Exists(Vote.objects.filter(gate=OuterRef("pk"))),
    **{
        f"effect_{name}": F(f"effect__{name}")
        for name in (*ASK, *_OUTCOME_FIELDS, "ref", "ref_class")
    },
}
_COLUMNS: Final = (*_GATE_COLUMNS, *_JOINED_COLUMNS)


class _GateRow(SimpleNamespace):
    """A gate in a list, with the columns of _GATE_COLUMNS and _JOINED_COLUMNS only."""

    def __init__(self, row: Sequence[Any]) -> None:
        self.__dict__.update(zip(_COLUMNS, row, strict=True))

    def __str__(self) -> str:
        return f"g_{self.opened_position}"


def _select_rows(gates: Sequence[UUID]) -> Any:
    return Gate.objects.filter(id__in=gates).annotate(**_JOINED_COLUMNS).values_list(*_COLUMNS)


_ROWS: Final = Compiled(_select_rows, gates=[UUID])


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
    return shown_state(
        SimpleNamespace(**{name: getattr(gate, f"effect_{name}") for name in _OUTCOME_FIELDS}), now
    )


def _request_identity(gate: Any) -> Ask:
    return Ask(
        gate.id, gate.opened_position, tuple(getattr(gate, f"effect_{name}") for name in ASK)
    )


def _gate_request(gate: Any) -> Asked:
    ask = _request_identity(gate)
    return Asked(
        gate.id,
        gate.opened_position,
        gate.session_id,
        gate.agent_id,
        gate.requested_at_us,
        ask.same,
    )
