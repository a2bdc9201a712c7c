"""The entries of the desk's lists: gates with what is said of each in a few lines, and what stands out about it."""

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
from approvals.flags import ASK, FIRST_IN_PROJECT, FIRST_OF_AGENT, Again, Ask, Outside, again, outside
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

# The answer that ended a gate of this status; all others were approved.
_ANSWER_OF: Final = {"denied": "deny", "denied_final": "deny_final", "returned": "return"}
_OUTCOME: Final = ("state", "leave", "outcome", "deadline_us")
_CHARACTERS: Final = 16_384  # of a plan that an entry looks at


@dataclass
class Row:
    """A gate in a list: `gist` is agent text, `hidden` how many hidden characters the beginning of its plan holds."""

    gate: Any  # a _Gate
    gist: str = ""
    hidden: int = 0
    blanks: int = 0  # length of the longest run of blanks that could push something out of sight
    long: bool = False
    fits: bool = True  # all that its arguments say can be taken in at a glance
    takes: tuple[str, ...] = ()  # what a push takes away by its own arguments, in words
    again: Again | None = None  # what people said no to before, if this asks for the same once more
    before: Before | None = None  # what ended without a yes before, if this asks for it with something changed
    reused: bool = False  # under its key, or that of `before`, something else was tried
    first: str = ""  # "project" for the first effect there with this tool, "agent" for its agent's first request for it
    outside: Outside | None = None  # when it was asked, if that was outside the working hours
    votes: int = 0
    deciders: str = ""  # who gave the answers that ended it: rita, sam
    became: str = ""  # the state of its effect, once it was used
    afterwards: str = ""  # … and in words, when it was not
    like: list["Row"] = field(default_factory=list)  # further ones of the same shape, folded under this

    @cached_property
    def groups(self) -> bool:
        """True when it may be decided together with its likes: a trap among them would be the one nobody opens."""
        plain = self.fits and not (self.hidden or self.blanks or self.long or self.suspicious)
        asked, step_up = About(self.gate.reversibility, self.gate.risk), self.gate.step_up
        return plain and self.gate.status == "pending" and all(batchable(one, step_up) for one in (asked, self.now))

    @property
    def now(self) -> About:
        """How bad it would be if it were asked now, by what its tool is declared."""
        gate, undo = self.gate, self.gate.declared_now or UNDECLARED.reversibility
        declared = gate.declared_now is not None
        return About(undo, risk_of(undo, gate.effect_environment, gate.effect_ref_class, declared))

    @property
    def suspicious(self) -> bool:
        """True for what takes something away, was refused before, or comes after something like it without a yes."""
        return bool(self.takes or self.again or self.before or self.reused)

    @property
    def is_flagged(self) -> bool:
        """True when there is anything to flag, or more than one person to hear."""
        grave = self.hidden or self.blanks or self.long or self.suspicious
        return bool(grave or self.first or self.outside or self.votes or self.gate.minimum > 1)

    @property
    def has_end(self) -> bool:
        """True when there is anything to say of who decided and what came of it."""
        return bool(self.deciders or self.became or self.afterwards)


def batchable(known: About, step_up: str) -> bool:
    """True for what may be decided with others: reversible, of at most medium risk, and without a password."""
    return known.reversibility in ("read", "reversible") and known.risk in ("low", "medium") and step_up == "none"


def entries_of(listed: Sequence[UUID]) -> list[Row]:
    """The entries of gates, in their order, in as many queries for one as for all."""
    if not listed:
        return []
    by_id: dict[UUID, Any] = {one.id: one for one in map(_Gate, _READ.rows(gates=listed))}
    gates, now = [by_id[one] for one in listed], now_us()
    yes = yeses([gate.id for gate in gates if gate.has_votes])
    refused = again(gates[0].project_id, map(_ask, gates))
    waiting = [_asked(gate) for gate in gates if gate.status == "pending"]
    earlier = anew.before(gates[0].project_id, waiting) if waiting else {}
    tried = {gate.id: [gate.effect_id] for gate in gates if gate.status == "pending"}
    for identity, one in earlier.items():
        tried[identity].append(one.effect)
    reused = anew.reused(gates[0].project_id, chain.from_iterable(tried.values())) if tried else set()
    ended = [gate.id for gate in gates if gate.decided_at_us is not None]
    deciders = _deciders(ended) if ended else {}
    late = outside({gate.id: (gate.policy_set_id, gate.requested_at_us) for gate in gates})
    rows = []
    for gate in gates:
        gate.status = current_status(gate, now)
        head, length = gate.plan_head or "", gate.plan_length or 0  # nothing where it was erased
        plan = gists.parsed(head) if length <= _CHARACTERS else {}
        value = plan.get("arguments")
        texts = list(lurking.texts(value))
        hidden, blanks = lurking.found(texts)
        rows.append(
            Row(
                gate,
                gist=gists.gist(value) if length <= _CHARACTERS else gists.beginning(head),
                hidden=hidden,
                blanks=blanks,
                long=length > _CHARACTERS,
                fits=sum(map(len, texts)) <= FITS_CHARACTERS and sum(one.count("\n") for one in texts) < FITS_LINES,
                takes=pushes.takes(gate.tool, value, plan.get("preconditions")),
                again=refused.get(gate.id),
                before=earlier.get(gate.id),
                reused=not reused.isdisjoint(tried.get(gate.id, ())),
                first="project" if gate.first_in_project else "agent" if gate.first_of_agent else "",
                outside=late.get(gate.id),
                deciders=", ".join(deciders.get((gate.id, _ANSWER_OF.get(gate.status, "approve")), ())),
                became=_became(gate, now) if gate.status == "used" else "",
                afterwards=afterwards(gate.status, gate.effect_state, gate.effect_leave)
                if gate.status not in (*OPEN, "used")
                else "",
                votes=sum(not one.fault or gate.status not in OPEN for one in yes.get(gate.id, ())),
            )
        )
    return rows


# Columns alone: fifty rows of five joined models would cost more than the whole rest of the page.
_NAMED: Final = (
    *(
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
    ),
    *("opened_position", "plan_position", "requested_at_us", "decide_by_us", "decided_at_us", "leave_until_us"),
    *("session_id", "agent_id", "effect_id", "ended_at_us", "reason"),
)
_PLAN: Final = Body.objects.filter(entry=OuterRef("plan_position"))
_JOINED: Final[dict[str, Any]] = {
    "agent_name": F("agent__name"),
    "declared_now": Subquery(
        Tool.objects.filter(project=OuterRef("project"), name=OuterRef("tool")).values("reversibility")[:1]
    ),
    "whom": Coalesce("requester__username", "session_owner__username"),
    "first_of_agent": FIRST_OF_AGENT,
    "first_in_project": FIRST_IN_PROJECT,
    "plan_head": Subquery(_PLAN.annotate(head=Substr("text", 1, _CHARACTERS)).values("head")),
    "plan_length": Subquery(_PLAN.annotate(length=Length("text")).values("length")),
    "has_votes": Exists(Vote.objects.filter(gate=OuterRef("pk"))),
    **{f"effect_{name}": F(f"effect__{name}") for name in (*ASK, *_OUTCOME, "ref", "ref_class")},
}
_COLUMNS: Final = (*_NAMED, *_JOINED)


class _Gate(SimpleNamespace):
    """A gate in a list: what _NAMED and _JOINED say, and nothing else."""

    def __init__(self, row: Sequence[Any]) -> None:
        self.__dict__.update(zip(_COLUMNS, row, strict=True))

    def __str__(self) -> str:
        return f"g_{self.opened_position}"


def _read(gates: Sequence[UUID]) -> Any:
    return Gate.objects.filter(id__in=gates).annotate(**_JOINED).values_list(*_COLUMNS)


_READ: Final = Compiled(_read, gates=[UUID])


def _deciders(gates: Sequence[UUID]) -> dict[tuple[UUID, str], list[str]]:
    """Who gave which answer to each of `gates`, in the order they gave it. One query."""
    found: dict[tuple[UUID, str], list[str]] = {}
    votes = Vote.objects.filter(gate__in=gates).order_by("position")
    for gate, answer, name in votes.values_list("gate", "answer", "user__username"):
        found.setdefault((gate, answer), []).append(name)
    return found


def _became(gate: Any, now: int) -> str:
    return shown_state(SimpleNamespace(**{name: getattr(gate, f"effect_{name}") for name in _OUTCOME}), now)


def _ask(gate: Any) -> Ask:
    return Ask(gate.id, gate.opened_position, tuple(getattr(gate, f"effect_{name}") for name in ASK))


def _asked(gate: Any) -> Asked:
    ask = _ask(gate)
    return Asked(gate.id, gate.opened_position, gate.session_id, gate.agent_id, gate.requested_at_us, ask.same)
