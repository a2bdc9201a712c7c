"""Autocompletion: fields, operators and values that fit at the cursor, best match first.

Incomplete queries are expected, so only the text before the cursor is read and nothing raises.
Values are those of the project with their counts in its newest rows; for text fields, those of
these rows.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from accounts.models import Project
from display import display_state
from investigation.fulltext import field_index
from investigation.query import docs, edit, grouping
from investigation.query.entity_registry import DEFAULT, ENTITIES, NAMES, Entity
from investigation.query.fields.types import (
    Actor,
    Field,
    Handle,
    MultiValue,
    NamedRow,
    Ordered,
    Text,
)
from investigation.query.parser import values
from investigation.query.parser.query_parser import (
    DECLARED_PREFIX,
    FUNCTIONS,
    MAX_CHARACTERS,
    NAME,
    QUANTIFIERS,
)
from investigation.query.recent_values import RECENT_ROWS, count_recent_values
from investigation.query.registry.declared_fields import DeclaredField, list_recent_values

MAX_OPTIONS: Final = 12
_NAME_LIMIT: Final = 500  # Most names that are searched.
_PSEUDO: Final = {
    "since": f"at this time or later: {values.MOMENTS}",
    "until": "before this time",
    "asof": "state at an earlier moment: a time, an age or #position",
    "is": "a condition, such as is:unknown",
    "has": "the field has a value, such as has:repository",
}
_AGES: Final = (
    ("1h", "the last hour"),
    ("24h", "the last day"),
    ("7d", "the last week"),
    ("30d", "the last 30 days"),
)
_LENGTHS: Final = ("500ms", "2s", "10m", "1h")
_SCOPED: Final = re.compile(r"\b(any|all|none|count)$")
_OPENED: Final = re.compile(r"\s*([a-z]+)\s*:")
_PART: Final = re.compile(rf"-?({NAME.pattern}):(>=|<=|=|>|<)?(.*)", re.DOTALL)
_REST: Final = re.compile(r"[^\s()\[\]|\",:]*")
_INSIDE: Final = re.compile(r"(min|max|avg|sum|distinct|p50|p90|p95|p99)\(\s*(\w*)$")
_GROUPED: Final = re.compile(r"\s*group\s+(?:\w+\s*,\s*)*(\w*)$")


@dataclass(frozen=True, slots=True)
class Option:
    """A suggestion: the text to insert and a short description. `text` may come from an agent."""

    text: str
    help: str = ""


@dataclass(slots=True)
class Completion:
    """Suggestions that replace the query's characters from `at` (counted from 0) to `end`.

    `hint` describes what is expected there.
    """

    at: int
    end: int
    options: list[Option] = field(default_factory=list)
    hint: str = ""


@dataclass(slots=True)
class _Place:
    """The cursor's context: the entity whose conditions it is in, and where its part starts."""

    entity: Entity
    start: int
    inside: str = ""  # "seq", "scope" (before its colon), "stage", or "" among conditions.
    in_list: bool = False
    listed: int = 0  # Start of the list value at the cursor.


def complete_query(text: str, at: int, project: Project) -> Completion:
    """Return suggestions for character `at` of `text`."""
    text = text[:MAX_CHARACTERS]
    at = max(0, min(at, len(text)))
    trailing = _REST.match(text, at)
    end = trailing.end() if trailing else at
    place = _find_place(text[:at])
    part = text[place.start : at]
    if place.inside == "stage":
        return _complete_stage(text[place.start : at], place, at, end)
    if place.inside == "seq":
        typed = part.lstrip("!").lstrip()
        kinds = _counted_options(ENTITIES["event"], ENTITIES["event"].fields["kind"], project)
        return Completion(
            at - len(typed), end, _rank(typed, kinds), "A kind of entry, such as effect.dispatched."
        )
    if place.inside == "scope":
        typed = part.strip()
        scopes = [Option(f"{name}: ", ENTITIES[name].help) for name in place.entity.scopes]
        return Completion(at - len(typed), end, _rank(typed, scopes), "The related rows to test.")
    named = _PART.fullmatch(part)
    if named is None:
        return _complete_names(
            text[:at], part.lstrip("-"), place, at, end + (text[end : end + 1] == ":"), project
        )
    value = text[place.listed : at].lstrip() if place.in_list else named[3].rpartition("..")[2]
    completion_values = _complete_values(named[1], value, place, project)
    if completion_values is None:
        return _complete_misnamed(named[1], place, at - len(part.lstrip("-")))
    options, hint = completion_values
    after = " " if at == len(text) and not place.in_list else ""
    compares = value.startswith(("@", "!@"))
    offered = [
        Option(
            (option.text if compares else edit.quote_if_needed(option.text)) + after, option.help
        )
        for option in _rank(value.removeprefix('"'), options)
    ]
    return Completion(at - len(value), end, offered, hint)


def _find_place(text: str) -> _Place:
    """Scan the text before the cursor without validating it."""
    opened = re.match(r"\s*([a-z]+)(?=[\s|])", text)
    entity = ENTITIES[opened[1] if opened and opened[1] in NAMES else DEFAULT]
    stack: list[_Place] = []
    place = _Place(entity, opened.end() if opened and opened[1] in NAMES else 0)
    number, quoted = place.start, False
    while number < len(text):
        character = text[number]
        number += 1
        if quoted:
            number += character == "\\"
            quoted = character != '"'
        elif character == '"':
            quoted = True
        elif character == "(" and place.inside != "stage":
            stack.append(place)
            before, inner = text[: number - 1], _OPENED.match(text, number)
            if before.endswith("seq"):
                place = _Place(place.entity, number, "seq")
            elif _SCOPED.search(before) and inner and inner[1] in NAMES:
                place, number = _Place(ENTITIES[inner[1]], inner.end()), inner.end()
            else:
                place = _Place(place.entity, number, "scope" if _SCOPED.search(before) else "")
        elif character == ")" and stack:
            place = stack.pop()
            place.start = number
        elif character == "|" and not stack:
            place = _Place(place.entity, number, "stage")
        elif character == "[":
            place.in_list, place.listed = True, number
        elif character == "]":
            place.in_list = False
        elif character == "," and place.in_list:
            place.listed = number
        elif character.isspace() and not place.in_list and place.inside in ("", "seq"):
            place.start = number
    return place


def _complete_names(
    before: str, typed: str, place: _Place, at: int, end: int, project: Project
) -> Completion:
    entity = place.entity
    options = [
        Option(
            f"{known_field.name}:",
            f"{known_field.label}, such as {docs.example_condition(entity, known_field)}",
        )
        for known_field in entity.fields.values()
    ]
    if entity.find_declared is not None:
        options += [
            Option(f"{DECLARED_PREFIX}{name}:", "declared for the arguments of tools")
            for name in field_index.list_declared_names(project.id)
        ]
    options += [Option(f"{name}:", help_text) for name, help_text in _PSEUDO.items()]
    if entity.scopes:
        options += [
            Option(f"{quantifier}(", f"over its {', '.join(entity.scopes)} rows")
            for quantifier in QUANTIFIERS
        ]
    if entity.events:
        options.append(Option("seq(", "entries in sequence, or missing ones"))
    hint = f"A field of {'an' if entity.name[0] in 'aeiou' else 'a'} {entity.name}, or an operator."
    if not before.strip() or before.strip() == typed:
        options = [*(Option(f"{name} ", ENTITIES[name].help) for name in NAMES), *options]
        hint = "What to search, or a field of an effect."
    if before.strip() and not typed:
        options += [
            Option("OR ", "either condition"),
            Option("NOT ", "not this condition"),
            Option("| group ", "count by a field"),
        ]
    return Completion(at - len(typed), end, _rank(typed, options), hint)


def _complete_stage(text: str, place: _Place, at: int, end: int) -> Completion:
    entity = place.entity
    grouped, inside = _GROUPED.fullmatch(text), _INSIDE.search(text)
    if grouped:
        fields = [
            Option(name, entity.fields[name].label) for name in grouping.groupable_fields(entity)
        ]
        return Completion(
            at - len(grouped[1]), end, _rank(grouped[1], fields), "Fields to group by."
        )
    if inside:
        ordered = [
            known_field
            for known_field in entity.fields.values()
            if isinstance(known_field, Ordered)
        ]
        fields = [Option(f"{known_field.name})", known_field.label) for known_field in ordered]
        return Completion(
            at - len(inside[2]), end, _rank(inside[2], fields), "A number, time or length."
        )
    word = re.search(r"\w*$", text)
    typed = word[0] if word else ""
    options = [Option("group ", "the fields to group by"), Option("count ", "how many rows")]
    options += [Option(f"{name}(", "of a field's values") for name in FUNCTIONS if name != "count"]
    options.append(Option("top ", "limit the number of groups"))
    return Completion(
        at - len(typed), end, _rank(typed, options), "What to compute for each group."
    )


def _complete_values(
    name: str, typed: str, place: _Place, project: Project
) -> tuple[list[Option], str] | None:
    """Return the values of the field `name` and a hint, or None if there is no such field."""
    entity = place.entity
    known_field = entity.find_field(name)
    if name == "is":
        return [Option(flag.name, flag.help) for flag in entity.flags.values()], "A condition."
    if name == "has":
        return [
            Option(other_field.name, other_field.label) for other_field in entity.fields.values()
        ], "A field that has a value."
    if name in ("since", "until", "asof"):
        return [Option(*age) for age in _AGES], f"Use {values.MOMENTS}."
    if known_field is None:
        return None
    if typed.startswith(("@", "!@")):
        sign = typed.partition("@")[0] + "@"
        alike = [
            other_field.name
            for other_field in entity.fields.values()
            if other_field.kind == known_field.kind and other_field is not known_field
        ]
        return [
            Option(sign + other_field) for other_field in alike
        ], f"Another field to compare with {known_field.label.lower()}."
    return _field_options(
        known_field, entity, project
    ), f"{known_field.label}: {known_field.takes()}."


def _complete_misnamed(name: str, place: _Place, at: int) -> Completion:
    close = difflib.get_close_matches(name.lower(), place.entity.fields, n=3, cutoff=0.5)
    article = "an" if place.entity.name[0] in "aeiou" else "a"
    hint = f"“{name[:40]}” is not a field of {article} {place.entity.name}."
    return Completion(
        at, at + len(name) + 1, [Option(f"{field_name}:") for field_name in close], hint
    )


def _field_options(known_field: Field, entity: Entity | None, project: Project) -> list[Option]:
    """Return the values of a field, counted in the rows of `entity` if the field is of these."""
    if isinstance(known_field, MultiValue):
        inner = known_field.inner
        return (
            _field_options(inner, None, project)
            if inner is not None and not isinstance(inner, Text)
            else []
        )
    if isinstance(known_field, DeclaredField):
        return [Option(value) for value in list_recent_values(project.id, known_field)]
    if known_field.choices:
        return _counted_options(entity, known_field, project, dict(known_field.choices))
    if isinstance(known_field, NamedRow) and known_field.candidates is not None:
        names = known_field.candidates(project).values_list(known_field.column, flat=True)
        return _counted_options(
            entity, known_field, project, dict.fromkeys(names[:_NAME_LIMIT], "")
        )
    if isinstance(known_field, Handle):
        is_session = known_field.called == "a session"
        return _session_options(entity, known_field, project) if is_session else []
    if isinstance(known_field, Actor):
        people = ENTITIES["gate"].fields["requester"]
        agents = ENTITIES["session"].fields["agent"]
        return [
            *_field_options(people, None, project),
            *_field_options(agents, None, project),
            Option("gatebook"),
        ]
    if known_field.kind == "time":
        return [Option(*age) for age in _AGES]
    if known_field.kind == "length":
        return [Option(length) for length in _LENGTHS]
    if not isinstance(known_field, Text):
        return []
    known_values = (
        project.tools.order_by("name").values_list("name", flat=True)[:_NAME_LIMIT]
        if known_field.name == "tool"
        else ()
    )
    return _counted_options(entity, known_field, project, dict.fromkeys(known_values, ""))


def _session_options(entity: Entity | None, known_field: Field, project: Project) -> list[Option]:
    """Return the sessions of the newest rows, the most frequent first, then the newest ones."""
    most = MAX_OPTIONS * 4
    is_counted = entity is not None and entity.name != "session"  # Each session is one row.
    counts = _count_values(entity if is_counted else None, known_field, project)
    frequent = [pk for pk, _ in counts.most_common(most)]
    by_id = {session.pk: session for session in project.sessions.filter(pk__in=frequent)}
    newest = project.sessions.order_by("-opened_position")[:most]
    sessions = [by_id[pk] for pk in frequent if pk in by_id]
    return [
        Option(
            str(session),
            _join_help(
                _describe_count(counts[session.pk], entity),
                f"{session.title or session.key}, {display_state.derive_shown_status(session)}",
            ),
        )
        for session in (*sessions, *(session for session in newest if session.pk not in by_id))
    ]


def _counted_options(
    entity: Entity | None,
    known_field: Field,
    project: Project,
    known_values: Mapping[str, str] = MappingProxyType({}),
) -> list[Option]:
    """Return a field's values in the newest rows, the most frequent first, then `known_values`.

    `known_values` map each value to its label. A choice has no other values.
    """
    counts = _count_values(entity, known_field, project)
    frequent = [
        value
        for value, _ in counts.most_common()
        if value in known_values or not known_field.choices
    ]
    options = []
    for value in dict.fromkeys([*frequent, *known_values]):
        label = known_values.get(value, "")
        counted = _describe_count(counts[value], entity)
        options.append(Option(value, _join_help(counted, "" if label == value else label)))
    return options


def _count_values(entity: Entity | None, known_field: Field, project: Project) -> "Counter[Any]":
    return Counter() if entity is None else count_recent_values(entity, known_field, project)


def _describe_count(count: int, entity: Entity | None) -> str:
    if entity is None or not count:
        return ""
    return f"{count:,} of the newest {RECENT_ROWS:,} {entity.plural}"


def _join_help(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _rank(typed: str, options: Iterable[Option]) -> list[Option]:
    """Return at most MAX_OPTIONS options: by prefix, then by substring, else by similarity."""
    by_text: dict[str, Option] = {}
    for option in options:
        by_text.setdefault(option.text, option)
    if not typed:
        return list(by_text.values())[:MAX_OPTIONS]
    prefix = typed.lower()
    starting = [text for text in by_text if text.lower().startswith(prefix)]
    containing = [text for text in by_text if prefix in text.lower() and text not in starting]
    texts = [*starting, *containing] or difflib.get_close_matches(typed, by_text, MAX_OPTIONS, 0.6)
    return [by_text[text] for text in texts[:MAX_OPTIONS]]


__all__ = ["MAX_OPTIONS", "Completion", "Option", "complete_query"]
