"""Context of a gate page: earlier request, neighbouring effects (fact 7), votes."""

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
_ANSWER_CHARACTERS: Final = 2048  # characters of an answer, to summarise it in a line
AFTER: Final = 3


@dataclass(frozen=True, slots=True)
class Earlier:
    """The earlier version of a request, the differences by name, and conflicts.

    `erased`: the earlier plan is erased. `more` counts the differences that are not listed.
    """

    before: Before | None
    differences: list[Difference]
    more: int
    erased: bool
    conflicts: list[Conflict]


def earlier(gate: Gate, plan: Mapping[str, Any]) -> Earlier:
    """Load the earlier version of `gate`, whose plan's body is `plan`.

    At most three queries.
    """
    before = anew.of([gate]).get(gate.id)
    old = plan_body(before.plan_position) if before is not None else {}
    changed = anew.differences(old, plan) if old else []
    most = anew.MOST_DIFFERENCES
    conflicts = anew.conflicts(gate, plan, before)
    return Earlier(
        before,
        changed[:most],
        max(0, len(changed) - most),
        before is not None and not old,
        conflicts,
    )


def reason_at(position: int) -> str:
    """Return the reason in an entry; empty if there is none or the entry was erased."""
    reason = plan_body(position).get("reason")
    return reason if isinstance(reason, str) else ""


@dataclass(frozen=True, slots=True)
class Step:
    """A neighbouring effect with one-line summaries of its call and its answer.

    Both summaries are agent text. `rel` is "prev" or "next" for the direct neighbours of the gate's
    effect. `gist` is None without a readable plan.
    """

    effect: Effect
    rel: str
    gist: str | None
    result: str


def chain(gate: Gate) -> list[Step]:
    """Load the effects before and after the gate's own, which is included.

    Two queries.
    """
    own = gate.effect.opened_position
    answers = Attempt.objects.filter(effect=OuterRef("pk"), answer_position__isnull=False).order_by(
        "-number"
    )
    answer = (
        Body.objects.filter(entry=OuterRef("answer"))
        .annotate(head=Substr("text", 1, _ANSWER_CHARACTERS))
        .values("head")
    )
    siblings = Effect.objects.filter(session=gate.session_id).annotate(
        plan_head=gists.plan_heads(), answer=Subquery(answers.values("answer_position")[:1])
    )
    siblings = siblings.annotate(answer_head=Subquery(answer))
    before = siblings.filter(opened_position__lte=own).order_by("-opened_position")[: BEFORE + 1]
    after = siblings.filter(opened_position__gt=own).order_by("opened_position")[:AFTER]
    behind = [
        _build_step(effect, "prev" if index == 1 else "") for index, effect in enumerate(before)
    ]
    return [
        *reversed(behind),
        *(_build_step(effect, "" if index else "next") for index, effect in enumerate(after)),
    ]


def _build_step(effect: Any, rel: str) -> Step:
    return Step(effect, rel, gists.gist_of(effect.plan_head), gists.said(effect.answer_head or ""))


@dataclass(slots=True)
class Cast:
    """A vote with its reason. `same`: its card has the hash of the current card.

    `uncounted` is the reason why an approval does not count; empty if it counts.
    """

    vote: Vote
    reason: str
    same: bool
    uncounted: str
    giver: str = ""  # who set the voter's password shortly before

    @property
    def ruled_in_us(self) -> int:
        """Time from showing the page to the vote, in microseconds."""
        return self.vote.voted_at_us - self.vote.shown_at_us


def votes(gate: Gate, card_sha256: str) -> list[Cast]:
    """Load the votes of a gate, in order."""
    rows = list(Vote.objects.filter(gate=gate).select_related("user__person").order_by("position"))
    texts = dict(
        Body.objects.filter(entry__in=[vote.position for vote in rows]).values_list(
            "entry_id", "text"
        )
    )
    reasons = {position: orjson.loads(text).get("reason", "") for position, text in texts.items()}
    faulty = (
        {identity: UNCOUNTED[fault] for identity, fault in faults(gate).items()} if rows else {}
    )
    return [
        Cast(
            vote,
            reasons.get(vote.position, ""),
            vote.card_sha256 == card_sha256,
            faulty.get(vote.id, ""),
            giver_before(vote.user, vote.voted_at_us),
        )
        for vote in rows
    ]


def words_of(gate: Gate, kind: str) -> tuple[str, str]:
    """Return actor (a pseudonym) and reason of a gate's last entry of `kind`."""
    entry = Entry.objects.filter(
        project=gate.project_id, effect=gate.effect_id, subject=gate.id, kind=kind
    )
    last = entry.order_by("-position").values_list("actor", "position").first()
    return ("", "") if last is None else (last[0], reason_at(last[1]))
