"""Facts 6 and 7 of a card: how similar requests were decided, and what stands before and after in the session."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from approvals import anew
from approvals.anew import Before, Conflict, Difference
from approvals.flags import NOES, REFUSED, Again, asked_again
from approvals.gates import current_status
from approvals.models import Gate, Vote
from approvals.quorum import faults
from approvals.reading import plan_body
from approvals.words import UNCOUNTED
from journal.clock import now_us
from journal.models import Body, Entry
from ledger.models import Effect

SIMILAR: Final = 5
BEFORE: Final = 4
AFTER: Final = 3


@dataclass(slots=True)
class Similar:
    """The last gates of the same tool and repository, newest first; the last no with its words.

    `again` is the last no to exactly this, in any session; it then stands in `last_no` too.
    """

    gates: list[Gate] = field(default_factory=list)
    last_no: Vote | None = None
    said: str = ""
    again: Again | None = None

    @property
    def counted(self) -> str:
        """How they were decided, in words: 3 approved, 1 denied, 1 waiting."""
        kinds = Counter(_KIND[gate.status] for gate in self.gates)
        return ", ".join(f"{number} {kind}" for kind, number in kinds.items())


_KIND: Final = {
    **dict.fromkeys(("approved", "used", "lapsed"), "approved"),
    **dict.fromkeys(("denied", "denied_final"), "denied"),
    **{name: name for name in ("returned", "expired", "revoked", "cancelled")},
    "pending": "waiting",
}


def similar(gate: Gate) -> Similar:
    """How other requests for the same tool and target were decided, in at most five queries."""
    same = Gate.objects.filter(project=gate.project_id, tool=gate.tool, repository_name=gate.repository_name)
    found = Similar(list(same.exclude(id=gate.id).order_by("-opened_position")[:SIMILAR]))
    now = now_us()
    for one in found.gates:
        one.status = current_status(one, now)
    found.again = asked_again([gate]).get(gate.id)
    refused = [one.id for one in found.gates if one.status in REFUSED]
    if found.again is not None:
        found.last_no = found.again.vote
    elif refused:
        noes = Vote.objects.filter(gate__in=refused, answer__in=NOES).select_related("user")
        found.last_no = noes.order_by("-voted_at_us").first()
    if found.last_no is not None:
        found.said = reason_at(found.last_no.position)
    return found


@dataclass(frozen=True, slots=True)
class Earlier:
    """What was asked before with something changed, the changes name by name, and what went against the rules.

    `erased` says that the words of the one before are gone; `more` counts the changes beyond those listed.
    """

    before: Before | None
    differences: list[Difference]
    more: int
    erased: bool
    conflicts: list[Conflict]


def earlier(gate: Gate, plan: Mapping[str, Any]) -> Earlier:
    """What came before `gate`, whose plan's body is `plan`. At most three queries."""
    before = anew.of([gate]).get(gate.id)
    old = plan_body(before.plan_position) if before is not None else {}
    found = anew.differences(old, plan) if old else []
    most = anew.MOST_DIFFERENCES
    conflicts = anew.conflicts(gate, plan, before)
    return Earlier(before, found[:most], max(0, len(found) - most), before is not None and not old, conflicts)


def reason_at(position: int) -> str:
    """The words a person gave with an entry; empty when there were none or they were erased."""
    reason = plan_body(position).get("reason")
    return reason if isinstance(reason, str) else ""


@dataclass(frozen=True, slots=True)
class Step:
    """An effect of the chain; `rel` is "prev" or "next" for those just before and after the gate's own."""

    effect: Effect
    rel: str


def chain(gate: Gate) -> list[Step]:
    """The effects just before and after in the session, in order, with the gate's own among them."""
    own = gate.effect
    beside = Effect.objects.filter(session=gate.session_id)
    before = beside.filter(opened_position__lt=own.opened_position).order_by("-opened_position")[:BEFORE]
    after = beside.filter(opened_position__gt=own.opened_position).order_by("opened_position")[:AFTER]
    behind = [Step(one, "" if index else "prev") for index, one in enumerate(before)]
    ahead = [Step(one, "" if index else "next") for index, one in enumerate(after)]
    return [*reversed(behind), Step(own, ""), *ahead]


@dataclass(slots=True)
class Cast:
    """A vote and the words given with it; `same` says that its card's hash is that of the card shown now.

    `uncounted` says why a yes does not count; empty where it does.
    """

    vote: Vote
    reason: str
    same: bool
    uncounted: str


def votes(gate: Gate, card_sha256: str) -> list[Cast]:
    """The votes of a gate, in order."""
    found = list(Vote.objects.filter(gate=gate).select_related("user").order_by("position"))
    texts = dict(Body.objects.filter(entry__in=[one.position for one in found]).values_list("entry_id", "text"))
    said = {position: orjson.loads(text).get("reason", "") for position, text in texts.items()}
    faulty = {identity: UNCOUNTED[fault] for identity, fault in faults(gate).items()} if found else {}
    return [
        Cast(one, said.get(one.position, ""), one.card_sha256 == card_sha256, faulty.get(one.id, "")) for one in found
    ]


def words_of(gate: Gate, kind: str) -> tuple[str, str]:
    """Who made the last entry of `kind` about the gate (a pseudonym), and the reason in it."""
    entry = Entry.objects.filter(project=gate.project_id, effect=gate.effect_id, subject=gate.id, kind=kind)
    last = entry.order_by("-position").values_list("actor", "position").first()
    return ("", "") if last is None else (last[0], reason_at(last[1]))
