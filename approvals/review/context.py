"""Context of a gate page: earlier request, neighbouring effects (fact 7), votes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Min, OuterRef, Subquery
from django.db.models.functions import Substr

from accounts.people import find_recent_password_giver
from approvals.gates.statuses import US
from approvals.inbox.telling_values import list_telling_values
from approvals.labels import UNCOUNTED_LABELS
from approvals.models import Gate, Vote
from approvals.policies.policy_evaluation import load_plan_body
from approvals.review import changed_requests
from approvals.review.changed_requests import Conflict, Difference, EarlierRequest
from approvals.voting.quorum import load_uncounted_approvals
from db.compiled_query import CompiledQuerySet
from journal import summaries
from journal.entry_times import STATED_US
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from ledger.tools import cache

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

    `effect` has the columns of _STEP_COLUMNS only. Both summaries are agent text. `rel` is "prev"
    or "next" for the direct neighbours of the gate's effect. `gist` is None without a readable
    plan.
    """

    effect: Any
    rel: str
    gist: str | None
    result: str


def load_neighbouring_steps(gate: Gate) -> list[ChainStep]:
    """Load the gate's effect with those before and after it. Two queries."""
    within = {"session": gate.session_id, "own": gate.effect.opened_position}
    before, after = _STEPS_BEFORE.rows(**within), _STEPS_AFTER.rows(**within)
    project = gate.project_id
    behind = [
        _build_step(row, "prev" if index == 1 else "", project) for index, row in enumerate(before)
    ]
    ahead = [_build_step(row, "" if index else "next", project) for index, row in enumerate(after)]
    return [*reversed(behind), *ahead]


_STEP_COLUMNS: Final = (
    *("id", "tool", "state", "permission", "outcome", "deadline_us", "plan_position"),
)


def _select_steps(session: UUID) -> Any:
    answers = Attempt.objects.filter(effect=OuterRef("pk"), answer_position__isnull=False).order_by(
        "-number"
    )
    answer = (
        Body.objects.filter(entry=OuterRef("answer"))
        .annotate(head=Substr("text", 1, _ANSWER_CHARACTERS))
        .values("head")
    )
    siblings = Effect.objects.filter(session=session).annotate(
        plan_head=summaries.select_plan_heads(),
        answer=Subquery(answers.values("answer_position")[:1]),
    )
    return siblings.annotate(answer_head=Subquery(answer))


def _select_steps_before(session: UUID, own: int) -> Any:
    before = _select_steps(session).filter(opened_position__lte=own).order_by("-opened_position")
    return before.values_list(*_STEP_COLUMNS, "plan_head", "answer_head")[: STEPS_BEFORE + 1]


def _select_steps_after(session: UUID, own: int) -> Any:
    after = _select_steps(session).filter(opened_position__gt=own).order_by("opened_position")
    return after.values_list(*_STEP_COLUMNS, "plan_head", "answer_head")[:STEPS_AFTER]


_STEPS_BEFORE: Final = CompiledQuerySet(_select_steps_before, session=UUID, own=int)
_STEPS_AFTER: Final = CompiledQuerySet(_select_steps_after, session=UUID, own=int)


def _build_step(row: Sequence[Any], rel: str, project: UUID) -> ChainStep:
    *columns, plan_head, answer_head = row
    effect = SimpleNamespace(**dict(zip(_STEP_COLUMNS, columns, strict=True)))
    return ChainStep(
        effect,
        rel,
        _summarize_step(plan_head, cache.load_tool(project, effect.tool).telling),
        summaries.summarize_answer(answer_head) if answer_head else "",
    )


def _summarize_step(plan_head: str | None, telling: Sequence[str]) -> str | None:
    """Return a line whose beginning tells the call apart: a summary may cut these arguments."""
    if plan_head is None:
        return None
    arguments = summaries.extract_arguments(plan_head)
    pairs = list_telling_values(telling, arguments)
    if not pairs:
        return summaries.summarize_arguments(arguments)
    shown = {pair.label for pair in pairs}
    rest = {name: value for name, value in arguments.items() if name not in shown}
    return "  ".join([*(pair.value for pair in pairs), summaries.summarize_arguments(rest)])


def _select_votes(gate: UUID) -> Any:
    return Vote.objects.filter(gate=gate).select_related("user__person").order_by("position")


_VOTES: Final = CompiledQuerySet(_select_votes, gate=UUID)


@dataclass(slots=True)
class VoteView:
    """A vote with its reason. `same`: its card has the hash of the current card.

    `uncounted` is the reason why an approval does not count; empty if it counts. `page_shown_us` is
    when the voter's last page was made, and `first_shown_us` when any view first showed them the
    request. `warnings` are the check ids that the page showed, None if not recorded; `proof` is the
    strongest that was given, `password_for` whether for this vote or an earlier answer.
    """

    vote: Vote
    reason: str
    same: bool
    uncounted: str
    giver: str = ""  # who set the voter's password shortly before
    first_shown_us: int = 0
    page_shown_us: int = 0
    warnings: tuple[str, ...] | None = None
    proof: str = "none"
    password_for: str = ""
    typed_names: tuple[str, ...] = ()

    @property
    def ruled_in_us(self) -> int:
        """Time from first showing the request to the vote, in microseconds."""
        return self.vote.voted_at_us - self.first_shown_us

    @property
    def page_open_us(self) -> int:
        """Time from making the last page to the vote, in microseconds."""
        return self.vote.voted_at_us - self.page_shown_us

    @property
    def is_reopened(self) -> bool:
        """True if the request was first shown before the page that the vote came from."""
        return self.page_shown_us - self.first_shown_us >= US


def load_votes(gate: Gate, card_sha256: str) -> list[VoteView]:
    """Load the votes of a gate, in order.

    At most four queries; one more if a vote does not record when the request was first shown.
    """
    rows = _VOTES.rows(gate=gate.id) if getattr(gate, "has_votes", True) else []
    if not rows:
        return []
    body = Body.objects.filter(entry=OuterRef("position")).values("text")
    recorded = Entry.objects.filter(position__in=[vote.position for vote in rows])
    facts: dict[int, dict[str, Any]] = {}
    texts: dict[int, dict[str, Any]] = {}
    for position, fact, text in recorded.annotate(text=Subquery(body)).values_list(
        "position", "facts", "text"
    ):
        facts[position] = orjson.loads(fact)
        texts[position] = orjson.loads(text) if text else {}
    unrecorded = [vote for vote in rows if "first_shown_us" not in facts.get(vote.position, {})]
    first_views = _load_first_views(gate, unrecorded) if unrecorded else {}
    faulty = {
        identity: UNCOUNTED_LABELS[fault]
        for identity, fault in load_uncounted_approvals(gate).items()
    }
    return [
        _build_vote_view(
            vote,
            facts.get(vote.position, {}),
            texts.get(vote.position, {}),
            same=vote.card_sha256 == card_sha256,
            uncounted=faulty.get(vote.id, ""),
            first_view_us=first_views.get(vote.actor, vote.shown_at_us),
        )
        for vote in rows
    ]


def _build_vote_view(
    vote: Vote,
    facts: Mapping[str, Any],
    texts: Mapping[str, Any],
    *,
    same: bool,
    uncounted: str,
    first_view_us: int,
) -> VoteView:
    """Build the view of a vote from its row and entry; older entries record less."""
    return VoteView(
        vote,
        texts.get("reason", ""),
        same,
        uncounted,
        find_recent_password_giver(vote.user, vote.voted_at_us),
        first_shown_us=facts.get("first_shown_us", min(first_view_us, vote.shown_at_us)),
        page_shown_us=facts.get("page_shown_us", vote.shown_at_us),
        warnings=tuple(facts["warnings"]) if "warnings" in facts else None,
        proof=facts.get("proof", vote.step_up),
        password_for=facts.get("password_for", ""),
        typed_names=tuple(texts.get("typed_names", ())),
    )


def _load_first_views(gate: Gate, votes: Iterable[Vote]) -> dict[str, int]:
    """Return when a gate was first shown to voters, by pseudonym. One query."""
    views = Entry.objects.filter(
        project=gate.project_id,
        effect=gate.effect_id,
        subject=gate.id,
        kind="access.viewed",
        actor__in={vote.actor for vote in votes},
    )
    return dict(views.values_list("actor").annotate(first=Min(STATED_US)).order_by())


def load_actor_and_reason(gate: Gate, kind: str) -> tuple[str, str]:
    """Return actor (a pseudonym) and reason of a gate's last entry of `kind`."""
    entry = Entry.objects.filter(
        project=gate.project_id, effect=gate.effect_id, subject=gate.id, kind=kind
    )
    last = entry.order_by("-position").values_list("actor", "position").first()
    return ("", "") if last is None else (last[0], load_reason(last[1]))
