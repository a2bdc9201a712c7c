"""Context of a gate page: earlier request, neighbouring effects (fact 7), votes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Substr

from accounts.people import find_recent_password_giver
from approvals.labels import UNCOUNTED_LABELS
from approvals.models import Gate, Vote
from approvals.policies.policy_inputs import load_plan_body
from approvals.review import changed_requests
from approvals.review.changed_requests import Conflict, Difference, EarlierRequest
from approvals.voting.quorum import load_uncounted_approvals
from journal import summaries
from journal.models import Body, Entry
from ledger.models import Attempt, Effect

STEPS_BEFORE: Final = 4
_ANSWER_CHARACTERS: Final = 2048  # characters of an answer, to summarise it in a line
STEPS_AFTER: Final = 3


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """The earlier version of a request, the differences by name, and conflicts.

    `erased`: the earlier plan is erased. `more` counts the differences that are not listed.
    """

    before: EarlierRequest | None
    differences: list[Difference]
    more: int
    erased: bool
    conflicts: list[Conflict]


def load_earlier_version(gate: Gate, plan: Mapping[str, Any]) -> EarlierVersion:
    """Load the version before `gate`, whose plan is `plan`. At most three queries."""
    before = changed_requests.find_earlier_versions([gate]).get(gate.id)
    old = load_plan_body(before.plan_position) if before is not None else {}
    changed = changed_requests.diff_plans(old, plan) if old else []
    most = changed_requests.MOST_DIFFERENCES
    conflicts = changed_requests.load_conflicts(gate, plan, before)
    return EarlierVersion(
        before,
        changed[:most],
        max(0, len(changed) - most),
        before is not None and not old,
        conflicts,
    )


def load_reason(position: int) -> str:
    """Return the reason in an entry; empty if there is none or the entry was erased."""
    reason = load_plan_body(position).get("reason")
    return reason if isinstance(reason, str) else ""


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A neighbouring effect with one-line summaries of its call and its answer.

    Both summaries are agent text. `rel` is "prev" or "next" for the direct neighbours of the gate's
    effect. `gist` is None without a readable plan.
    """

    effect: Effect
    rel: str
    gist: str | None
    result: str


def load_neighbouring_steps(gate: Gate) -> list[ChainStep]:
    """Load the gate's effect with those before and after it. Two queries."""
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
        plan_head=summaries.select_plan_heads(),
        answer=Subquery(answers.values("answer_position")[:1]),
    )
    siblings = siblings.annotate(answer_head=Subquery(answer))
    before = siblings.filter(opened_position__lte=own).order_by("-opened_position")[
        : STEPS_BEFORE + 1
    ]
    after = siblings.filter(opened_position__gt=own).order_by("opened_position")[:STEPS_AFTER]
    behind = [
        _build_step(effect, "prev" if index == 1 else "") for index, effect in enumerate(before)
    ]
    return [
        *reversed(behind),
        *(_build_step(effect, "" if index else "next") for index, effect in enumerate(after)),
    ]


def _build_step(effect: Any, rel: str) -> ChainStep:
    return ChainStep(
        effect,
        rel,
        summaries.summarize_plan_head(effect.plan_head),
        summaries.summarize_answer(effect.answer_head or ""),
    )


@dataclass(slots=True)
class VoteView:
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


def load_votes(gate: Gate, card_sha256: str) -> list[VoteView]:
    """Load the votes of a gate, in order."""
    rows = list(Vote.objects.filter(gate=gate).select_related("user__person").order_by("position"))
    texts = dict(
        Body.objects.filter(entry__in=[vote.position for vote in rows]).values_list(
            "entry_id", "text"
        )
    )
    reasons = {position: orjson.loads(text).get("reason", "") for position, text in texts.items()}
    faulty = (
        {
            identity: UNCOUNTED_LABELS[fault]
            for identity, fault in load_uncounted_approvals(gate).items()
        }
        if rows
        else {}
    )
    return [
        VoteView(
            vote,
            reasons.get(vote.position, ""),
            vote.card_sha256 == card_sha256,
            faulty.get(vote.id, ""),
            find_recent_password_giver(vote.user, vote.voted_at_us),
        )
        for vote in rows
    ]


def load_actor_and_reason(gate: Gate, kind: str) -> tuple[str, str]:
    """Return actor (a pseudonym) and reason of a gate's last entry of `kind`."""
    entry = Entry.objects.filter(
        project=gate.project_id, effect=gate.effect_id, subject=gate.id, kind=kind
    )
    last = entry.order_by("-position").values_list("actor", "position").first()
    return ("", "") if last is None else (last[0], load_reason(last[1]))
