"""Chain of an effect: parents, children, causes, compensations, gates and votes.

Agents report parents and compensations. Gatebook finds effects with the same call, resource or
external reference. Everything is bounded; a sentence reports every bound that cuts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Exists, F, Q, QuerySet

from approvals.gates.gates import current_gate_status
from approvals.models import Gate
from investigation.fulltext import duplicate_index, indexer
from investigation.models import RepeatedOccurrence
from ledger.models import Effect
from ledger.partial_indexes import HAS_GATE_REFERENCE, HAS_REFERENCE
from pages.effects import chain_sql
from sessions import decisions
from sessions.models import select_body_text

MAX_STEPS_UP: Final = 10  # steps to parents, and to what this effect compensates
MAX_STEPS_DOWN: Final = 5  # levels of children and of compensations
MAX_PAIRS: Final = 5_000  # effects of the session that name a parent
MAX_SIMILAR: Final = 20  # effects with the same intent or the same external reference
MAX_SIMILAR_ELSEWHERE: Final = (
    5  # effects with the same intent in other sessions without gates, or on the same resource
)
MAX_COMPARED: Final = 50  # calls compared, equal or nearly equal
MAX_LINKS: Final = 200
MAX_COMPENSATIONS_READ: Final = 10 * MAX_LINKS  # effects read over all levels
MAX_GATES: Final = 50

THIS_EFFECT: Final = "this effect"


@dataclass(frozen=True, slots=True)
class VoteShown:
    """One vote at a gate; `reason` is None if it was erased."""

    who: str
    answer: str
    at_us: int
    position: int
    reason: str | None


@dataclass(slots=True)
class GateWithVotes:
    """A gate with its votes in order; `waited_us` is the time until now or its end."""

    gate: Any
    votes: list[VoteShown]
    waited_us: int


@dataclass(slots=True)
class Chain:
    """Related effects: `hows` are relations by id, `cut` sentences on omissions."""

    hows: dict[UUID, list[str]] = field(default_factory=dict)
    gates: list[GateWithVotes] = field(default_factory=list)
    decided: list[dict[str, Any]] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)

    def add(self, identity: UUID, how: str) -> bool:
        """Add a relation of an effect; return False if the chain is full."""
        if identity not in self.hows and len(self.hows) >= MAX_LINKS:
            self.say(f"More than {MAX_LINKS} related effects; the others are not shown.")
            return False
        reasons = self.hows.setdefault(identity, [])
        if how not in reasons:
            reasons.append(how)
        return True

    def say(self, sentence: str) -> None:
        """Add a sentence about an omission, once."""
        if sentence not in self.cut:
            self.cut.append(sentence)


def load_effect_chain(effect: Effect, now_us: int) -> Chain:
    """Return the chain of an effect of the member's project.

    It has no effect of another project.

    Three queries, four if a decision names the effect, whatever its length.
    """
    chain = Chain()
    chain.add(effect.id, THIS_EFFECT)
    decided = decisions.query_decisions(effect.session_id).filter(effect=effect.id)
    similar, lookups = (
        list(_similar_effect_queries(effect)),
        {"undoing": _compensations_query(effect)},
    )
    existence: dict[str, QuerySet[Any]] = {"decided": decided}
    for number, kind in enumerate(similar):
        lookups |= {f"before_{number}": kind.before, f"after_{number}": kind.after}
        existence |= {f"{word}_{number}": rows for word, rows in kind.beyond.items()}
    related = chain_sql.load_chain_lookups(
        effect,
        lookups,
        existence,
        pairs=_parent_pairs_query(effect),
        up={
            link: MAX_STEPS_UP
            for link in ("parent_effect_id", "compensates_id")
            if getattr(effect, link) is not None
        },
        down=("compensates_id", MAX_STEPS_DOWN, MAX_COMPENSATIONS_READ),
    )
    _add_ancestors(
        chain, effect, related, "parent_effect_id", "its parent", "its parent, {} levels up"
    )
    _add_children(chain, effect, related.pairs)
    how = "compensated by this effect", "compensated, {} steps back"
    _add_ancestors(chain, effect, related, "compensates_id", *how)
    _add_compensations(chain, effect, related)
    _add_similar(chain, similar, related)
    compared = indexer.duplicates_progress(effect.project_id)
    if compared.note:
        chain.say(compared.note)
    _add_gates(chain, now_us)
    rows = decided.order_by("-opened_position")[:MAX_SIMILAR] if related.whether["decided"] else []
    chain.decided = [
        decisions.decision_to_json(row) | {"position": row.opened_position} for row in rows
    ]
    return chain


def _add_ancestors(
    chain: Chain,
    effect: Effect,
    related: chain_sql.ChainLookups,
    link: str,
    first: str,
    further: str,
) -> None:
    """Follow `link` from effect to effect until it ends or repeats."""
    visited = {effect.id}
    next_id = getattr(effect, link)
    ancestors = iter(related.up.get(link, ()))
    for step in range(1, MAX_STEPS_UP + 2):
        if next_id is None or next_id in visited:
            return
        if step > MAX_STEPS_UP:
            chain.say(f"Only {MAX_STEPS_UP} steps up are shown; there are more.")
            return
        visited.add(next_id)
        # A report may name any id. Effects of other projects are never shown.
        entry = next(ancestors, None)
        if entry is None:
            chain.say("A related effect was never reported to this project.")
            return
        if not chain.add(entry[0], first if step == 1 else further.format(step)):
            return
        next_id = entry[1]


def _parent_pairs_query(effect: Effect) -> "QuerySet[Effect]":
    """Return the session's effects with a parent, if any names this effect."""
    children = Effect.objects.filter(session=effect.session_id, parent_effect=effect.id)
    with_parent = Effect.objects.filter(
        Exists(children), session=effect.session_id, parent_effect__isnull=False
    )
    return with_parent.order_by("opened_position")[: MAX_PAIRS + 1]


def _add_children(chain: Chain, effect: Effect, pairs: list[tuple[UUID, UUID]]) -> None:
    """Add children and their descendants in the session, where an index exists."""
    if len(pairs) > MAX_PAIRS:
        chain.say(
            f"Children are searched among the first {MAX_PAIRS:,} effects of the session with a "
            "parent."
        )
    children_of: dict[UUID, list[UUID]] = {}
    for child, parent in pairs[:MAX_PAIRS]:
        children_of.setdefault(parent, []).append(child)
    level, visited = [effect.id], {effect.id}
    for depth in range(1, MAX_STEPS_DOWN + 2):
        level = [
            child
            for parent in level
            for child in children_of.get(parent, [])
            if child not in visited
        ]
        if level and depth > MAX_STEPS_DOWN:
            chain.say(f"Only {MAX_STEPS_DOWN} levels down are shown; there are more.")
            return
        for child in level:
            visited.add(child)
            if not chain.add(
                child, "its child" if depth == 1 else f"its child, {depth} levels down"
            ):
                return


def _add_similar(
    chain: Chain, similar: "list[_SimilarEffects]", related: chain_sql.ChainLookups
) -> None:
    for number, kind in enumerate(similar):
        for side in ("before", "after"):
            ids = related.ids[f"{side}_{number}"]
            if len(ids) > kind.most:
                chain.say(
                    f"More than {kind.most} {kind.of_which} {side} it; the nearest are shown."
                )
            elif related.whether.get(f"{side}_{number}"):
                chain.say(
                    f"Only the nearest {MAX_COMPARED} effects with the same call {side} it were "
                    "compared."
                )
            for effect_id in ids[-kind.most :] if side == "before" else ids[: kind.most]:
                if not chain.add(effect_id, f"{kind.how}, {side} it"):
                    return


def _compensations_query(effect: Effect) -> "QuerySet[Effect]":
    compensations = Effect.objects.filter(compensates=effect.id, project=effect.project_id)
    return compensations.order_by("opened_position")[: MAX_LINKS + 1]


def _add_compensations(chain: Chain, effect: Effect, related: chain_sql.ChainLookups) -> None:
    """Add effects planned to undo this effect, and effects that undo those."""
    for effect_id in related.ids["undoing"]:
        if not chain.add(effect_id, "compensates this effect"):
            return
    visited = {effect.id, *related.ids["undoing"]}
    for depth in range(2, MAX_STEPS_DOWN + 1):
        level = [effect_id for effect_id in related.down.get(depth, ()) if effect_id not in visited]
        for effect_id in level:
            visited.add(effect_id)
            if not chain.add(effect_id, "compensates its compensation"):
                return


@dataclass(frozen=True, slots=True)
class _SimilarEffects:
    """Similar effects: the nearest before and after, one more than shown."""

    before: "QuerySet[Effect]"
    after: "QuerySet[Effect]"
    how: str
    of_which: str
    most: int
    beyond: "dict[str, QuerySet[Any]]" = field(
        default_factory=dict
    )  # by side: rows beyond those that were compared


def _similar_effect_queries(effect: Effect) -> Iterator[_SimilarEffects]:
    """Yield queries of effects with the same call, resource or external reference."""
    effects = Effect.objects.filter(project=effect.project_id)
    calls = duplicate_index.same_occurrences([effect.opened_position], "call", "read")
    if effect.intent_digest:
        same = Effect.objects.filter(session=effect.session_id, intent_digest=effect.intent_digest)
        yield _nearest_rows(
            effect, same, "the same call", "effects with the same call in this session"
        )
        other = "the same call in another session", "effects with the same call in other sessions"
        exactly = Q(intent_digest=effect.intent_digest)
        gated = effects.filter(HAS_GATE_REFERENCE, exactly).exclude(session=effect.session_id)
        yield _nearest_rows(effect, gated, *other)
        yield _duplicate_rows(effect, calls.exclude(session=effect.session_id), exactly, *other)
    nearly = "a nearly identical call", "effects with nearly the same call"
    yield _duplicate_rows(effect, calls, ~Q(intent_digest=effect.intent_digest), *nearly)
    if effect.resource:
        aimed = "the same tool on the same resource", "effects of its tool on the same resource"
        yield _duplicate_rows(
            effect,
            duplicate_index.same_occurrences([effect.opened_position], "target"),
            Q(),
            *aimed,
        )
    if effect.external_reference:
        same = effects.filter(HAS_REFERENCE, external_reference=effect.external_reference)
        yield _nearest_rows(
            effect, same, "the same external reference", "effects with the same external reference"
        )


def _nearest_rows(
    effect: Effect, rows: "QuerySet[Effect]", how: str, of_which: str
) -> _SimilarEffects:
    before = rows.filter(opened_position__lt=effect.opened_position).order_by("-opened_position")
    after = rows.filter(opened_position__gt=effect.opened_position).order_by("opened_position")
    return _SimilarEffects(
        before[: MAX_SIMILAR + 1], after[: MAX_SIMILAR + 1], how, of_which, MAX_SIMILAR
    )


def _duplicate_rows(
    effect: Effect, same: "QuerySet[RepeatedOccurrence]", only: Q, how: str, of_which: str
) -> _SimilarEffects:
    """Return effects that the duplicate index found similar, narrowed by `only`."""
    before = (
        same.filter(position__lt=effect.opened_position).order_by("-position").values("position")
    )
    after = same.filter(position__gt=effect.opened_position).order_by("position").values("position")
    effects = Effect.objects.filter(only, project=effect.project_id)
    limit = (
        MAX_COMPARED if only else MAX_SIMILAR_ELSEWHERE + 1
    )  # some of the nearest may already be listed with another relation
    sides = [effects.filter(opened_position__in=rows[:limit]) for rows in (before, after)]
    beyond = (
        {"before": before[limit : limit + 1], "after": after[limit : limit + 1]} if only else {}
    )
    return _SimilarEffects(sides[0], sides[1], how, of_which, MAX_SIMILAR_ELSEWHERE, beyond)


def _add_gates(chain: Chain, now_us: int) -> None:
    """Add the effects' gates with votes in order of their requests. One query."""
    gate_ids = (
        Gate.objects.filter(effect__in=list(chain.hows))
        .order_by("opened_position")
        .values("id")[: MAX_GATES + 1]
    )
    vote = {name: F(f"votes__{path}") for name, path in _OF_VOTE.items()}
    rows: QuerySet[Any] = Gate.objects.filter(id__in=gate_ids).select_related("effect")
    rows = rows.annotate(**vote, text=select_body_text("votes__position"))
    gates: dict[UUID, GateWithVotes] = {}
    for row in rows.order_by("opened_position", "vote_position"):
        if row.id not in gates:
            if len(gates) == MAX_GATES:
                chain.say(f"More than {MAX_GATES} gates; the first are shown.")
                break
            row.status = current_gate_status(row, now_us)
            until_us = row.decided_at_us or row.ended_at_us or now_us
            gates[row.id] = GateWithVotes(row, [], max(until_us - row.requested_at_us, 0))
        if row.vote_position is not None:
            reason = str(orjson.loads(row.text).get("reason", "")) if row.text is not None else None
            vote_shown = VoteShown(
                row.vote_by, row.vote_answer, row.vote_at_us, row.vote_position, reason
            )
            gates[row.id].votes.append(vote_shown)
    chain.gates = list(gates.values())


_OF_VOTE: Final = {
    "vote_position": "position",
    "vote_by": "user__username",
    "vote_answer": "answer",
    "vote_at_us": "voted_at_us",
}
