"""Queries as of a past moment.

Rows that changed since the moment are rebuilt from the journal and tested in plain Python; all
other rows are unchanged. Related rows are tested as of the same moment. If something is tested with
its current value, a note says so.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from accounts.models import Project
from investigation.fulltext import word_search as matching_words
from investigation.fulltext.extract import words_of_texts
from investigation.history import (
    past_effects,
    past_entries,
    past_exemptions,
    past_gate_states,
    past_rows,
    past_sessions,
    search_text,
)
from investigation.history.moment import CutError, JournalCut, parse_cut
from investigation.history.past_effects import ChangeRange
from investigation.query.compiler import named_fields
from investigation.query.entity_registry import Entity
from investigation.query.fields.row_tests import CompileContext, RowTest
from investigation.query.parser.query_parser import Query, QueryError, QueryValue
from journal.models import Entry
from proofs import stable_position

# Finds the rows that changed since a cut, by entity; then, the functions that rebuild them.
FIND_CHANGED: Final[
    dict[str, Callable[[UUID, JournalCut, ChangeRange | None], frozenset[UUID]]]
] = {
    "effect": past_effects.find_changed_effects_since,
    "session": past_effects.find_changed_sessions,
    "gate": past_effects.find_changed_gates,
    "exemption": past_effects.find_changed_exemptions,
}
_REBUILD: Final[dict[str, Callable[[UUID, Any, JournalCut], dict[UUID, Any]]]] = {
    "effect": past_effects.rebuild_effects,
    "session": past_sessions.rebuild_sessions,
    "gate": past_gate_states.rebuild_stored_gates,
    "exemption": past_exemptions.rebuild_exemptions,
}
MAX_CHANGED_DURING_READ: Final = 100_000  # Most rows that may change while all matches are read.
TOO_MANY_CHANGES: Final = "Too much changed while searching. Run the search again."


@dataclass(frozen=True, slots=True)
class PastState:
    """The rows that changed since the query's moment, rebuilt, and the ids of those that match.

    Changes up to position `known_to` are included.
    """

    cut: JournalCut
    known_to: int
    rebuilt_rows: dict[Any, Any] = field(default_factory=dict)
    matching_ids: list[Any] = field(default_factory=list)


def resolve_asof(value: QueryValue, project: Project, now_us: int) -> JournalCut:
    """Return the cut that `asof:` names. Raises QueryError."""
    try:
        return parse_cut(value.text, project.id, now_us)
    except CutError as unfit:
        raise QueryError(value.at, len(value.text), str(unfit)) from None


def reject_unrecorded_fields(query: Query) -> None:
    """Raise QueryError at the first field of `query` that the journal does not record."""
    for known_field, name, at in named_fields(query):
        if known_field is not None and known_field.unkept:
            raise QueryError(at, len(name), f"{known_field.unkept} Remove {name} or asof:.")


def rebuild_matches(
    query: Query,
    moment_value: QueryValue | None,
    entity: Entity,
    context: CompileContext,
    parts: Sequence[RowTest],
    cut: JournalCut,
) -> PastState:
    """Rebuild what changed since the cut and test it. Raises QueryError if too much has changed."""
    known_to = load_known_position(cut)
    if entity.name not in FIND_CHANGED:
        return PastState(cut, known_to)  # Journal entries never change.
    if not all(part.works_as_of for part in parts):
        context.notes.append("Conditions on related rows use their current values.")
    try:
        again = _rebuild_changed_since(entity, context.project.id, cut)
    except CutError as unfit:
        at, length = (
            (moment_value.at, len(moment_value.text))
            if moment_value is not None
            else (0, len(query.text))
        )
        raise QueryError(at, length, str(unfit)) from None
    return PastState(
        cut, known_to, again, select_matching_ids(again, entity, context.project, cut, parts)
    )


def _rebuild_changed_since(entity: Entity, project: UUID, cut: JournalCut) -> dict[UUID, Any]:
    """Return the changed rows as they were. Raises CutError if there are too many."""
    return rebuild_rows(entity, project, FIND_CHANGED[entity.name](project, cut, None), cut)


def find_changed_during_read(
    past: PastState, entity: Entity, project: UUID
) -> tuple[PastState, dict[UUID, int]]:
    """Return the rows that changed after `past.known_to`: ids with opening positions.

    The returned state includes the changes that were found. Call this function after rows were
    read: a row that was read in a later state then has its entry in the journal. Raises QueryError.
    """
    if entity.name not in FIND_CHANGED or not has_entries_after(past.known_to):
        return past, {}
    last = load_known_position(past.cut)
    try:
        ids = FIND_CHANGED[entity.name](
            project, past.cut, ChangeRange(past.known_to, MAX_CHANGED_DURING_READ)
        )
    except CutError:
        raise QueryError(0, 0, TOO_MANY_CHANGES) from None
    changed: dict[UUID, int] = {}
    for part in past_entries.split_ids(ids - past.rebuilt_rows.keys()):
        changed |= dict(
            entity.select_all_rows().filter(pk__in=part).values_list("pk", "opened_position")
        )
    # Entries above `last` may still be written: the next call starts there.
    return replace(past, known_to=last), changed


def load_known_position(cut: JournalCut) -> int:
    """Return a position up to which everything that is read later includes each entry.

    It never waits: what it leaves out is read again.
    """
    return max(stable_position.load_stable_position(), cut.position)


def has_entries_after(after: int) -> bool:
    """Return True if the journal has entries after that position, stable or not."""
    return Entry.objects.filter(position__gt=after).exists()


def add_changed(
    past: PastState,
    ids: Collection[UUID],
    entity: Entity,
    project: Project,
    parts: Sequence[RowTest],
) -> PastState:
    """Return the state with rows that changed during the read."""
    rebuilt = rebuild_changed(entity, project.id, ids, past.cut)
    matching_ids = select_matching_ids(rebuilt, entity, project, past.cut, parts)
    return replace(
        past,
        rebuilt_rows={**past.rebuilt_rows, **rebuilt},
        matching_ids=[*past.matching_ids, *matching_ids],
    )


def rebuild_rows(
    entity: Entity, project: UUID, ids: Collection[UUID], cut: JournalCut
) -> dict[UUID, Any]:
    """Return the entity's rows of `ids` in the state as of `cut`."""
    return _REBUILD[entity.name](project, ids, cut)


def rebuild_changed(
    entity: Entity, project: UUID, ids: Collection[UUID], cut: JournalCut
) -> dict[UUID, Any]:
    """Rebuild rows that changed during the read. Raises QueryError if there are too many."""
    try:
        return rebuild_rows(entity, project, ids, cut)
    except CutError:
        raise QueryError(0, 0, TOO_MANY_CHANGES) from None


def select_matching_ids(
    rebuilt: dict[Any, Any],
    entity: Entity,
    project: Project,
    cut: JournalCut,
    parts: Sequence[RowTest],
) -> list[Any]:
    """Return the ids of the rebuilt rows that meet all of `parts`."""
    matching_ids = set(rebuilt)
    for part in sorted(parts, key=lambda part: part.holds is None):  # Cheap tests run first.
        matching_ids = _matching_subset(part, matching_ids, rebuilt, entity, project, cut)
    return list(matching_ids)


def _matching_subset(
    test: RowTest,
    among: set[Any],
    rebuilt: dict[Any, Any],
    entity: Entity,
    project: Project,
    cut: JournalCut,
) -> set[Any]:
    """Return the ids of `among` that meet a test, evaluated in plain Python where possible."""
    if not among:
        return among
    if test.holds is not None:
        return {pk for pk in among if test.holds(rebuilt[pk])}
    if test.words:
        try:
            texts_by_id = search_text.load_past_texts(project.id, among, cut)
        except CutError as unfit:
            raise QueryError(0, 0, str(unfit)) from None
        return {
            pk
            for pk, text in texts_by_id.items()
            if matching_words.has_all_terms(words_of_texts(text), test.words)
        }
    if test.of is None:
        matching_rows = entity.select_project_rows(project).filter(test.q, pk__in=list(among))
        return set(matching_rows.values_list("pk", flat=True))
    how, tests = test.of
    if how == "any":
        return {
            pk
            for part in tests
            for pk in _matching_subset(part, among, rebuilt, entity, project, cut)
        }
    matching_ids = among
    for part in tests:
        matching_ids = _matching_subset(part, matching_ids, rebuilt, entity, project, cut)
    return among - matching_ids if how == "not" else matching_ids


def past_values(
    values: tuple[Any, ...], columns: Sequence[str], rebuilt_row: Any, names: "RelatedValues"
) -> tuple[Any, ...]:
    """Return a row's past column values; `rebuilt_row` is None if unchanged since."""
    if rebuilt_row is None:
        return values
    return tuple(names.value(rebuilt_row, name) for name in columns)


class RelatedValues:
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
            self._known[path] = past_rows.load_column(link.related_model, ids, rest)
        return self._known[path].get(getattr(row, link.attname))
