"""The chain of an effect: where it came from, what came of it, what undoes it, and who let it pass.

Parents and compensations are told by agents. The cause is what the book finds by itself: the same call asked before,
and others with the same external reference. Everything is bounded, and where a bound cuts, a sentence says so.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import QuerySet

from approvals.deadlines import current_status
from approvals.models import Gate, Vote
from inquiry import nearest, repeating
from inquiry.indexes import HAS_REFERENCE, WAS_ASKED_ABOUT
from inquiry.models_repeats import RepeatedDoing
from ledger.models import Effect
from sessions import decisions
from sessions.models_state import text_at

UP: Final = 10  # steps towards parents, and towards what is undone
DOWN: Final = 5  # levels of children and of compensations
PAIRS: Final = 5_000  # effects of the session that name a parent
ALIKE: Final = 20  # of the same intent, and of the same external reference
ELSEWHERE: Final = 5  # of the same intent in sessions that nobody was asked about, and on the same resource
LINKS: Final = 200
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
    """The chain of an effect that was fetched through the wall; nothing of another project is in it."""
    chain = Chain()
    chain.add(effect.id, THIS)
    decided = decisions.of_session(effect.session_id).filter(effect=effect.id)
    alike, asked = list(_alike(effect)), {"undoing": _undoing(effect, [effect.id])}
    for number, kind in enumerate(alike):
        asked |= {f"before_{number}": kind.before, f"after_{number}": kind.after}
    own_children = Effect.objects.filter(session=effect.session_id, parent_effect=effect.id)
    found, there = nearest.look(effect, asked, {"children": own_children, "decided": decided})
    _upwards(chain, effect, "parent_effect_id", "its parent", "its parent, {} levels up")
    if there["children"]:
        _children(chain, effect)
    _upwards(chain, effect, "compensates_id", "this one compensates it", "compensated in its turn, {} steps back")
    _compensations(chain, effect, found["undoing"])
    _tell_alike(chain, alike, found)
    _ask(chain, now_us)
    rows = decided.order_by("-opened_position")[:ALIKE] if there["decided"] else []
    chain.decided = [decisions.told(row) | {"position": row.opened_position} for row in rows]
    return chain


def _upwards(chain: Chain, effect: Effect, link: str, first: str, further: str) -> None:
    """Walk from one effect to the next that `link` names, until there is none, or one is met again."""
    seen = {effect.id}
    following = getattr(effect, link)
    for step in range(1, UP + 2):
        if following is None or following in seen:
            return
        if step > UP:
            chain.say(f"Looked {UP} steps up; there is more above.")
            return
        seen.add(following)
        # A report may name any id, and nothing crosses the wall.
        found = Effect.objects.filter(id=following, project=effect.project_id).values_list("id", link).first()
        if found is None:
            chain.say("An effect that it names was never reported here.")
            return
        if not chain.add(found[0], first if step == 1 else further.format(step)):
            return
        following = found[1]


def _children(chain: Chain, effect: Effect) -> None:
    """What names it as parent, and what names that: in its own session, where an index leads."""
    named = Effect.objects.filter(session=effect.session_id, parent_effect__isnull=False)
    pairs = list(named.order_by("opened_position").values_list("id", "parent_effect_id")[: PAIRS + 1])
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


def _tell_alike(chain: Chain, alike: "list[_Kind]", found: dict[str, list[UUID]]) -> None:
    for number, kind in enumerate(alike):
        for word in ("before", "after"):
            ids = found[f"{word}_{number}"]
            if len(ids) > kind.most:
                chain.say(f"There are more than {kind.most} {kind.of_which} {word} it; the nearest are shown.")
            for one in ids[-kind.most :] if word == "before" else ids[: kind.most]:
                if not chain.add(one, f"{kind.how}, {word} it"):
                    return


def _undoing(effect: Effect, level: list[UUID]) -> "QuerySet[Effect]":
    undoing = Effect.objects.filter(compensates__in=level, project=effect.project_id)
    return undoing.order_by("opened_position")[: LINKS + 1]


def _compensations(chain: Chain, effect: Effect, level: list[UUID]) -> None:
    """What was planned to undo it, and what undoes that."""
    seen = {effect.id}
    for depth in range(1, DOWN + 1):
        for one in level:
            seen.add(one)
            if not chain.add(one, "compensates this one" if depth == 1 else "compensates its compensation"):
                return
        if not level or depth == DOWN:
            return
        level = [one for one in _undoing(effect, level).values_list("id", flat=True) if one not in seen]


@dataclass(frozen=True, slots=True)
class _Kind:
    """Effects that are like one: the nearest before and after it, one more than are told, and what they are called."""

    before: "QuerySet[Effect]"
    after: "QuerySet[Effect]"
    how: str
    of_which: str
    most: int


def _alike(effect: Effect) -> Iterator[_Kind]:
    """The same call, in its session and others; the same tool on the same resource; the same external reference."""
    there = Effect.objects.filter(project=effect.project_id)
    if effect.intent_digest:
        same = Effect.objects.filter(session=effect.session_id, intent_digest=effect.intent_digest)
        yield _near(effect, same, "the same call", "of the same call in this session")
        other = "the same call in another session", "of the same call in other sessions"
        asked = there.filter(WAS_ASKED_ABOUT, intent_digest=effect.intent_digest).exclude(session=effect.session_id)
        yield _near(effect, asked, *other)
        yield _compared(effect, "call", *other)
    if effect.resource:
        yield _compared(effect, "target", "the same tool on the same resource", "of its tool on the same resource")
    if effect.external_reference:
        same = there.filter(HAS_REFERENCE, external_reference=effect.external_reference)
        yield _near(effect, same, "the same external reference", "with the same external reference")


def _near(effect: Effect, rows: "QuerySet[Effect]", how: str, of_which: str) -> _Kind:
    before = rows.filter(opened_position__lt=effect.opened_position).order_by("-opened_position")
    after = rows.filter(opened_position__gt=effect.opened_position).order_by("opened_position")
    return _Kind(before[: ALIKE + 1], after[: ALIKE + 1], how, of_which, ALIKE)


def _compared(effect: Effect, sort: str, how: str, of_which: str) -> _Kind:
    """What the chore found to have this in common; calls only of other sessions, as its own are found anyway."""
    same = RepeatedDoing.objects.filter(digest=repeating.digest_of(effect, sort), sort=sort)
    same = same.exclude(session=effect.session_id) if sort == "call" else same
    before = same.filter(position__lt=effect.opened_position).order_by("-position").values("position")
    after = same.filter(position__gt=effect.opened_position).order_by("position").values("position")
    there = Effect.objects.filter(project=effect.project_id)
    told = [there.filter(opened_position__in=rows[: ELSEWHERE + 1]) for rows in (before, after)]
    return _Kind(told[0], told[1], how, of_which, ELSEWHERE)


def _ask(chain: Chain, now_us: int) -> None:
    """The gates of all of these, in the order in which people were asked, with what each person answered."""
    rows = Gate.objects.filter(effect__in=list(chain.hows)).select_related("effect").order_by("opened_position")
    gates = list(rows[: GATES + 1])
    if len(gates) > GATES:
        chain.say(f"People were asked more than {GATES} times; the first are shown.")
    votes = _votes([gate.id for gate in gates[:GATES]])
    for gate in gates[:GATES]:
        gate.status = current_status(gate, now_us)
        until = gate.decided_at_us or gate.ended_at_us or now_us
        chain.gates.append(Asked(gate, votes.get(gate.id, []), max(until - gate.requested_at_us, 0)))


def _votes(gates: Iterable[UUID]) -> dict[UUID, list[Ruled]]:
    found: dict[UUID, list[Ruled]] = {}
    if not gates:
        return found
    rows = Vote.objects.filter(gate__in=list(gates)).select_related("user").annotate(text=text_at("position"))
    for one in rows.order_by("position"):
        reason = str(orjson.loads(one.text).get("reason", "")) if one.text is not None else None
        said = Ruled(one.user.get_username(), one.answer, one.voted_at_us, one.position, reason)
        found.setdefault(one.gate_id, []).append(said)
    return found
