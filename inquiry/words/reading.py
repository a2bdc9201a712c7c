"""What of an effect is searched for words: its tool, target, arguments and results, as ledger and journal have them.

The rest of what an agent sent with them (keys, marks, its reasons) is no part of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any, Final
from uuid import UUID

import msgspec

from inquiry import alike
from inquiry.words.cutting import cut, distinct
from journal import sql

MOST: Final = 2_000  # words that are kept of one effect, the first in the order of `texts`
ATTEMPTS: Final = 20  # the newest, whose answers are read
_AT_ONCE: Final = 100  # effects whose bodies are in memory together
_TARGET: Final = ("repository", "ref", "environment", "resource", "external_reference")
_COMPARED: Final = ("session_id", "repository_id", "intent_digest", "attempt_count")  # by inquiry/repeating.py
_NAMES: Final = ("id", "project_id", "opened_position", "plan_position", "tool", *_TARGET, *_COMPARED)
# Plain SQL: what Django adds to reading was half of all that the index of words took.
_EFFECTS: Final = (
    "SELECT CAST(effect.id AS text), CAST(effect.project_id AS text), effect.opened_position, effect.plan_position,"
    " effect.tool, repository.name, effect.ref, effect.environment, effect.resource, effect.external_reference,"
    " CAST(effect.session_id AS text), CAST(effect.repository_id AS text), effect.intent_digest, effect.attempt_count,"
    " attempt.number, attempt.answer_position, attempt.external_reference,"
    # What was rejected without a dispatch, by the agent's own harness, never ran.
    " attempt.dispatched_mark <> '' OR attempt.acknowledged_mark <> '' OR attempt.failure_reason <> 'rejected'"
    " FROM {} CROSS JOIN ledger_effect effect"
    " LEFT JOIN agent_sessions_repository repository ON repository.id = effect.repository_id"
    " LEFT JOIN ledger_attempt attempt ON attempt.effect_id = effect.id"
    f" AND attempt.number > effect.attempt_count - {ATTEMPTS} WHERE effect.id = wanted.key"
)
_BODIES: Final = "SELECT body.entry_id, body.text FROM {} CROSS JOIN journal_body body WHERE body.entry_id = wanted.key"


class _Said(msgspec.Struct):
    """What is searched of a body; all else in it is passed over."""

    arguments: Any = None
    result: Any = None
    detail: Any = None
    free_text: Any = None


_decode: Final = msgspec.json.Decoder(_Said).decode


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one effect. `bodies` are the positions of the entries whose bodies were read or looked for.

    Both ids are as plain SQL gives them as text. `row` has what was read of it by the names of `Searched`.
    """

    effect: str
    project: str
    position: int
    words: frozenset[str]
    cut_short: bool = False  # it says more than MOST
    bodies: tuple[int, ...] = ()
    call: int | None = None  # what its plan is known by (inquiry/alike.py); None without one
    row: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Searched:
    """What of one effect is searched: values by _NAMES, and where its plan and answers stand."""

    row: dict[str, Any]
    references: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    @property
    def bodies(self) -> tuple[int, ...]:
        plan = self.row["plan_position"]
        return (*([] if plan is None else [plan]), *self.answers)


def words(effects: Iterable[UUID | str]) -> list[Words]:
    """The words of each effect, in the order given; unknown ids are left out. Two queries for every hundred."""
    return [one for _part, found, _characters in in_parts(effects) for one in found]


def in_parts(effects: Iterable[UUID | str]) -> Iterator[tuple[list[UUID | str], list[Words], int]]:
    """The same by parts: the effects that were asked for, the words of each, and the characters of all their bodies."""
    waiting = iter(effects)
    while part := list(islice(waiting, _AT_ONCE)):
        known = read(part)
        bodies = _bodies(known.values())
        yield part, [_words(effect, bodies) for effect in known.values()], sum(map(len, bodies.values()))


def texts(effects: Sequence[UUID]) -> dict[UUID, list[tuple[str, str]]]:
    """What is searched of each effect (few), by id: pairs of a word of ours that says what it is, and agents' text."""
    return texts_of({UUID(identity): effect for identity, effect in read(effects).items()})


def texts_of(known: Mapping[UUID, Searched]) -> dict[UUID, list[tuple[str, str]]]:
    """The same of effects that were read in another way, few of them. One query."""
    bodies = _bodies(known.values())
    return {identity: list(_texts(effect, bodies, _plan(effect, bodies))) for identity, effect in known.items()}


def words_in(texts: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The words by which an effect with these texts is found."""
    return _first(texts)[0]


def read(effects: Sequence[UUID | str]) -> dict[str, Searched]:
    """What is searched of each effect, but for the bodies, by ids as text in the order given. One query."""
    known: dict[str, Searched] = {}
    tried: defaultdict[str, list[tuple[int, int | None, str, bool]]] = defaultdict(list)
    asked = [one if isinstance(one, str) else sql.as_text(one) for one in effects]
    for row in sql.rows(_EFFECTS.format(sql.wanted("uuid")), [sql.keys(asked)]):
        identity, attempt = row[0], row[len(_NAMES) :]
        if identity not in known:
            known[identity] = Searched(dict(zip(_NAMES, row, strict=False), ran=False))
        if attempt[0] is not None:
            tried[identity].append(attempt)
    for identity, attempts in tried.items():
        attempts.sort(reverse=True)  # the newest first; their numbers differ
        known[identity].references += [reference for _, _, reference, _ in attempts]
        known[identity].answers += [answer for _, answer, _, _ in attempts if answer is not None]
        known[identity].row["ran"] = any(ran for *_, ran in attempts)
    return {identity: known[identity] for identity in asked if identity in known}


def _bodies(effects: Iterable[Searched]) -> dict[int, str]:
    positions = [position for effect in effects for position in effect.bodies]
    return dict(sql.rows(_BODIES.format(sql.wanted("bigint")), [sql.keys(positions)])) if positions else {}


def _words(effect: Searched, bodies: Mapping[int, str]) -> Words:
    row, plan = effect.row, _plan(effect, bodies)
    texts = list(_texts(effect, bodies, plan))
    call = None if plan is None else _call(row["project_id"], row["tool"], plan, dict(texts)["arguments"])
    first, is_all = _first(texts)
    return Words(row["id"], row["project_id"], row["opened_position"], first, not is_all, effect.bodies, call, row)


def calls(plans: Mapping[int, tuple[str, str]]) -> dict[int, int]:
    """What the calls of plans are known by, by position; given are project and tool of each. Erased ones are absent."""
    bodies = sql.rows(_BODIES.format(sql.wanted("bigint")), [sql.keys(plans)]) if plans else []
    said = ((position, _said(text)) for position, text in bodies)
    return {position: _call(*plans[position], plan, lines(plan.arguments)) for position, plan in said}


def _call(project: str, tool: str, plan: _Said, arguments: str) -> int:
    """`arguments` is the text of all of them, of which some may not count."""
    meant = alike.meant(plan.arguments, plan.free_text if isinstance(plan.free_text, list) else ())
    return alike.digest(project, tool, arguments if meant is plan.arguments else lines(meant))


def _first(texts: Iterable[tuple[str, str]]) -> tuple[frozenset[str], bool]:
    """The first MOST words, and whether these are all."""
    said = [text for _label, text in texts]
    kept = distinct("\n".join(said))
    if len(kept) <= MOST:
        return kept, True
    return frozenset(islice(dict.fromkeys(word for text in said for word in cut(text)), MOST)), False


def _plan(effect: Searched, bodies: Mapping[int, str]) -> _Said | None:
    text = bodies.get(effect.row["plan_position"])
    return None if text is None else _said(text)


def _texts(effect: Searched, bodies: Mapping[int, str], plan: _Said | None) -> Iterator[tuple[str, str]]:
    row = effect.row
    yield "tool", row["tool"]
    target = dict.fromkeys([*(row[name] for name in _TARGET), *effect.references])
    yield "target", "\n".join(one for one in target if one)
    if plan is not None:
        yield "arguments", lines(plan.arguments)
    for position in effect.answers:
        if position in bodies:
            body = _said(bodies[position])
            yield "result", lines([body.result, body.detail])


def _said(text: str) -> _Said:
    try:
        return _decode(text)
    except ValueError:  # no JSON object; bodies are strictly read on arrival, so that is rare
        return _Said()


def lines(value: Any) -> str:
    """A JSON value as text: every name and every value in their order, a line for each value. null says nothing."""
    found: list[str] = []
    waiting: list[Iterator[tuple[str, Any]]] = [iter([("", value)])]  # innermost last: values may be nested deeply
    while waiting:
        for name, one in waiting[-1]:
            if isinstance(one, str):
                found.append(name + one)
            elif isinstance(one, dict):
                if name:
                    found.append(name)
                waiting.append((f"{key}: ", inner) for key, inner in one.items())
                break
            elif isinstance(one, list):
                waiting.append(zip(chain([name], repeat("")), one, strict=False))
                break
            elif isinstance(one, bool):
                found.append(f"{name}{'true' if one else 'false'}")
            elif one is not None:
                found.append(f"{name}{one}")
            elif name:
                found.append(name)
        else:
            waiting.pop()
    return "\n".join(found)
