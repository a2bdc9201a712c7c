"""Extract the searchable text of effects: tool, target, arguments, results, the agent's reason.

Keys, order keys and other fields that an agent sent with them are not searchable.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any, Final
from uuid import UUID

import msgspec

from db import raw_sql
from investigation.fulltext import call_digest
from investigation.fulltext.tokenizer import distinct_words, tokenize

MAX_EFFECT_WORDS: Final = 2_000  # Words stored per effect, the first in the order of `texts`.
MAX_ATTEMPTS_READ: Final = 20  # Newest attempts whose answers are read.
REASON_LABEL: Final = "agent’s reason"
EFFECTS_AT_ONCE: Final = 100  # Effects whose bodies are in memory together.
_TARGET: Final = ("repository", "ref", "environment", "resource", "external_reference")
# Columns for investigation/fulltext/duplicate_index.py.
_COMPARED: Final = (
    "session_id",
    "repository_id",
    "intent_digest",
    "attempt_count",
    "policy_tool_class",
)
_NAMES: Final = (
    "id",
    "project_id",
    "opened_position",
    "plan_position",
    "tool",
    *_TARGET,
    *_COMPARED,
)
# Plain SQL: Django's share of the read was half of the index's total time.
_EFFECTS: Final = (
    "SELECT CAST(effect.id AS text), CAST(effect.project_id AS text), effect.opened_position,"
    " effect.plan_position, effect.tool, repository.name, effect.ref, effect.environment,"
    " effect.resource, effect.external_reference, CAST(effect.session_id AS text),"
    " CAST(effect.repository_id AS text), effect.intent_digest, effect.attempt_count,"
    " effect.policy_tool_class,"
    " attempt.number, attempt.answer_position, attempt.external_reference,"
    # An attempt that the agent's own harness rejected before dispatch never ran.
    " attempt.dispatched_mark <> '' OR attempt.acknowledged_mark <> ''"
    " OR attempt.failure_reason <> 'rejected'"
    " FROM {} CROSS JOIN ledger_effect effect"
    " LEFT JOIN accounts_repository repository ON repository.id = effect.repository_id"
    " LEFT JOIN ledger_attempt attempt ON attempt.effect_id = effect.id"
    f" AND attempt.number > effect.attempt_count - {MAX_ATTEMPTS_READ} WHERE effect.id = wanted.key"
)
_BODIES: Final = (
    "SELECT body.entry_id, body.text FROM {} CROSS JOIN journal_body body"
    " WHERE body.entry_id = wanted.key"
)


class _SearchedBody(msgspec.Struct):
    """The searchable fields of a body; all others are skipped."""

    arguments: Any = None
    result: Any = None
    detail: Any = None
    free_text: Any = None
    why: Any = None


_decode: Final = msgspec.json.Decoder(_SearchedBody).decode


@dataclass(frozen=True, slots=True)
class EffectText:
    """The words of one effect.

    `bodies` are the positions of the entries whose bodies were read or missing. Both ids are text,
    as plain SQL returns them. `row` has the columns of `SearchableEffect`.
    """

    effect: str
    project: str
    position: int
    words: frozenset[str]
    cut_short: bool = False  # The effect has more than MAX_EFFECT_WORDS words.
    bodies: tuple[int, ...] = ()
    call: int | None = (
        # Digest of the plan's call (investigation/fulltext/call_digest.py), or None without a plan.
        None
    )
    row: Mapping[str, Any] = field(default_factory=dict)
    arguments: Any = None  # Of the plan, as sent.


@dataclass(slots=True)
class SearchableEffect:
    """The searchable values of one effect by _NAMES, and the positions of its plan and answers."""

    row: dict[str, Any]
    references: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    @property
    def bodies(self) -> tuple[int, ...]:
        plan = self.row["plan_position"]
        return (*([] if plan is None else [plan]), *self.answers)


def extract_words(effects: Iterable[UUID | str]) -> list[EffectText]:
    """Return the words of each effect, in the order given, without unknown ids.

    Two queries per hundred effects.
    """
    return [
        effect_words
        for _part, part_words, _characters in extract_words_in_parts(effects)
        for effect_words in part_words
    ]


def extract_words_in_parts(
    effects: Iterable[UUID | str],
) -> Iterator[tuple[list[UUID | str], list[EffectText], int]]:
    """Yield the effects in parts: the ids, their words, and the characters of their bodies."""
    remaining_ids = iter(effects)
    while part := list(islice(remaining_ids, EFFECTS_AT_ONCE)):
        loaded = load_searchable(part)
        bodies = _load_bodies(loaded.values())
        yield (
            part,
            [extract_effect_words(effect, bodies) for effect in loaded.values()],
            sum(map(len, bodies.values())),
        )


def load_texts(effects: Sequence[UUID]) -> dict[UUID, list[tuple[str, str]]]:
    """Return the searchable texts of a few effects by id, as pairs of label and agent text."""
    return load_effect_texts(
        {UUID(identity): effect for identity, effect in load_searchable(effects).items()}
    )


def load_effect_texts(loaded: Mapping[UUID, SearchableEffect]) -> dict[UUID, list[tuple[str, str]]]:
    """Return the texts of a few effects that were loaded in another way. One query."""
    bodies = _load_bodies(loaded.values())
    return {
        identity: list(_extract_texts(effect, bodies, _parse_plan(effect, bodies)))
        for identity, effect in loaded.items()
    }


def words_of_texts(texts: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the searchable words of these texts."""
    return _take_first_words(texts)[0]


def load_searchable(effects: Sequence[UUID | str]) -> dict[str, SearchableEffect]:
    """Load what is searchable of each effect, without bodies, by ids as text in the order given.

    One query.
    """
    loaded: dict[str, SearchableEffect] = {}
    attempts_by_id: defaultdict[str, list[tuple[int, int | None, str, bool]]] = defaultdict(list)
    ids = [
        effect if isinstance(effect, str) else raw_sql.uuid_as_cast_text(effect)
        for effect in effects
    ]
    for row in raw_sql.fetch_rows(
        _EFFECTS.format(raw_sql.wanted_table("uuid")), [raw_sql.to_array_parameter(ids)]
    ):
        identity, attempt = row[0], row[len(_NAMES) :]
        if identity not in loaded:
            loaded[identity] = SearchableEffect(dict(zip(_NAMES, row, strict=False), ran=False))
        if attempt[0] is not None:
            attempts_by_id[identity].append(attempt)
    for identity, attempts in attempts_by_id.items():
        attempts.sort(reverse=True)  # The newest first; attempt numbers are unique.
        loaded[identity].references += [reference for _, _, reference, _ in attempts]
        loaded[identity].answers += [answer for _, answer, _, _ in attempts if answer is not None]
        loaded[identity].row["ran"] = any(ran for *_, ran in attempts)
    return {identity: loaded[identity] for identity in ids if identity in loaded}


def _load_bodies(effects: Iterable[SearchableEffect]) -> dict[int, str]:
    positions = [position for effect in effects for position in effect.bodies]
    return (
        dict(
            raw_sql.fetch_rows(
                _BODIES.format(raw_sql.wanted_table("bigint")),
                [raw_sql.to_array_parameter(positions)],
            )
        )
        if positions
        else {}
    )


def build_searchable(
    effect: Any, attempts: Iterable[Any], repository: str | None
) -> SearchableEffect:
    """Return what is searchable of an effect that was folded from the journal."""
    newest = sorted(attempts, key=lambda attempt: -attempt.number)[:MAX_ATTEMPTS_READ]
    names = ("opened_position", "plan_position", "tool", *_TARGET[1:])
    row = {name: getattr(effect, name) for name in names} | {"repository": repository}
    ids = {name: raw_sql.uuid_as_cast_text(getattr(effect, name)) for name in _NAMES[:2]}
    return SearchableEffect(
        ids | row,
        [attempt.external_reference for attempt in newest],
        [attempt.answer_position for attempt in newest if attempt.answer_position is not None],
    )


def extract_effect_words(effect: SearchableEffect, bodies: Mapping[int, str]) -> EffectText:
    """Return the words of one effect, given the bodies that exist by position."""
    row, plan = effect.row, _parse_plan(effect, bodies)
    texts = list(_extract_texts(effect, bodies, plan))
    call = (
        None
        if plan is None
        else _compute_call_digest(row["project_id"], row["tool"], plan, dict(texts)["arguments"])
    )
    first, is_all = _take_first_words(texts)
    return EffectText(
        row["id"],
        row["project_id"],
        row["opened_position"],
        first,
        not is_all,
        effect.bodies,
        call,
        row,
        None if plan is None else plan.arguments,
    )


def call_digests(plans: Mapping[int, tuple[str, str]]) -> dict[int, int]:
    """Return the call digests of plans by position, given the project and tool of each.

    Erased plans are absent.
    """
    bodies = (
        raw_sql.fetch_rows(
            _BODIES.format(raw_sql.wanted_table("bigint")), [raw_sql.to_array_parameter(plans)]
        )
        if plans
        else []
    )
    bodies_by_position = ((position, _parse_body(text)) for position, text in bodies)
    return {
        position: _compute_call_digest(*plans[position], plan, json_to_lines(plan.arguments))
        for position, plan in bodies_by_position
    }


def _compute_call_digest(project: str, tool: str, plan: _SearchedBody, arguments: str) -> int:
    """`arguments` is the text of all arguments, some of which may not count."""
    counted_arguments = call_digest.defining_arguments(
        plan.arguments, plan.free_text if isinstance(plan.free_text, list) else ()
    )
    return call_digest.hash_call(
        project,
        tool,
        arguments if counted_arguments is plan.arguments else json_to_lines(counted_arguments),
    )


def _take_first_words(texts: Iterable[tuple[str, str]]) -> tuple[frozenset[str], bool]:
    """Return the first MAX_EFFECT_WORDS words, and whether these are all."""
    all_texts = [text for _label, text in texts]
    distinct_found = distinct_words("\n".join(all_texts))
    if len(distinct_found) <= MAX_EFFECT_WORDS:
        return distinct_found, True
    return frozenset(
        islice(
            dict.fromkeys(word for text in all_texts for word in tokenize(text)), MAX_EFFECT_WORDS
        )
    ), False


def _parse_plan(effect: SearchableEffect, bodies: Mapping[int, str]) -> _SearchedBody | None:
    text = bodies.get(effect.row["plan_position"])
    return None if text is None else _parse_body(text)


def _extract_texts(
    effect: SearchableEffect, bodies: Mapping[int, str], plan: _SearchedBody | None
) -> Iterator[tuple[str, str]]:
    row = effect.row
    yield "tool", row["tool"]
    target = dict.fromkeys([*(row[name] for name in _TARGET), *effect.references])
    yield "target", "\n".join(value for value in target if value)
    if plan is not None:
        yield "arguments", json_to_lines(plan.arguments)
        if isinstance(plan.why, str):
            yield REASON_LABEL, plan.why
    for position in effect.answers:
        if position in bodies:
            body = _parse_body(bodies[position])
            yield "result", json_to_lines([body.result, body.detail])


def _parse_body(text: str) -> _SearchedBody:
    try:
        return _decode(text)
    except ValueError:  # Not a JSON object. Rare: bodies are validated on arrival.
        return _SearchedBody()


def json_to_lines(value: Any) -> str:
    """Return a JSON value as text: names and values in order, one line for each value.

    null is skipped.
    """
    text_lines: list[str] = []
    # The innermost is last: values may be nested deeply.
    stack: list[Iterator[tuple[str, Any]]] = [iter([("", value)])]
    while stack:
        for name, item in stack[-1]:
            if isinstance(item, str):
                text_lines.append(name + item)
            elif isinstance(item, dict):
                if name:
                    text_lines.append(name)
                stack.append((f"{key}: ", inner) for key, inner in item.items())
                break
            elif isinstance(item, list):
                stack.append(zip(chain([name], repeat("")), item, strict=False))
                break
            elif isinstance(item, bool):
                text_lines.append(f"{name}{'true' if item else 'false'}")
            elif item is not None:
                text_lines.append(f"{name}{item}")
            elif name:
                text_lines.append(name)
        else:
            stack.pop()
    return "\n".join(text_lines)
