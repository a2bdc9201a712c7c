"""Facets of the matches: values of fields with their counts, and a histogram over time.

The counts are exact for few matches; for many, they cover the newest ones, which the page states.
Every click edits only the text of the query.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final

from accounts.models import Person
from display import display_state
from investigation.fulltext.field_index import list_tools_with_fields
from investigation.query import edit
from investigation.query.entity_registry import Entity
from investigation.query.execute import COUNT_LIMIT, CompiledQuery, load_newest_values
from investigation.query.fields.types import Actor, Field, MultiValue
from investigation.query.parser.values import US
from investigation.query.registry.declared_fields import count_declared_values

MAX_FACET_VALUES: Final = 8  # Values shown per facet.
MAX_BARS: Final = 48
_STEPS_S: Final = (
    1,
    2,
    5,
    10,
    30,
    60,
    120,
    300,
    600,
    1800,
    3600,
    7200,
    21_600,
    43_200,
    86_400,
    172_800,
    604_800,
)


@dataclass(frozen=True, slots=True)
class FacetValue:
    """One value of a facet.

    `text` is the query limited to this value or, if the value is already selected, without it.
    """

    value: str
    label: str
    count: int
    text: str
    chosen: bool
    adds: str  # The condition that a click adds or removes.


@dataclass(frozen=True, slots=True)
class Facet:
    """A field with its values, the most frequent first. `others` counts the values not shown."""

    field: Field
    values: list[FacetValue]
    others: int


@dataclass(frozen=True, slots=True)
class Bar:
    """The matches of [from_us, to_us), split by the histogram's stacking field.

    `text` is the query narrowed to the bar's time range.
    """

    from_us: int
    to_us: int
    parts: list[tuple[str, int]]
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Facets and histogram of the newest `count` matches; `more` if there are others."""

    count: int = 0
    more: bool = False
    facets: list[Facet] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    @property
    def highest(self) -> int:
        """Return the largest count of any bar."""
        return max((bar.count for bar in self.bars), default=0)


@dataclass(frozen=True, slots=True)
class MatchSample:
    """The newest matches with their value counts, times and shown states.

    `counted` maps field names to counts. `actor_names` are the names of counted actors.
    """

    counted: dict[str, "Counter[Any]"]
    times: list[int]
    words: list[str]
    more: bool
    actor_names: dict[str, str] = field(default_factory=dict)
    declared: dict[str, "Counter[Any]"] = field(default_factory=dict)  # of declared fields
    time_name: str = ""  # the field of `times`; empty for the entity's own


def sample_matches(
    compiled: CompiledQuery, known_ids: "list[Any] | None" = None, time_name: str = ""
) -> MatchSample:
    """Read the newest COUNT_LIMIT matches: one query for each index that serves them.

    With `known_ids`, the ids of all matches, it is a single query. If tools of the project declare
    fields, one more query counts their values (`count_declared_values`). `time_name` is a computed
    time for the bars; matches without it are counted, but are in no bar.
    """
    entity = compiled.entity
    facet_fields = [
        facet_field
        for facet_field in entity.fields.values()
        if facet_field.facet and not isinstance(facet_field, MultiValue)
    ]
    shown = {
        facet_field.name: facet_field.shows or facet_field.path for facet_field in facet_fields
    }
    time_field = entity.fields[time_name or entity.time]
    computed = {_COMPUTED_TIME: time_field.compared()} if time_name else None
    time = _COMPUTED_TIME if time_name else time_field.path
    state_columns = STATE_COLUMNS.get(entity.name, ())
    effect_column = _EFFECT_COLUMNS.get(entity.name)
    tools = list_tools_with_fields(compiled.context.project.id) if effect_column else frozenset()
    columns = dict.fromkeys((*shown.values(), time, *state_columns))
    if effect_column is not None and tools:
        columns[effect_column] = None
    newest_rows, more = load_newest_values(
        compiled, tuple(columns), COUNT_LIMIT, known_ids, computed
    )
    # Column by column, because counting a column takes a third of the time of counting rows.
    values = dict(zip(columns, zip(*newest_rows, strict=True), strict=False))
    values = values or dict.fromkeys(columns, ())
    states = derive_shown_values(
        entity,
        values[shown[entity.split]],
        [values[column] for column in state_columns],
        compiled.context.now_us,
    )
    counted = {
        name: Counter(states if name == entity.split else values[column])
        for name, column in shown.items()
    }
    declared: dict[str, Counter[Any]] = {}
    if effect_column is not None and tools:
        pairs = zip(values[shown["tool"]], values[effect_column], strict=True)
        declared |= count_declared_values([effect for tool, effect in pairs if tool in tools])
    times = list(values[time])
    return MatchSample(counted, times, states, more, declared=declared, time_name=time_name)


def load_overview_sample(
    compiled: CompiledQuery, known_ids: "list[Any] | None" = None, time_name: str = ""
) -> MatchSample:
    """Read the newest matches for `build_overview`, with the names of their actors."""
    sample = sample_matches(compiled, known_ids, time_name)
    actor_names: dict[str, str] = {}
    for name, counted in sample.counted.items():
        if counted and isinstance(compiled.entity.fields[name], Actor):
            actor_names |= load_actor_names(compiled, counted)
    return replace(sample, actor_names=actor_names)


def build_overview(compiled: CompiledQuery, sample: MatchSample) -> Overview:
    """Return facets and histogram of a sample of the matches. Reads nothing."""
    if not sample.times:
        return Overview(0, sample.more)
    fields = compiled.entity.fields
    facets = [
        _build_facet(compiled, fields[name], counted, sample.actor_names)
        for name, counted in sample.counted.items()
    ]
    for name, counted in sample.declared.items():
        declared_field = compiled.entity.find_field(name)
        if declared_field is not None:
            facets.append(_build_facet(compiled, declared_field, counted, {}))
    return Overview(
        len(sample.times),
        sample.more,
        [facet for facet in facets if facet.values],
        _build_bars(compiled, sample),
    )


# Further columns that the shown state depends on.
STATE_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "session": ("mode",),
    "effect": ("permission", "outcome", "deadline_us"),
}


# The column with the effect whose declared fields count for a row.
_EFFECT_COLUMNS: Final = {"effect": "id", "gate": "effect_id"}


def derive_shown_values(
    entity: Entity, values: Sequence[Any], columns: Sequence[Sequence[Any]], now_us: int
) -> list[str]:
    """Return the values of the histogram's stacking field as pages show them.

    `columns` are the entity's STATE_COLUMNS of the same rows.
    """
    if entity.name == "effect":
        permissions, outcomes, deadlines = columns
        late = [us is not None and us < now_us for us in deadlines]
        kinds = list(zip(values, permissions, outcomes, late, strict=True))
        # Thousands of rows are of a few kinds.
        keys = {kind: _derive_state_key(*kind, now_us) for kind in set(kinds)}
        return [keys[kind] for kind in kinds]
    if entity.name == "session":
        return [
            "no_end_told" if mode == "reported" and value == "running" else str(value)
            for value, mode in zip(values, columns[0], strict=True)
        ]
    return [str(value) for value in values]


def _derive_state_key(state: str, permission: str, outcome: str, is_late: bool, now_us: int) -> str:
    deadline_us = now_us - 1 if is_late else None
    effect: Any = SimpleNamespace(
        state=state, permission=permission, outcome=outcome, deadline_us=deadline_us
    )
    return _STATE_KEYS[display_state.derive_shown_state(effect, now_us)]


_COMPUTED_TIME: Final = "time_of_it"
_STATE_KEYS: Final = {word: key for key, word in display_state.STATES.items()}


def load_actor_names(compiled: CompiledQuery, counted: "Counter[Any]") -> dict[str, str]:
    """Return the names of people by pseudonym and of agents by id."""
    project = compiled.context.project
    actors = [str(actor) for actor, _ in counted.most_common(MAX_FACET_VALUES)]
    people = Person.objects.filter(pseudonym__in=actors).values_list("pseudonym", "user__username")
    agents = (
        project.agents.values_list("id", "name")
        if any(actor_name.startswith("agent:") for actor_name in actors)
        else ()
    )
    return {**dict(people), **{f"agent:{key.hex}": name for key, name in agents}}


def _build_facet(
    compiled: CompiledQuery,
    facet_field: Field,
    counted: "Counter[Any]",
    actor_names: dict[str, str],
) -> Facet:
    names = actor_names if isinstance(facet_field, Actor) else {}
    labels = names or dict(facet_field.choices)
    total = [(value, number) for value, number in counted.most_common() if value not in ("", None)]
    selected = edit.selected_values(compiled.query, facet_field)
    values = []
    for value, number in total[:MAX_FACET_VALUES]:
        query_value = names.get(value, str(value))
        chosen = value in selected or query_value in selected
        text = (
            edit.remove_field(compiled.query, facet_field)
            if chosen
            else edit.narrow_to_value(compiled.query, facet_field, query_value)
        )
        adds = f"{facet_field.name}:{edit.quote_if_needed(query_value)}"
        label = labels.get(value, str(value))
        values.append(FacetValue(str(value), label, number, text, chosen, adds))
    return Facet(facet_field, values, max(len(total) - MAX_FACET_VALUES, 0))


def _build_bars(compiled: CompiledQuery, sample: MatchSample) -> list[Bar]:
    """Return at most MAX_BARS equal time ranges of matches, in whole seconds, minutes or days."""
    pairs = [
        (us, word) for us, word in zip(sample.times, sample.words, strict=True) if us is not None
    ]
    if not pairs:
        return []
    times = [us for us, _ in pairs]
    earliest, latest = min(times), max(times)
    since_us = None if sample.time_name else compiled.since_us
    until_us = None if sample.time_name else compiled.until_us
    first = earliest if since_us is None or sample.more else since_us
    last = latest if until_us is None or until_us > latest else until_us - 1
    # since:0001-01-01 would need bars before 1970, for which there are no years.
    first = max(min(first, earliest), 0)
    span = last - first + 1
    step = next((s for s in _STEPS_S if span <= s * US * (MAX_BARS - 1)), 0) * US
    if not step:
        weeks = 604_800 * US
        step = -(-span // ((MAX_BARS - 1) * weeks)) * weeks
    begin = first // step * step
    number = (last - begin) // step + 1
    stacked: list[Counter[str]] = [Counter() for _ in range(number)]
    for (index, state), count in Counter(
        [((us - begin) // step, state) for us, state in pairs]
    ).items():
        stacked[index][state] = count
    order = [key for key, _ in compiled.entity.fields[compiled.entity.split].choices]
    plain = edit.parse_without_time(compiled.query, compiled.entity, sample.time_name)
    bars = []
    for index, counter in enumerate(stacked):
        start = begin + index * step
        parts = sorted(
            counter.items(),
            key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order),
        )
        text = edit.add_time_range(plain, start, start + step, sample.time_name)
        bars.append(Bar(start, start + step, parts, counter.total(), text))
    return bars
