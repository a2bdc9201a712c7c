"""What surrounds a card: what was asked before in other words, the chain in the session (fact 7), and the votes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Substr

from approvals import anew
from approvals.anew import Before, Conflict, Difference
from approvals.models import Gate, Vote
from approvals.quorum import faults
from approvals.reading import plan_body
from approvals.words import UNCOUNTED
from journal import gists
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from sessions.people import giver_before

BEFORE: Final = 4
_ANSWER: Final = 2048  # characters of an answer that a line is made of
AFTER: Final = 3


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
    """An effect of the chain, what it ran in a line and what came of it; both are agents' text.

    `rel` is "prev" or "next" for those just before and after the gate's own. `gist` is None without a plan to read.
    """

    effect: Effect
    rel: str
    gist: str | None
    result: str


def chain(gate: Gate) -> list[Step]:
    """The effects just before and after in the session, in order, with the gate's own among them. Two queries."""
    own = gate.effect.opened_position
    answers = Attempt.objects.filter(effect=OuterRef("pk"), answer_position__isnull=False).order_by("-number")
    answer = Body.objects.filter(entry=OuterRef("answer")).annotate(head=Substr("text", 1, _ANSWER)).values("head")
    beside = Effect.objects.filter(session=gate.session_id).annotate(
        plan_head=gists.plan_heads(), answer=Subquery(answers.values("answer_position")[:1])
    )
    beside = beside.annotate(answer_head=Subquery(answer))
    before = beside.filter(opened_position__lte=own).order_by("-opened_position")[: BEFORE + 1]
    after = beside.filter(opened_position__gt=own).order_by("opened_position")[:AFTER]
    behind = [_step(one, "prev" if index == 1 else "") for index, one in enumerate(before)]
    return [*reversed(behind), *(_step(one, "" if index else "next") for index, one in enumerate(after))]


def _step(effect: Any, rel: str) -> Step:
    return Step(effect, rel, gists.gist_of(effect.plan_head), gists.said(effect.answer_head or ""))


@dataclass(slots=True)
class Cast:
    """A vote and the words given with it; `same` says that its card's hash is that of the card shown now.

    `uncounted` says why a yes does not count; empty where it does.
    """

    vote: Vote
    reason: str
    same: bool
    uncounted: str
    giver: str = ""  # who set the voter's password in the days before, and so may have been the one who voted

    @property
    def ruled_in_us(self) -> int:
        """How long after its page was shown it was given."""
        return self.vote.voted_at_us - self.vote.shown_at_us


def votes(gate: Gate, card_sha256: str) -> list[Cast]:
    """The votes of a gate, in order."""
    found = list(Vote.objects.filter(gate=gate).select_related("user__person").order_by("position"))
    texts = dict(Body.objects.filter(entry__in=[one.position for one in found]).values_list("entry_id", "text"))
    said = {position: orjson.loads(text).get("reason", "") for position, text in texts.items()}
    faulty = {identity: UNCOUNTED[fault] for identity, fault in faults(gate).items()} if found else {}
    return [
        Cast(
            one,
            said.get(one.position, ""),
            one.card_sha256 == card_sha256,
            faulty.get(one.id, ""),
            giver_before(one.user, one.voted_at_us),
        )
        for one in found
    ]


def words_of(gate: Gate, kind: str) -> tuple[str, str]:
    """Who made the last entry of `kind` about the gate (a pseudonym), and the reason in it."""
    entry = Entry.objects.filter(project=gate.project_id, effect=gate.effect_id, subject=gate.id, kind=kind)
    last = entry.order_by("-position").values_list("actor", "position").first()
    return ("", "") if last is None else (last[0], reason_at(last[1]))
