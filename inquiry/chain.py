"""The chain of an effect: where it came from, what came of it, what undoes it, and who let it pass.

Parents and compensations are told by agents. The cause is what the book finds by itself: the same call asked before,
and others with the same external reference. Everything is bounded, and where a bound cuts, a sentence says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Exists, F, Q, QuerySet

from approvals.deadlines import current_status
from approvals.models import Gate
from inquiry import nearest, repeating
from inquiry.indexes import HAS_REFERENCE, WAS_ASKED_ABOUT
from inquiry.models_repeats import RepeatedDoing
from inquiry.words import indexing
from ledger.models import Effect
from sessions import decisions
from sessions.models_state import text_at

UP: Final = 10  # steps towards parents, and towards what is undone
DOWN: Final = 5  # levels of children and of compensations
PAIRS: Final = 5_000  # effects of the session that name a parent
ALIKE: Final = 20  # of the same intent, and of the same external reference
ELSEWHERE: Final = 5  # of the same intent in sessions that nobody was asked about, and on the same resource
LOOKED: Final = 50  # calls that are the same in nearly the same words, or to the letter
LINKS: Final = 200
UNDOINGS: Final = 10 * LINKS  # that are looked at, of all levels
GATES: Final = 50

THIS: Final = "this one"


@dataclass(frozen=True, slots=True)
class Ruled:
    """What one person answered at a gate; `reason` is None when it was erased."""

    who: str
    answer: str
    at_us: int
    position: int
    reason: str | None


@dataclass(slots=True)
class Asked:
    """A gate of one of the effects, with its votes in order. `waited_us` is how long people took, or have taken."""

    gate: Any
    votes: list[Ruled]
    waited_us: int


@dataclass(slots=True)
class Chain:
    """`hows` says of each effect, by id, how it belongs to the one; `cut` are the sentences of what was left out."""

    hows: dict[UUID, list[str]] = field(default_factory=dict)
    gates: list[Asked] = field(default_factory=list)
    decided: list[dict[str, Any]] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)

    def add(self, identity: UUID, how: str) -> bool:
        """Say how an effect belongs here; False where there is no room for another."""
        if identity not in self.hows and len(self.hows) >= LINKS:
            self.say(f"It has more links than {LINKS}; the rest is left out.")
            return False
        known = self.hows.setdefault(identity, [])
        if how not in known:
            known.append(how)
        return True

    def say(self, sentence: str) -> None:
        """Tell of a cut, once."""
        if sentence not in self.cut:
            self.cut.append(sentence)


def of(effect: Effect, now_us: int) -> Chain:
    """The chain of an effect that was fetched through the wall; nothing of another project is in it.

    Three queries, four where something was decided about it, however long it is.
    """
    chain = Chain()
    chain.add(effect.id, THIS)
    decided = decisions.of_session(effect.session_id).filter(effect=effect.id)
    alike, asked = list(_alike(effect)), {"undoing": _undoing(effect)}
    whether: dict[str, QuerySet[Any]] = {"decided": decided}
    for number, kind in enumerate(alike):
        asked |= {f"before_{number}": kind.before, f"after_{number}": kind.after}
        whether |= {f"{word}_{number}": rows for word, rows in kind.beyond.items()}
    found = nearest.look(
        effect,
        asked,
        whether,
        pairs=_pairs(effect),
        up={link: UP for link in ("parent_effect_id", "compensates_id") if getattr(effect, link) is not None},
        down=("compensates_id", DOWN, UNDOINGS),
    )
    _upwards(chain, effect, found, "parent_effect_id", "its parent", "its parent, {} levels up")
    _children(chain, effect, found.pairs)
    how = "this one compensates it", "compensated in its turn, {} steps back"
    _upwards(chain, effect, found, "compensates_id", *how)
    _compensations(chain, effect, found)
    _tell_alike(chain, alike, found)
    compared = indexing.compared(effect.project_id)
    if compared.note:
        chain.say(compared.note)
    _ask(chain, now_us)
    rows = decided.order_by("-opened_position")[:ALIKE] if found.whether["decided"] else []
    chain.decided = [decisions.told(row) | {"position": row.opened_position} for row in rows]
    return chain


def _upwards(chain: Chain, effect: Effect, found: nearest.Found, link: str, first: str, further: str) -> None:
    """Walk from one effect to the next that `link` names, until there is none, or one is met again."""
    seen = {effect.id}
    following = getattr(effect, link)
    above = iter(found.up.get(link, ()))
    for step in range(1, UP + 2):
        if following is None or following in seen:
            return
        if step > UP:
            chain.say(f"Looked {UP} steps up; there is more above.")
            return
        seen.add(following)
        # A report may name any id, and nothing crosses the wall.
        one = next(above, None)
        if one is None:
            chain.say("An effect that it names was never reported here.")
            return
        if not chain.add(one[0], first if step == 1 else further.format(step)):
            return
        following = one[1]


def _pairs(effect: Effect) -> "QuerySet[Effect]":
    """The effects of its session that name a parent, where any names this one."""
    own = Effect.objects.filter(session=effect.session_id, parent_effect=effect.id)
    named = Effect.objects.filter(Exists(own), session=effect.session_id, parent_effect__isnull=False)
    return named.order_by("opened_position")[: PAIRS + 1]


def _children(chain: Chain, effect: Effect, pairs: list[tuple[UUID, UUID]]) -> None:
    """What names it as parent, and what names that: in its own session, where an index leads."""
    if len(pairs) > PAIRS:
        chain.say(f"Children are looked for among the first {PAIRS:,} effects of the session that name a parent.")
    under: dict[UUID, list[UUID]] = {}
    for child, parent in pairs[:PAIRS]:
        under.setdefault(parent, []).append(child)
    level, seen = [effect.id], {effect.id}
    for depth in range(1, DOWN + 2):
        level = [child for parent in level for child in under.get(parent, []) if child not in seen]
        if level and depth > DOWN:
            chain.say(f"Looked {DOWN} levels down; there are more below.")
            return
        for child in level:
            seen.add(child)
            if not chain.add(child, "its child" if depth == 1 else f"its child, {depth} levels down"):
                return


def _tell_alike(chain: Chain, alike: "list[_Kind]", found: nearest.Found) -> None:
    for number, kind in enumerate(alike):
        for word in ("before", "after"):
            ids = found.ids[f"{word}_{number}"]
            if len(ids) > kind.most:
                chain.say(f"There are more than {kind.most} {kind.of_which} {word} it; the nearest are shown.")
            elif found.whether.get(f"{word}_{number}"):
                chain.say(f"Of all that made its call {word} it the nearest {LOOKED} were looked at.")
            for one in ids[-kind.most :] if word == "before" else ids[: kind.most]:
                if not chain.add(one, f"{kind.how}, {word} it"):
                    return


def _undoing(effect: Effect) -> "QuerySet[Effect]":
    undoing = Effect.objects.filter(compensates=effect.id, project=effect.project_id)
    return undoing.order_by("opened_position")[: LINKS + 1]


def _compensations(chain: Chain, effect: Effect, found: nearest.Found) -> None:
    """What was planned to undo it, and what undoes that."""
    for one in found.ids["undoing"]:
        if not chain.add(one, "compensates this one"):
            return
    seen = {effect.id, *found.ids["undoing"]}
    for depth in range(2, DOWN + 1):
        level = [one for one in found.down.get(depth, ()) if one not in seen]
        for one in level:
            seen.add(one)
            if not chain.add(one, "compensates its compensation"):
                return


@dataclass(frozen=True, slots=True)
class _Kind:
    """Effects that are like one: the nearest before and after it, one more than are told, and what they are called."""

    before: "QuerySet[Effect]"
    after: "QuerySet[Effect]"
    how: str
    of_which: str
    most: int
    beyond: "dict[str, QuerySet[Any]]" = field(default_factory=dict)  # what was not looked at, by the side of it


def _alike(effect: Effect) -> Iterator[_Kind]:
    """The same call, in its session and others; the same tool on the same resource; the same external reference."""
    there = Effect.objects.filter(project=effect.project_id)
    calls = repeating.like([effect.opened_position], "call", "read")
    if effect.intent_digest:
        same = Effect.objects.filter(session=effect.session_id, intent_digest=effect.intent_digest)
        yield _near(effect, same, "the same call", "of the same call in this session")
        other = "the same call in another session", "of the same call in other sessions"
        exactly = Q(intent_digest=effect.intent_digest)
        asked = there.filter(WAS_ASKED_ABOUT, exactly).exclude(session=effect.session_id)
        yield _near(effect, asked, *other)
        yield _compared(effect, calls.exclude(session=effect.session_id), exactly, *other)
    nearly = "the same call in nearly the same words", "of nearly the same call"
    yield _compared(effect, calls, ~Q(intent_digest=effect.intent_digest), *nearly)
    if effect.resource:
        aimed = "the same tool on the same resource", "of its tool on the same resource"
        yield _compared(effect, repeating.like([effect.opened_position], "target"), Q(), *aimed)
    if effect.external_reference:
        same = there.filter(HAS_REFERENCE, external_reference=effect.external_reference)
        yield _near(effect, same, "the same external reference", "with the same external reference")


def _near(effect: Effect, rows: "QuerySet[Effect]", how: str, of_which: str) -> _Kind:
    before = rows.filter(opened_position__lt=effect.opened_position).order_by("-opened_position")
    after = rows.filter(opened_position__gt=effect.opened_position).order_by("opened_position")
    return _Kind(before[: ALIKE + 1], after[: ALIKE + 1], how, of_which, ALIKE)


def _compared(effect: Effect, same: "QuerySet[RepeatedDoing]", only: Q, how: str, of_which: str) -> _Kind:
    """What the chore found to have this in common, and of it those of which `only` holds."""
    before = same.filter(position__lt=effect.opened_position).order_by("-position").values("position")
    after = same.filter(position__gt=effect.opened_position).order_by("position").values("position")
    there = Effect.objects.filter(only, project=effect.project_id)
    most = LOOKED if only else ELSEWHERE + 1  # among the nearest may be many that are told of as something else
    told = [there.filter(opened_position__in=rows[:most]) for rows in (before, after)]
    beyond = {"before": before[most : most + 1], "after": after[most : most + 1]} if only else {}
    return _Kind(told[0], told[1], how, of_which, ELSEWHERE, beyond)


def _ask(chain: Chain, now_us: int) -> None:
    """The gates of all of these, in the order in which people were asked, with what each person answered. One query."""
    asked = Gate.objects.filter(effect__in=list(chain.hows)).order_by("opened_position").values("id")[: GATES + 1]
    vote = {name: F(f"votes__{path}") for name, path in _OF_VOTE.items()}
    rows: QuerySet[Any] = Gate.objects.filter(id__in=asked).select_related("effect")
    rows = rows.annotate(**vote, text=text_at("votes__position"))
    gates: dict[UUID, Asked] = {}
    for row in rows.order_by("opened_position", "vote_position"):
        if row.id not in gates:
            if len(gates) == GATES:
                chain.say(f"People were asked more than {GATES} times; the first are shown.")
                break
            row.status = current_status(row, now_us)
            until = row.decided_at_us or row.ended_at_us or now_us
            gates[row.id] = Asked(row, [], max(until - row.requested_at_us, 0))
        if row.vote_position is not None:
            reason = str(orjson.loads(row.text).get("reason", "")) if row.text is not None else None
            said = Ruled(row.vote_by, row.vote_answer, row.vote_at_us, row.vote_position, reason)
            gates[row.id].votes.append(said)
    chain.gates = list(gates.values())


_OF_VOTE: Final = {
    "vote_position": "position",
    "vote_by": "user__username",
    "vote_answer": "answer",
    "vote_at_us": "voted_at_us",
}
