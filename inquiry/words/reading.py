"""What of an effect is searched for words: its tool, target, arguments and results, as ledger and journal have them.

The rest of what an agent sent with them (keys, marks, its reasons) is no part of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final
from uuid import UUID

from django.db.models import F

from inquiry.words.cutting import cut
from journal import gists
from journal.models import Body
from ledger.models import Attempt, Effect

MOST: Final = 2_000  # words that are kept of one effect, the first in the order of `texts`
ATTEMPTS: Final = 20  # the newest, whose answers are read
_AT_ONCE: Final = 100  # effects whose bodies are in memory together
_TARGET: Final = ("repository__name", "ref", "environment", "resource", "external_reference")


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one effect. `bodies` are the positions of the entries whose bodies were read or looked for."""

    effect: UUID
    project: UUID
    position: int
    words: frozenset[str]
    cut_short: bool = False  # it says more than MOST
    bodies: tuple[int, ...] = ()


@dataclass(slots=True)
class Searched:
    """What of one effect is searched: values by the names of `_read`, and where its plan and answers stand."""

    row: dict[str, Any]
    references: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    @property
    def bodies(self) -> tuple[int, ...]:
        plan = self.row["plan_position"]
        return (*([] if plan is None else [plan]), *self.answers)


def words(effects: Iterable[UUID], characters: int | None = None) -> list[Words]:
    """The words of each effect, in the order given; unknown ids are left out. Three queries for every hundred.

    After so many `characters` of bodies it stops, and what is left unread is missing.
    """
    found: list[Words] = []
    waiting = iter(effects)
    while part := list(islice(waiting, _AT_ONCE)):
        known = _read(part)
        bodies = _bodies(known.values())
        for effect in known.values():
            found.append(_words(effect, bodies))
        if characters is not None:
            characters -= sum(map(len, bodies.values()))
            if characters <= 0:
                break
    return found


def texts(effects: Sequence[UUID]) -> dict[UUID, list[tuple[str, str]]]:
    """What is searched of each effect (few), by id: pairs of a word of ours that says what it is, and agents' text."""
    return texts_of(_read(effects))


def texts_of(known: Mapping[UUID, Searched]) -> dict[UUID, list[tuple[str, str]]]:
    """The same of effects that were read in another way, few of them. One query."""
    bodies = _bodies(known.values())
    return {identity: list(_texts(effect, bodies)) for identity, effect in known.items()}


def words_in(texts: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The words by which an effect with these texts is found."""
    return _first(texts)[0]


def _read(effects: Sequence[UUID]) -> dict[UUID, Searched]:
    rows = Effect.objects.filter(id__listed=effects).values(
        "id", "project_id", "opened_position", "plan_position", "tool", *_TARGET
    )
    found = {row["id"]: Searched(row) for row in rows}
    known = {identity: found[identity] for identity in effects if identity in found}
    tried = Attempt.objects.filter(effect__id__listed=effects, number__gt=F("effect__attempt_count") - ATTEMPTS)
    for identity, answer, reference in tried.order_by("effect", "-number").values_list(
        "effect_id", "answer_position", "external_reference"
    ):
        if identity in known:
            known[identity].references.append(reference)
            if answer is not None:
                known[identity].answers.append(answer)
    return known


def _bodies(effects: Iterable[Searched]) -> dict[int, str]:
    positions = [position for effect in effects for position in effect.bodies]
    return dict(Body.objects.filter(entry__position__listed=positions).values_list("entry_id", "text"))


def _words(effect: Searched, bodies: Mapping[int, str]) -> Words:
    row, (first, is_all) = effect.row, _first(_texts(effect, bodies))
    return Words(row["id"], row["project_id"], row["opened_position"], first, not is_all, effect.bodies)


def _first(texts: Iterable[tuple[str, str]]) -> tuple[frozenset[str], bool]:
    """The first MOST words, and whether these are all."""
    kept: dict[str, None] = {}
    for _label, text in texts:
        kept.update(dict.fromkeys(cut(text)))
    return frozenset(islice(kept, MOST)), len(kept) <= MOST


def _texts(effect: Searched, bodies: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    row = effect.row
    yield "tool", row["tool"]
    target = dict.fromkeys([*(row[name] for name in _TARGET), *effect.references])
    yield "target", "\n".join(one for one in target if one)
    if row["plan_position"] in bodies:
        yield "arguments", lines(gists.parsed(bodies[row["plan_position"]]).get("arguments"))
    for position in effect.answers:
        if position in bodies:
            body = gists.parsed(bodies[position])
            yield "result", lines([body.get("result"), body.get("detail")])


def lines(value: Any) -> str:
    """A JSON value as text: every name and every value in their order, a line for each value. null says nothing."""
    found: list[str] = []
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, one = waiting.pop()
        if isinstance(one, dict):
            if name:
                found.append(name)
            waiting.extend((f"{key}: ", inner) for key, inner in reversed(one.items()))
        elif isinstance(one, list):
            waiting.extend((name if index == 0 else "", inner) for index, inner in reversed(list(enumerate(one))))
        elif isinstance(one, str):
            found.append(name + one)
        elif isinstance(one, bool):
            found.append(f"{name}{'true' if one else 'false'}")
        elif one is not None:
            found.append(f"{name}{one}")
        elif name:
            found.append(name)
    return "\n".join(found)
