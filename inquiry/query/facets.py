"""What else the matches have: values of fields with their counts, and how the matches lie in time.

Exact while there are few matches; of many, of the newest of them, which is said. Every click only edits the text of
the query: what stands in the box is the whole truth.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from inquiry import shown
from inquiry.query import editing
from inquiry.query.asking import COUNTED, Asked, newest_first
from inquiry.query.entities import Entity
from inquiry.query.fields import Actor, Field
from inquiry.query.kinds import Several
from inquiry.query.values import US
from sessions.models import Person

VALUES: Final = 8  # of a facet that are shown
BARS: Final = 48
_STEPS_S: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800)


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a facet. `text` is the query that has it alone; of one that stands in the query, without it."""

    value: str
    label: str
    count: int
    text: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Facet:
    """A field with its values, the most frequent first. `others` is how many values are not shown."""

    field: Field
    values: list[Value]
    others: int


@dataclass(frozen=True, slots=True)
class Bar:
    """The matches of [from_us, to_us), by what the histogram stacks by. `text` is the query narrowed to it."""

    from_us: int
    to_us: int
    parts: list[tuple[str, int]]
    count: int
    text: str


@dataclass(slots=True)
class Overview:
    """`count` matches were looked at, the newest; `more` when there are more than these."""

    count: int = 0
    more: bool = False
    facets: list[Facet] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    @property
    def highest(self) -> int:
        """The count of the fullest bar."""
        return max((bar.count for bar in self.bars), default=0)


@dataclass(slots=True)
class Seen:
    """The newest matches: how many have which value of which field (by name), the time and the shown state of each."""

    counted: dict[str, "Counter[Any]"]
    times: list[int]
    words: list[str]
    more: bool


def look(asked: Asked, known: "list[Any] | None" = None) -> Seen:
    """Look at the newest COUNTED matches: one query for each index that serves them.

    `known` are the ids of all matches, where they were found before; then it is one query.
    """
    entity = asked.entity
    chosen = [one for one in entity.fields.values() if one.facet and not isinstance(one, Several)]
    columns = {one.name: one.shows or one.path for one in chosen}
    time = entity.fields[entity.time].path
    extra = _BESIDE.get(entity.name, ())
    found, more = newest_first(asked, (*columns.values(), time, *extra), COUNTED, known)
    at = len(columns)
    split = list(columns).index(entity.split)
    words = [_word(entity, row, split, at, asked.context.now_us) for row in found]
    counted = {
        one.name: Counter(words if number == split else (row[number] for row in found))
        for number, one in enumerate(chosen)
    }
    return Seen(counted, [row[at] for row in found], words, more)


def overview(asked: Asked, known: "list[Any] | None" = None) -> Overview:
    """Facets and histogram of what `look` sees."""
    seen = look(asked, known)
    told = Overview(len(seen.times), seen.more)
    if not seen.times:
        return told
    for name, counted in seen.counted.items():
        one = asked.entity.fields[name]
        facet = _facet(asked, one, counted, names_of(asked, counted) if isinstance(one, Actor) else {})
        if facet.values:
            told.facets.append(facet)
    told.bars = _bars(asked, seen.times, seen.words, told.more)
    return told


# Columns beside the stored state that the shown one goes by.
_BESIDE: Final[dict[str, tuple[str, ...]]] = {"session": ("mode",), "effect": ("leave", "outcome", "deadline_us")}


class _Row:
    """As much of an effect or session as its shown state goes by."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def _word(entity: Entity, row: tuple[Any, ...], split: int, at: int, now_us: int) -> str:
    """The value of the field that the histogram stacks by, as pages show it."""
    if entity.name == "effect":
        leave, outcome, deadline_us = row[at + 1 : at + 4]
        shape = _Row(state=row[split], leave=leave, outcome=outcome, deadline_us=deadline_us)
        return _KEY_OF[shown.shown_state(shape, now_us)]  # type: ignore[arg-type]
    if entity.name == "session":
        return "no_end_told" if row[at + 1] == "reported" and row[split] == "running" else str(row[split])
    return str(row[split])


_KEY_OF: Final = {word: key for key, word in shown.STATES.items()}


def names_of(asked: Asked, counted: "Counter[Any]") -> dict[str, str]:
    """What people are called whom the journal knows by a pseudonym, and agents by an id."""
    project = asked.context.project
    actors = [str(actor) for actor, _ in counted.most_common(VALUES)]
    people = Person.objects.filter(pseudonym__in=actors).values_list("pseudonym", "user__username")
    robots = project.agents.values_list("id", "name") if any(one.startswith("agent:") for one in actors) else ()
    return {**dict(people), **{f"agent:{key.hex}": name for key, name in robots}}


def _facet(asked: Asked, one: Field, counted: "Counter[Any]", names: dict[str, str]) -> Facet:
    labels = names or dict(one.choices)
    total = [(value, number) for value, number in counted.most_common() if value not in ("", None)]
    standing = editing.standing(asked.query, one)
    values = []
    for value, number in total[:VALUES]:
        asks = names.get(value, str(value))
        chosen = value in standing or asks in standing
        text = editing.without(asked.query, one) if chosen else editing.narrowed(asked.query, one, asks)
        values.append(Value(str(value), labels.get(value, str(value)), number, text, chosen))
    return Facet(one, values, max(len(total) - VALUES, 0))


def _bars(asked: Asked, times: list[int], words: list[str], more: bool) -> list[Bar]:
    """At most BARS equal stretches of time, whole seconds, minutes or days, over what was looked at."""
    first = min(times) if asked.since_us is None or more else asked.since_us
    last = max(times) if asked.until_us is None or asked.until_us > max(times) else asked.until_us - 1
    first = max(min(first, min(times)), 0)  # since:0001-01-01: before that there are no bars, nor years for them
    span = last - first + 1
    step = next((s for s in _STEPS_S if span <= s * US * (BARS - 1)), 0) * US
    if not step:
        weeks = 604_800 * US
        step = -(-span // ((BARS - 1) * weeks)) * weeks
    begin = first // step * step
    number = (last - begin) // step + 1
    stacked: list[Counter[str]] = [Counter() for _ in range(number)]
    for us, word in zip(times, words, strict=True):
        stacked[(us - begin) // step][word] += 1
    order = [key for key, _ in asked.entity.fields[asked.entity.split].choices]
    bars = []
    for place, counter in enumerate(stacked):
        start = begin + place * step
        parts = sorted(counter.items(), key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order))
        text = editing.between(asked.query, asked.entity, start, start + step)
        bars.append(Bar(start, start + step, parts, counter.total(), text))
    return bars
