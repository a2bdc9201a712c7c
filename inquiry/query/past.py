"""Queries as of a past moment: what has changed since is made again from facts, and judged in plain Python.

The rest stands in its tables as it stood. Rows that belong to others are asked as they stood in the same way; what of
them is told as it stands now is noted beside the answer.
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

# Which rows changed since a cut, and what makes them again.
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
MOST_MEANWHILE: Final = 100_000  # rows that change while all matches are read
TOO_MUCH: Final = "More has changed meanwhile than can be made again; ask for it anew."


@dataclass(slots=True)
class Past:
    """The moment of a query: rows that changed since as they stood (`again`), and the ids of those that match.

    `known_to` is the position up to which what changed is in there; what changes later matters to who reads on.
    """

    cut: Cut
    known_to: int
    again: dict[Any, Any] = field(default_factory=dict)
    met: list[Any] = field(default_factory=list)


def cut_of(said: One, project: Project, now_us: int) -> Cut:
    """The cut that `asof:` names. Raises Fault."""
    try:
        return read(said.text, project.id, now_us)
    except UnfitError as unfit:
        raise Fault(said.at, len(said.text), str(unfit)) from None


def refuse_unkept(query: Query) -> None:
    """Raise Fault at the first part of `query` that asks what the journal does not keep: nobody knows it as of then."""
    for known, name, at in named(query):
        if known is not None and known.unkept:
            raise Fault(at, len(name), f"{known.unkept} Leave {name} out, or ask without asof:.")


def named(query: Query) -> list[tuple[Field | None, str, int]]:
    """Every field that is asked for or grouped by, by the name it has there, and where that stands."""
    entity = ENTITIES[query.entity]
    found = list(_names(query.condition, entity))
    if query.grouping is not None:
        figures = [(one.field, one.at + len(one.function) + 1) for one in query.grouping.aggregates]
        found += [(entity.known(name), name, at) for name, at in [*query.grouping.names, *figures]]
    return found


def _names(node: Node | None, entity: Entity) -> Iterator[tuple[Field | None, str, int]]:
    """Every field that is asked for, by the name it has there, and where that stands."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from _names(child, entity)
    elif isinstance(node, Not):
        yield from _names(node.child, entity)
    elif isinstance(node, Scope):
        yield from _names(node.condition, ENTITIES[node.entity])
    elif isinstance(node, Term):
        yield entity.known(node.name), node.name, node.at
        for one in node.values:
            if one.form == "field" or node.name == "has":
                yield entity.known(one.text), one.text, one.at


def judge(query: Query, said: One | None, entity: Entity, context: Context, parts: Sequence[Test], cut: Cut) -> Past:
    """Make again what changed since, and see what of it matches. Raises Fault where too much has changed."""
    found = Past(cut, horizon.last_position())
    if entity.name not in CHANGED:
        return found  # entries never change
    if not all(part.is_told for part in parts):
        context.notes.append("What is asked here of rows that belong to others is told as those stand now.")
    try:
        found.again = _changed_since(entity, context.project.id, cut)
    except UnfitError as unfit:
        at, length = (said.at, len(said.text)) if said is not None else (0, len(query.text))
        raise Fault(at, length, str(unfit)) from None
    found.met = matching(found.again, entity, context, parts)
    return found


def _changed_since(entity: Entity, project: UUID, cut: Cut) -> dict[UUID, Any]:
    """What changed since, as it stood. Raises UnfitError where that would be too much."""
    return again(entity, project, CHANGED[entity.name](project, cut, None), cut)


def changed_meanwhile(past: Past, entity: Entity, project: UUID) -> dict[UUID, int]:
    """What changed of the entity's rows since this was last asked: ids with the positions that opened them.

    To be asked after rows were read: of whatever was read in a state of later, the entry is seen then. Raises Fault.
    """
    if entity.name not in CHANGED or not is_news(past.known_to):
        return {}
    last = horizon.last_position()
    try:
        ids = CHANGED[entity.name](project, past.cut, News(past.known_to, MOST_MEANWHILE))
    except UnfitError:
        raise Fault(0, 0, TOO_MUCH) from None
    past.known_to = last  # above it something may yet be committed: the next look begins there
    found: dict[UUID, int] = {}
    for part in told.parts(ids - past.again.keys()):
        found |= dict(entity.rows().filter(pk__in=part).values_list("pk", "opened_position"))
    return found


def is_news(after: int) -> bool:
    """Whether the journal says anything after that position: also where nothing has settled since."""
    return Entry.objects.filter(position__gt=after).exists()


def extend(past: Past, ids: Collection[UUID], entity: Entity, context: Context, parts: Sequence[Test]) -> None:
    """Take in what changed meanwhile."""
    made = again_meanwhile(entity, context.project.id, ids, past.cut)
    past.again |= made
    past.met += matching(made, entity, context, parts)


def again(entity: Entity, project: UUID, ids: Collection[UUID], cut: Cut) -> dict[UUID, Any]:
    """The entity's rows of `ids` in the state as of `cut`."""
    return _MAKE_AGAIN[entity.name](project, ids, cut)


def again_meanwhile(entity: Entity, project: UUID, ids: Collection[UUID], cut: Cut) -> dict[UUID, Any]:
    """The same of what changed while it was read. Raises Fault where that is too much."""
    try:
        return again(entity, project, ids, cut)
    except UnfitError:
        raise Fault(0, 0, TOO_MUCH) from None


def matching(then: dict[Any, Any], entity: Entity, context: Context, parts: Sequence[Test]) -> list[Any]:
    """The ids of those of the rows made again that meet all of `parts`."""
    met = set(then)
    for part in sorted(parts, key=lambda part: part.holds is None):  # what costs least, first
        met = _meeting(part, met, then, entity, context)
    return list(met)


def _meeting(test: Test, among: set[Any], then: dict[Any, Any], entity: Entity, context: Context) -> set[Any]:
    """Those of `among` that meet a test: by plain Python as far as it can tell, else by the database."""
    if not among:
        return among
    if test.holds is not None:
        return {pk for pk in among if test.holds(then[pk])}
    if test.words:
        try:
            found = texts.of_effects(context.project.id, among, Cut(context.upto or 0, context.now_us))
        except UnfitError as unfit:
            raise Fault(0, 0, str(unfit)) from None
        return {pk for pk, said in found.items() if matching_words.holds(words_in(said), test.words)}
    if test.of is None:
        there = entity.of(context.project).filter(test.q, pk__in=list(among))
        return set(there.values_list("pk", flat=True))
    how, tests = test.of
    if how == "any":
        return {pk for one in tests for pk in _meeting(one, among, then, entity, context)}
    met = among
    for one in tests:
        met = _meeting(one, met, then, entity, context)
    return among - met if how == "not" else met


def as_they_were(found: list[Any], past: Past | None) -> list[Any]:
    """`found`, in whose columns stands what stood there then."""
    return found if past is None else rows.as_they_were(found, past.again, past.cut)


def values_then(values: tuple[Any, ...], columns: Sequence[str], then: Any, names: "Names") -> tuple[Any, ...]:
    """`values` of a row's columns with those that it had `then`. None: nothing changed."""
    if then is None:
        return values
    return tuple(names.value(then, name) for name in columns)


class Names:
    """What rows made again say in columns of other rows, as `agent__name`: looked up once for all of them."""

    def __init__(self, made: Collection[Any]) -> None:
        self._made = made
        self._known: dict[str, dict[Any, Any]] = {}

    def value(self, row: Any, path: str) -> Any:
        """What `path`, as the ORM names it from the row, leads to: a column, or one of a row that a column names."""
        first, _, rest = path.partition("__")
        if not rest:
            return getattr(row, path)
        link = row._meta.get_field(first)
        if path not in self._known:
            ids = (getattr(one, link.attname) for one in self._made)
            self._known[path] = rows.shown_of(link.related_model, ids, rest)
        return self._known[path].get(getattr(row, link.attname))
