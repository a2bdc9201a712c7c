"""What may follow in the box: fields, operators and values that fit the place of the cursor, nearest first.

Reads text that is not a query yet, so it goes by what stands before the cursor alone and never faults. Values are the
project's own; of texts, those of its newest rows.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from inquiry import shown
from inquiry.query import editing, grouping, values
from inquiry.query.characters import MOST_CHARACTERS
from inquiry.query.conditions import QUANTIFIERS
from inquiry.query.entities import DEFAULT, ENTITIES, NAMES, Entity
from inquiry.query.fields import Actor, Field, Text
from inquiry.query.kinds import Handle, Name, Ordered, Several
from inquiry.query.stages import FUNCTIONS
from journal.models import Entry
from sessions.models import Project

MOST: Final = 12
_RECENT: Final = 1_000  # newest rows whose values are offered
_NAMES: Final = 500  # names that are looked through
_PSEUDO: Final = {
    "since": f"that moment or later: {values.MOMENTS}",
    "until": "before that moment",
    "asof": "as it stood at a moment: a time, an age or #position",
    "is": "what it is, as is:unknown",
    "has": "there is a value, as has:repository",
}
_AGES: Final = (("1h", "the last hour"), ("24h", "the last day"), ("7d", "the last week"), ("30d", "the last 30 days"))
_LENGTHS: Final = ("500ms", "2s", "10m", "1h")
_SCOPED: Final = re.compile(r"\b(any|all|none|count)$")
_OPENED: Final = re.compile(r"\s*([a-z]+)\s*:")
_PART: Final = re.compile(r"-?([A-Za-z_][A-Za-z0-9_]*):(>=|<=|=|>|<)?(.*)", re.DOTALL)
_REST: Final = re.compile(r"[^\s()\[\]|\",:]*")
_INSIDE: Final = re.compile(r"(min|max|avg|sum|distinct|p50|p90|p95|p99)\(\s*(\w*)$")
_GROUPED: Final = re.compile(r"\s*group\s+(?:\w+\s*,\s*)*(\w*)$")


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that may stand there: what is put in, and a few words about it. `text` may be an agent's."""

    text: str
    help: str = ""


@dataclass(slots=True)
class Completion:
    """`options` may take the place of the query's characters from `at` (counted from 0) up to `end`; `hint` says what
    is expected there.
    """

    at: int
    end: int
    options: list[Option] = field(default_factory=list)
    hint: str = ""


@dataclass(slots=True)
class _Place:
    """Where the cursor stands: in which entity's conditions, and where the part under it began."""

    entity: Entity
    start: int
    inside: str = ""  # "seq", "scope" (before its colon), "stage"; "" among conditions
    in_list: bool = False
    listed: int = 0  # where the value of a list that the cursor is in began


def complete(text: str, at: int, project: Project) -> Completion:
    """What may stand at character `at` of `text`."""
    text = text[:MOST_CHARACTERS]
    at = max(0, min(at, len(text)))
    rest = _REST.match(text, at)
    end = rest.end() if rest else at
    place = _place(text[:at])
    part = text[place.start : at]
    if place.inside == "stage":
        return _stage(text[place.start : at], place, at, end)
    if place.inside == "seq":
        begun = part.lstrip("!").lstrip()
        kinds = _seen(ENTITIES["event"], ENTITIES["event"].fields["kind"], project)
        return Completion(at - len(begun), end, _nearest(begun, kinds), "A kind of entry, as effect.dispatched.")
    if place.inside == "scope":
        begun = part.strip()
        scopes = [Option(f"{name}: ", ENTITIES[name].help) for name in place.entity.scopes]
        return Completion(at - len(begun), end, _nearest(begun, scopes), "What it looks at.")
    named = _PART.fullmatch(part)
    if named is None:
        return _names(text[:at], part.lstrip("-"), place, at, end + (text[end : end + 1] == ":"))
    value = text[place.listed : at].lstrip() if place.in_list else named[3].rpartition("..")[2]
    found = _values_of(named[1], value, place, project)
    if found is None:
        return _misnamed(named[1], place, at - len(part.lstrip("-")))
    options, hint = found
    after = " " if at == len(text) and not place.in_list else ""
    compares = value.startswith(("@", "!@"))
    offered = [
        Option((one.text if compares else editing.quoted(one.text)) + after, one.help)
        for one in _nearest(value.removeprefix('"'), options)
    ]
    return Completion(at - len(value), end, offered, hint)


def _place(text: str) -> _Place:
    """Read from the left as far as the cursor, without judging."""
    opened = re.match(r"\s*([a-z]+)(?=[\s|])", text)
    entity = ENTITIES[opened[1] if opened and opened[1] in NAMES else DEFAULT]
    stack: list[_Place] = []
    here = _Place(entity, opened.end() if opened and opened[1] in NAMES else 0)
    number, quoted = here.start, False
    while number < len(text):
        sign = text[number]
        number += 1
        if quoted:
            number += sign == "\\"
            quoted = sign != '"'
        elif sign == '"':
            quoted = True
        elif sign == "(" and here.inside != "stage":
            stack.append(here)
            before, inner = text[: number - 1], _OPENED.match(text, number)
            if before.endswith("seq"):
                here = _Place(here.entity, number, "seq")
            elif _SCOPED.search(before) and inner and inner[1] in NAMES:
                here, number = _Place(ENTITIES[inner[1]], inner.end()), inner.end()
            else:
                here = _Place(here.entity, number, "scope" if _SCOPED.search(before) else "")
        elif sign == ")" and stack:
            here = stack.pop()
            here.start = number
        elif sign == "|" and not stack:
            here = _Place(here.entity, number, "stage")
        elif sign == "[":
            here.in_list, here.listed = True, number
        elif sign == "]":
            here.in_list = False
        elif sign == "," and here.in_list:
            here.listed = number
        elif sign.isspace() and not here.in_list and here.inside in ("", "seq"):
            here.start = number
    return here


def _names(before: str, begun: str, place: _Place, at: int, end: int) -> Completion:
    entity = place.entity
    options = [Option(f"{one.name}:", one.help or one.takes()) for one in entity.fields.values()]
    options += [Option(f"{name}:", words) for name, words in _PSEUDO.items()]
    if entity.scopes:
        options += [Option(f"{which}(", f"of its {', '.join(entity.scopes)} rows") for which in QUANTIFIERS]
    if entity.events:
        options.append(Option("seq(", "entries one after another, or missing"))
    hint = f"A field of {'an' if entity.name[0] in 'aeiou' else 'a'} {entity.name}, or an operator."
    if not before.strip() or before.strip() == begun:
        options = [*(Option(f"{name} ", ENTITIES[name].help) for name in NAMES), *options]
        hint = "What is asked for, or a field of an effect."
    if before.strip() and not begun:
        options += [
            Option("OR ", "either side"),
            Option("NOT ", "turned round"),
            Option("| group ", "count by a field"),
        ]
    return Completion(at - len(begun), end, _nearest(begun, options), hint)


def _stage(text: str, place: _Place, at: int, end: int) -> Completion:
    entity = place.entity
    grouped, inside = _GROUPED.fullmatch(text), _INSIDE.search(text)
    if grouped:
        fields = [Option(name, entity.fields[name].label) for name in grouping.groupable(entity)]
        return Completion(at - len(grouped[1]), end, _nearest(grouped[1], fields), "Fields to group by.")
    if inside:
        ordered = [one for one in entity.fields.values() if isinstance(one, Ordered)]
        fields = [Option(f"{one.name})", one.label) for one in ordered]
        return Completion(at - len(inside[2]), end, _nearest(inside[2], fields), "A number, time or length.")
    word = re.search(r"\w*$", text)
    begun = word[0] if word else ""
    options = [Option("group ", "the fields to group by"), Option("count ", "how many rows")]
    options += [Option(f"{name}(", "of a field") for name in FUNCTIONS if name != "count"]
    options.append(Option("top ", "so many groups"))
    return Completion(at - len(begun), end, _nearest(begun, options), "What is asked of the groups.")


def _values_of(name: str, begun: str, place: _Place, project: Project) -> tuple[list[Option], str] | None:
    """Values of what is called `name`, and what it takes; None for no field."""
    entity = place.entity
    found = entity.known(name)
    if name == "is":
        return [Option(flag.name, flag.help) for flag in entity.flags.values()], "What it is."
    if name == "has":
        return [Option(one.name, one.label) for one in entity.fields.values()], "A field that has a value."
    if name in ("since", "until", "asof"):
        return [Option(*age) for age in _AGES], f"It is {values.MOMENTS}."
    if found is None:
        return None
    if begun.startswith(("@", "!@")):
        sign = begun.partition("@")[0] + "@"
        alike = [one.name for one in entity.fields.values() if one.kind == found.kind and one is not found]
        return [Option(sign + one) for one in alike], f"Another field, to compare {found.label.lower()} with."
    return _of_field(found, entity, project), f"{found.label}: {found.takes()}."


def _misnamed(name: str, place: _Place, at: int) -> Completion:
    close = difflib.get_close_matches(name.lower(), place.entity.fields, n=3, cutoff=0.5)
    article = "an" if place.entity.name[0] in "aeiou" else "a"
    hint = f"“{name[:40]}” is no field of {article} {place.entity.name}."
    return Completion(at, at + len(name) + 1, [Option(f"{one}:") for one in close], hint)


def _of_field(found: Field, entity: Entity, project: Project) -> list[Option]:
    if isinstance(found, Several):
        inner = found.inner
        return _of_field(inner, entity, project) if inner is not None and not isinstance(inner, Text) else []
    if found.choices:
        return [Option(key, "" if word == key else word) for key, word in found.choices]
    if isinstance(found, Name) and found.known is not None:
        return [Option(name) for name in found.known(project).values_list(found.column, flat=True)[:_NAMES]]
    if isinstance(found, Handle):
        return _newest_sessions(project) if found.called == "a session" else []
    if isinstance(found, Actor):
        people = ENTITIES["gate"].fields["requester"]
        agents = ENTITIES["session"].fields["agent"]
        return [*_of_field(people, entity, project), *_of_field(agents, entity, project), Option("gatebook")]
    if found.kind == "time":
        return [Option(*age) for age in _AGES]
    if found.kind == "length":
        return [Option(one) for one in _LENGTHS]
    if not isinstance(found, Text):
        return []
    options = _seen(entity, found, project)
    if found.name == "tool":
        options += [Option(name) for name in project.tools.order_by("name").values_list("name", flat=True)[:_NAMES]]
    return options


def _newest_sessions(project: Project) -> list[Option]:
    newest = project.sessions.order_by("-opened_position")[: MOST * 4]
    return [Option(str(one), f"{one.title or one.key}, {shown.shown_status(one)}") for one in newest]


def _seen(entity: Entity, found: Field, project: Project) -> list[Option]:
    """What the newest rows have in a column, the most frequent first."""
    rows: Any = Entry.objects.filter(project=project.id) if entity.name == "event" else entity.of(project)
    order = "-position" if entity.name == "event" else "-opened_position"
    told = Counter(value for value in rows.order_by(order).values_list(found.path, flat=True)[:_RECENT] if value)
    return [Option(value) for value, _ in told.most_common()]


def _nearest(begun: str, options: Iterable[Option]) -> list[Option]:
    """At most MOST, in this order: what begins so, what holds it, what looks like it."""
    known: dict[str, Option] = {}
    for one in options:
        known.setdefault(one.text, one)
    if not begun:
        return list(known.values())[:MOST]
    small = begun.lower()
    first = [text for text in known if text.lower().startswith(small)]
    then = [text for text in known if small in text.lower() and text not in first]
    found = [*first, *then] or difflib.get_close_matches(begun, known, MOST, 0.6)
    return [known[text] for text in found[:MOST]]


__all__ = ["MOST", "Completion", "Option", "complete"]
