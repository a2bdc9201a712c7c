"""Queries as of a past moment.

Rows that changed since the moment are rebuilt from the journal and tested in plain Python; all
other rows are unchanged. Related rows are tested as of the same moment. If something is tested with
its current value, a note says so.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from inquiry.asof import exemptions, gates, replay, rows, sessions, texts, told
from inquiry.asof.cut import Cut, UnfitError, read
from inquiry.asof.replay import News
from inquiry.query.entities import ENTITIES, Entity
from inquiry.query.fields import Context, Field, Test
from inquiry.query.syntax import And, Fault, Node, Not, One, Or, Query, Scope, Term
from inquiry.words import matching as matching_words
from inquiry.words.reading import words_in
from journal import horizon
from journal.models import Entry
from sessions.models import Project

# Finds the rows that changed since a cut, by entity; then, the functions that rebuild them.
CHANGED: Final[dict[str, Callable[[UUID, Cut, News | None], frozenset[UUID]]]] = {
    "effect": replay.changed_effects,
    "session": replay.changed_sessions,
    "gate": replay.changed_gates,
    "exemption": replay.changed_exemptions,
}
_MAKE_AGAIN: Final[dict[str, Callable[[UUID, Any, Cut], dict[UUID, Any]]]] = {
    "effect": replay.effects,
    "session": sessions.sessions,
    "gate": gates.stored,
    "exemption": exemptions.exemptions,
}
MOST_MEANWHILE: Final = 100_000  # Most rows that may change while all matches are read.
TOO_MUCH: Final = "Too much changed while searching. Run the search again."


@dataclass(slots=True)
class Past:
    """The rebuilt rows (`again`) that changed since the query's moment, and the ids that match.

    Changes up to position `known_to` are included.
    """

    cut: Cut
    known_to: int
    again: dict[Any, Any] = field(default_factory=dict)
    met: list[Any] = field(default_factory=list)


def cut_of(value: One, project: Project, now_us: int) -> Cut:
    """Return the cut that `asof:` names. Raises Fault."""
    try:
        return read(value.text, project.id, now_us)
    except UnfitError as unfit:
        raise Fault(value.at, len(value.text), str(unfit)) from None


def refuse_unkept(query: Query) -> None:
    """Raise Fault at the first field of `query` that the journal does not record."""
    for known_field, name, at in named(query):
        if known_field is not None and known_field.unkept:
            raise Fault(at, len(name), f"{known_field.unkept} Remove {name} or asof:.")


def named(query: Query) -> list[tuple[Field | None, str, int]]:
    """Return every field of a condition or group, with its name and place in the text."""
    entity = ENTITIES[query.entity]
    fields = list(_names(query.condition, entity))
    if query.grouping is not None:
        figures = [
            (aggregate.field, aggregate.at + len(aggregate.function) + 1)
            for aggregate in query.grouping.aggregates
        ]
        fields += [(entity.known(name), name, at) for name, at in [*query.grouping.names, *figures]]
    return fields


def _names(node: Node | None, entity: Entity) -> Iterator[tuple[Field | None, str, int]]:
    """Return every field of a condition, with its name and place in the text."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from _names(child, entity)
    elif isinstance(node, Not):
        yield from _names(node.child, entity)
    elif isinstance(node, Scope):
        yield from _names(node.condition, ENTITIES[node.entity])
    elif isinstance(node, Term):
        yield entity.known(node.name), node.name, node.at
        for value in node.values:
            if value.form == "field" or node.name == "has":
                yield entity.known(value.text), value.text, value.at


def judge(
    query: Query,
    moment_value: One | None,
    entity: Entity,
    context: Context,
    parts: Sequence[Test],
    cut: Cut,
) -> Past:
    """Rebuild what changed since the cut and test it. Raises Fault if too much has changed."""
    past_state = Past(cut, horizon.last_position())
    if entity.name not in CHANGED:
        return past_state  # Journal entries never change.
    if not all(part.is_told for part in parts):
        context.notes.append("Conditions on related rows use their current values.")
    try:
        past_state.again = _changed_since(entity, context.project.id, cut)
    except UnfitError as unfit:
        at, length = (
            (moment_value.at, len(moment_value.text))
            if moment_value is not None
            else (0, len(query.text))
        )
        raise Fault(at, length, str(unfit)) from None
    past_state.met = matching(past_state.again, entity, context, parts)
    return past_state


def _changed_since(entity: Entity, project: UUID, cut: Cut) -> dict[UUID, Any]:
    """Return the changed rows as they were. Raises UnfitError if there are too many."""
    return again(entity, project, CHANGED[entity.name](project, cut, None), cut)


def changed_meanwhile(past: Past, entity: Entity, project: UUID) -> dict[UUID, int]:
    """Return the entity's rows that changed since the last call: ids with opening positions.

    Call it after rows were read: a row that was read in a later state then has its entry in the
    journal. Raises Fault.
    """
    if entity.name not in CHANGED or not is_news(past.known_to):
        return {}
    last = horizon.last_position()
    try:
        ids = CHANGED[entity.name](project, past.cut, News(past.known_to, MOST_MEANWHILE))
    except UnfitError:
        raise Fault(0, 0, TOO_MUCH) from None
    past.known_to = last  # Later positions may still be committed: the next call starts there.
    changed: dict[UUID, int] = {}
    for part in told.parts(ids - past.again.keys()):
        changed |= dict(entity.rows().filter(pk__in=part).values_list("pk", "opened_position"))
    return changed


def is_news(after: int) -> bool:
    """Return True if the journal has entries after that position, settled or not."""
    return Entry.objects.filter(position__gt=after).exists()


def extend(
    past: Past, ids: Collection[UUID], entity: Entity, context: Context, parts: Sequence[Test]
) -> None:
    """Add rows that changed during the read."""
    rebuilt = again_meanwhile(entity, context.project.id, ids, past.cut)
    past.again |= rebuilt
    past.met += matching(rebuilt, entity, context, parts)


def again(entity: Entity, project: UUID, ids: Collection[UUID], cut: Cut) -> dict[UUID, Any]:
    """Return the entity's rows of `ids` in the state as of `cut`."""
    return _MAKE_AGAIN[entity.name](project, ids, cut)


def again_meanwhile(
    entity: Entity, project: UUID, ids: Collection[UUID], cut: Cut
) -> dict[UUID, Any]:
    """Rebuild rows that changed during the read. Raises Fault if there are too many."""
    try:
        return again(entity, project, ids, cut)
    except UnfitError:
        raise Fault(0, 0, TOO_MUCH) from None


def matching(
    rebuilt: dict[Any, Any], entity: Entity, context: Context, parts: Sequence[Test]
) -> list[Any]:
    """Return the ids of the rebuilt rows that meet all of `parts`."""
    matching_ids = set(rebuilt)
    for part in sorted(parts, key=lambda part: part.holds is None):  # Cheap tests run first.
        matching_ids = _meeting(part, matching_ids, rebuilt, entity, context)
    return list(matching_ids)


def _meeting(
    test: Test, among: set[Any], rebuilt: dict[Any, Any], entity: Entity, context: Context
) -> set[Any]:
    """Return the ids of `among` that meet a test, evaluated in plain Python where possible."""
    if not among:
        return among
    if test.holds is not None:
        return {pk for pk in among if test.holds(rebuilt[pk])}
    if test.words:
        try:
            texts_by_id = texts.of_effects(
                context.project.id, among, Cut(context.upto or 0, context.now_us)
            )
        except UnfitError as unfit:
            raise Fault(0, 0, str(unfit)) from None
        return {
            pk
            for pk, text in texts_by_id.items()
            if matching_words.holds(words_in(text), test.words)
        }
    if test.of is None:
        matching_rows = entity.of(context.project).filter(test.q, pk__in=list(among))
        return set(matching_rows.values_list("pk", flat=True))
    how, tests = test.of
    if how == "any":
        return {pk for part in tests for pk in _meeting(part, among, rebuilt, entity, context)}
    matching_ids = among
    for part in tests:
        matching_ids = _meeting(part, matching_ids, rebuilt, entity, context)
    return among - matching_ids if how == "not" else matching_ids


def as_they_were(current_rows: list[Any], past: Past | None) -> list[Any]:
    """Return the rows with the column values of the moment."""
    return current_rows if past is None else rows.as_they_were(current_rows, past.again, past.cut)


def values_then(
    values: tuple[Any, ...], columns: Sequence[str], rebuilt_row: Any, names: "Names"
) -> tuple[Any, ...]:
    """Return a row's column values of the moment.

    `rebuilt_row` is None if the row did not change.
    """
    if rebuilt_row is None:
        return values
    return tuple(names.value(rebuilt_row, name) for name in columns)


class Names:
    """Values of rebuilt rows in columns of other rows, such as `agent__name`.

    Each value is looked up once.
    """

    def __init__(self, rebuilt: Collection[Any]) -> None:
        self._made = rebuilt
        self._known: dict[str, dict[Any, Any]] = {}

    def value(self, row: Any, path: str) -> Any:
        """Return the value at `path`: a column, or a column of a row that a column refers to."""
        first, _, rest = path.partition("__")
        if not rest:
            return getattr(row, path)
        link = row._meta.get_field(first)
        if path not in self._known:
            ids = (getattr(row_then, link.attname) for row_then in self._made)
            self._known[path] = rows.shown_of(link.related_model, ids, rest)
        return self._known[path].get(getattr(row, link.attname))
