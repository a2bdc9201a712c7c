"""Execute a query: one page of rows, newest first, or groups. Every read is bounded."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet, Subquery

from accounts.models import Project
from db.compiled_query import CompiledQuerySet
from display import keyset_pagination
from display.index_progress import IndexProgress
from investigation.fulltext import indexer
from investigation.history import past_rows
from investigation.history.moment import JournalCut
from investigation.query import as_of, as_of_grouping, compiler, grouping
from investigation.query.as_of import PastState
from investigation.query.as_of_related import PastRelatedRows
from investigation.query.entity_registry import ENTITIES, Entity
from investigation.query.fields.row_tests import CompileContext, RowTest, intersect_tests
from investigation.query.parser.ast import Query, Term
from journal.models import Entry

PAGE_SIZE: Final = 50
COUNT_LIMIT: Final = 10_000  # Larger counts are reported as "more than".
# Most positions that one page reads when no index serves the query's fields.
SLOW_WINDOW: Final = 300_000
# Times that a query as of a moment is read again because rows changed while it was read.
MAX_REREADS: Final = 3
_ARMS: Final = 3  # Queries with more disjoint conditions run as a single query.
# Positions are assigned in the transaction that follows the arrival of a request. That transaction
# may wait for locks, and clocks may be set, but never by more than this.
_SLACK_US: Final = 3_600_000_000
LATEST_US: Final = 2**62
RowLoader = Callable[[UUID, list[Any]], list[Any]]


@dataclass(frozen=True)
class CompiledQuery:
    """A parsed and compiled query. All of `parts` select the matching rows of `entity`."""

    query: Query
    entity: Entity
    context: CompileContext
    parts: tuple[RowTest, ...]
    notes: tuple[str, ...] = ()  # They do not stop the query.
    indexes: tuple[IndexProgress, ...] = ()  # The indexes that the results depend on.
    since_us: int | None = None
    until_us: int | None = None
    # Journal positions that enclose the time range; (None, None) if they were not looked up.
    between: tuple[int | None, int | None] = (None, None)
    past: PastState | None = None  # Set for queries as of a moment.
    related: PastRelatedRows | None = None  # Related rows as of that moment.

    @property
    def test(self) -> RowTest:
        """Return the test that all conditions hold."""
        return intersect_tests(self.parts)

    @property
    def slow(self) -> bool:
        """Return True if rows are many and no index serves any of the conditions."""
        conditions = self.entity.many and self.query.condition is not None
        return conditions and not any(part.indexed or part.in_project for part in self.parts)

    @property
    def text(self) -> str:
        return self.query.text

    @cached_property
    def stages(self) -> "list[list[QuerySet[Any]]]":
        """Return the matches as stages of disjoint querysets; a page and its count share them.

        All rows of one stage are older than all rows of the stages before it.
        """
        return _build_stages(self)


@dataclass(frozen=True, slots=True)
class ResultPage:
    """One page of results, or all groups of a grouped query.

    `older` and `newer` are the values to pass as `before` and `after`. `looked_back_to` is the
    position where a slow search stopped, or None if it read everything.
    """

    compiled: CompiledQuery
    rows: list[Any] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    looked_back_to: int | None = None
    groups: "grouping.GroupTable | None" = None

    @property
    def notes(self) -> list[str]:
        """Return the notes for readers of the results."""
        return [*self.compiled.notes, *(self.groups.notes if self.groups is not None else ())]


def compile_query(
    text: str, project: Project, now_us: int, upto: int | None = None, *, people: bool = True
) -> CompiledQuery:
    """Parse a query and compile it. Raises QueryError."""
    return compile_parsed_query(compiler.parse_query(text), project, now_us, upto, people=people)


def compile_parsed_query(
    query: Query, project: Project, now_us: int, upto: int | None = None, *, people: bool = True
) -> CompiledQuery:
    """Resolve every name in a query, and compile its conditions to tests. Raises QueryError.

    For a query as of a moment, rows that changed since then are rebuilt. `upto` runs a query
    without `asof:` as of that position and `now_us`; only grouped rows are rebuilt in that case
    (see stream.py for the others). With `people` False, a word is not compared with the names of
    people.
    """
    entity = ENTITIES[query.entity]
    cut = as_of.resolve_asof(query.asof, project, now_us) if query.asof is not None else None
    if cut is not None:
        as_of.reject_unrecorded_fields(query)
    cut = JournalCut(upto, now_us) if cut is None and upto is not None else cut
    grouped = query.grouping is not None
    context, related = CompileContext(project, now_us, people=people, grouped=grouped), None
    if cut is not None:
        related = PastRelatedRows(project, cut, whole=query.asof is None)
        context = replace(context, now_us=cut.at_us, upto=cut.position, as_of=related)
    conditions = compiler.top_level_conditions(query)
    word_nodes, terms = compiler.split_words(conditions, entity, context)
    since_us, until_us = compiler.time_bounds(query, context)
    repeated = any(
        isinstance(condition, Term) and condition.name == "duplicate" for condition in terms
    )
    between: tuple[int | None, int | None] = (None, None)
    # With time bounds, words and duplicates are searched within those bounds only.
    if word_nodes or repeated:
        between = _position_range(project, since_us, until_us)
    context = replace(context, lowest=between[0])
    parts = compiler.compile_conditions(terms, entity, context)
    if word_nodes:
        upto_end = context.upto + 1 if context.upto is not None else None
        ends = [end for end in (between[1], upto_end) if end is not None]
        parts.append(
            compiler.compile_words(word_nodes, context, (between[0], min(ends, default=None)))
        )
    elif not repeated and not any(part.in_project for part in parts):
        between = _position_range(project, since_us, until_us)
    if query.grouping is not None:
        grouping.check_grouping(query.grouping, entity)
    if any(
        target is not None and target.compared_late
        for target, _name, _at in compiler.named_fields(query)
    ):
        context.goes_by(indexer.duplicates_progress(project.id, context.upto))
    context.notes.extend(index.note for index in context.indexes.values() if index.note)
    past: PastState | None = None
    if cut is not None and (query.asof is not None or query.grouping is not None):
        past = as_of.rebuild_matches(query, query.asof, entity, context, parts, cut)
    elif cut is not None:
        past = PastState(cut, cut.position)
    return CompiledQuery(
        query,
        entity,
        context,
        tuple(parts),
        tuple(context.notes),
        tuple(context.indexes.values()),
        since_us,
        until_us,
        between,
        past,
        related,
    )


def load_results(
    compiled: CompiledQuery,
    rows: "Callable[[QuerySet[Any]], QuerySet[Any]]",
    *,
    before: int | None = None,
    after: int | None = None,
    upto: int | None = None,
    size: int = PAGE_SIZE,
    by_id: RowLoader | None = None,
) -> ResultPage:
    """Return one page of the matches of `compiled`, of rows up to position `upto`.

    `rows` adds the display columns to a query of complete rows. `by_id`, if given, loads the same
    rows of a project by their ids. As of a moment, the returned page has the compiled query with
    the rows that changed during the read.
    """
    window = keyset_pagination.Window(before=before, after=after, upto=upto)
    for _ in range(MAX_REREADS if compiled.past is not None else 0):
        page = _load_once(compiled, rows, window, size, by_id)
        rebuilt = _rebuild_changed(compiled)
        if rebuilt is None:
            return page
        compiled = rebuilt
    return _load_once(compiled, rows, window, size, by_id)


def _load_once(
    compiled: CompiledQuery,
    rows: "Callable[[QuerySet[Any]], QuerySet[Any]]",
    window: keyset_pagination.Window,
    size: int,
    by_id: RowLoader | None,
) -> ResultPage:
    if compiled.query.grouping is not None:
        return ResultPage(compiled, groups=_load_groups(compiled))
    return _load_page(compiled, rows, window, size, by_id)


def _rebuild_changed(compiled: CompiledQuery) -> CompiledQuery | None:
    """Return the query with the rows that changed during the read, or None if none did."""
    assert compiled.past is not None  # noqa: S101 - asked as of a moment
    project = compiled.context.project
    past, changed = as_of.find_changed_during_read(compiled.past, compiled.entity, project.id)
    refreshed = refresh_related_rows(compiled)
    if not changed and refreshed is compiled:
        return None
    if changed:
        past = as_of.add_changed(past, changed, compiled.entity, project, refreshed.parts)
    return replace(refreshed, past=past)


def refresh_related_rows(compiled: CompiledQuery) -> CompiledQuery:
    """Return the query with new tests on related rows if any changed during the read.

    Returns the same query if none changed. Raises QueryError.
    """
    if compiled.related is None or not compiled.related.rebuild_changed():
        return compiled
    # The notes were given when the query was compiled.
    context = replace(compiled.context, notes=[])
    _words, nodes = compiler.split_words(
        compiler.top_level_conditions(compiled.query), compiled.entity, context
    )
    parts = compiler.compile_conditions(nodes, compiled.entity, context)
    # The full-text test of effects comes last and is kept.
    return replace(
        compiled,
        parts=(*parts, *compiled.parts[len(nodes) :]),
        indexes=tuple(context.indexes.values()),
    )


def _load_page(
    compiled: CompiledQuery,
    rows: "Callable[[QuerySet[Any]], QuerySet[Any]]",
    window: keyset_pagination.Window,
    size: int,
    by_id: RowLoader | None,
) -> ResultPage:
    before, after = window.before, window.after
    lowest = _lowest_position(compiled, before) if after is None else 0
    project = compiled.context.project

    def load_rows(ids: list[Any]) -> Iterable[Any]:
        if by_id is not None:
            return by_id(project.id, ids)
        return rows(compiled.entity.select_project_rows(project)).filter(pk__in=ids)

    page = keyset_pagination.page_in_stages(page_stages(compiled, lowest), load_rows, size, window)
    page_rows = page.rows
    if compiled.past is not None:
        page_rows = past_rows.set_past_values(
            page_rows, compiled.past.rebuilt_rows, compiled.past.cut
        )
    return ResultPage(
        compiled,
        page_rows,
        page.older,
        page.newer,
        lowest if lowest and page.older is None else None,
    )


def _load_groups(compiled: CompiledQuery) -> "grouping.GroupTable":
    if compiled.past is None or compiled.entity.name == "event":  # Journal entries never change.
        return grouping.load_groups(compiled, matching_rows(compiled))
    unchanged = (
        compiled.test.q & ~Q(pk__in=compiled.past.rebuilt_rows)
        if compiled.past.rebuilt_rows
        else compiled.test.q
    )
    return as_of_grouping.load_past_groups(
        compiled,
        _limit_positions(_project_rows(compiled).filter(unchanged), compiled),
        lambda: matching_rows(compiled),
    )


def matching_rows(compiled: CompiledQuery) -> "QuerySet[Any]":
    """Return all rows that match, unordered."""
    condition = compiled.test.q
    if compiled.past is not None:
        condition = (
            (condition & ~Q(pk__in=compiled.past.rebuilt_rows))
            | Q(pk__in=compiled.past.matching_ids)
            if compiled.past.rebuilt_rows
            else condition
        )
    return _limit_positions(_project_rows(compiled).filter(condition), compiled)


def disjoint_querysets(compiled: CompiledQuery) -> "list[QuerySet[Any]]":
    """Return the matches as disjoint querysets, each of which one index can serve."""
    return [arm for stage in page_stages(compiled) for arm in stage]


def page_stages(compiled: CompiledQuery, lowest: int = 0) -> "list[list[QuerySet[Any]]]":
    """Return the stages of the matches from position `lowest` on."""
    if not lowest:
        return compiled.stages
    return [[arm.filter(opened_position__gte=lowest) for arm in arms] for arms in compiled.stages]


def _build_stages(compiled: CompiledQuery) -> "list[list[QuerySet[Any]]]":
    rows = _limit_positions(_project_rows(compiled), compiled)
    aged = next((part for part in compiled.parts if part.by_age), None)
    other_parts = [part for part in compiled.parts if part is not aged]
    alternatives = [part.arms or (part.q,) for part in other_parts]
    count = 1
    for choices in alternatives:
        count *= len(choices)
    is_single_query = count > _ARMS
    disjoint = (
        [rows.filter(intersect_tests(other_parts).q)]
        if is_single_query
        else [rows.filter(*chosen) for chosen in product(*alternatives)]
    )
    by_stage = [[arm.filter(q) for arm in disjoint] for q in aged.by_age] if aged else [disjoint]
    if compiled.past is None or not compiled.past.rebuilt_rows:
        return by_stage
    # Changed rows may have any position.
    unchanged = [
        arm.exclude(pk__in=list(compiled.past.rebuilt_rows)) for stage in by_stage for arm in stage
    ]
    rebuilt = _project_rows(compiled).filter(pk__in=compiled.past.matching_ids)
    return [[*unchanged, *([rebuilt] if compiled.past.matching_ids else [])]]


def count_matches(compiled: CompiledQuery, most: int = COUNT_LIMIT) -> tuple[int, bool]:
    """Return the number of matches, at most `most`, and whether there are or may be more.

    A slow search counts no further back than its first page reads.
    """
    only_part = compiled.parts[0] if len(compiled.parts) == 1 and compiled.past is None else None
    if (
        only_part is not None
        and only_part.named is not None
        and (only_part.named > most or not only_part.more)
    ):
        return min(only_part.named, most), only_part.named > most
    total, lowest = 0, _lowest_position(compiled)
    for part in disjoint_querysets(compiled):
        if lowest:  # With this order, SQLite does not start at the oldest row of the time range.
            part = part.filter(opened_position__gte=lowest).order_by("-opened_position")
        # Use a column of the index: SQLite would fetch each row for its id, which takes 50 times as
        # long.
        total += (
            part.values_list("opened_position")[: most + 1 - total].count() if total <= most else 0
        )
    return min(total, most), total > most or lowest > 0


def load_newest_values(
    compiled: CompiledQuery,
    columns: tuple[str, ...],
    most: int,
    known_ids: "list[Any] | None" = None,
    computed: "dict[str, Any] | None" = None,
) -> tuple[list[tuple[Any, ...]], bool]:
    """Return values of the newest matches, at most `most`, and whether there are or may be more.

    `known_ids` are the ids of all matches, if they are already known.
    """
    newest_rows: list[tuple[Any, ...]] = []
    lowest = _lowest_position(compiled) if known_ids is None else 0
    by_stage = (
        page_stages(compiled, lowest)
        if known_ids is None
        else [
            [compiled.entity.select_project_rows(compiled.context.project).filter(pk__in=known_ids)]
        ]
    )
    # Converting the ids of ten thousand rows takes longer than all else, so few searches read them.
    is_past, is_merged = compiled.past is not None, any(len(stage) > 1 for stage in by_stage)
    keys = ("opened_position", "pk") if is_past else ("opened_position",) if is_merged else ()
    for stage in by_stage:
        stage_rows: list[tuple[Any, ...]] = []
        for part in stage:
            part = part.annotate(**computed) if computed else part
            rows = part.order_by("-opened_position").values_list(*keys, *columns)
            stage_rows += rows[: most + 1 - len(newest_rows)]
        newest_rows += (
            stage_rows
            if len(stage) == 1
            else sorted(stage_rows, key=lambda row: row[0], reverse=True)
        )
        if len(newest_rows) > most:
            break
    more = len(newest_rows) > most or lowest > 0
    del newest_rows[most:]
    if compiled.past is None:
        return [row[len(keys) :] for row in newest_rows] if keys else newest_rows, more
    rebuilt = compiled.past.rebuilt_rows
    names = as_of.RelatedValues([rebuilt[pk] for pk in compiled.past.matching_ids])
    values = [
        as_of.past_values(row[2:], columns, rebuilt.get(row[1]), names) for row in newest_rows
    ]
    return values, more


def _lowest_position(compiled: CompiledQuery, before: int | None = None) -> int:
    """Return the position at which a slow search stops, or 0 for no limit."""
    if not compiled.slow:
        return 0
    top = before if before is not None else newest_position(compiled) + 1
    return max(top - SLOW_WINDOW, 0)


def newest_position(compiled: CompiledQuery) -> int:
    """Return the newest position of the project's rows, or 0 if there are none.

    As of a moment, later rows do not count.
    """
    rows = compiled.entity.select_project_rows(compiled.context.project).order_by(
        "-opened_position"
    )
    if compiled.past is not None:
        rows = rows.filter(opened_position__lte=compiled.past.cut.position)
    return rows.values_list("opened_position", flat=True).first() or 0


def _project_rows(compiled: CompiledQuery) -> "QuerySet[Any]":
    # A test that is limited to the project by itself gets no project condition: SQLite would then
    # scan the project.
    in_project = any(part.in_project for part in compiled.parts) and (
        compiled.past is None or not compiled.past.rebuilt_rows
    )
    rows = (
        compiled.entity.select_all_rows()
        if in_project
        else compiled.entity.select_project_rows(compiled.context.project)
    )
    return (
        rows
        if compiled.past is None
        else rows.filter(opened_position__lte=compiled.past.cut.position)
    )


def _limit_positions(rows: "QuerySet[Any]", compiled: CompiledQuery) -> "QuerySet[Any]":
    """Add a range of positions to a time range, so that an index can be used.

    The range starts after the last entry that arrived too early and ends before the first that
    arrived too late.
    """
    if any(part.in_project for part in compiled.parts):
        return rows
    last_before, first_after = compiled.between
    if last_before is not None:
        rows = rows.filter(opened_position__gt=last_before)
    if first_after is not None:
        rows = rows.filter(opened_position__lt=first_after)
    return rows


def _position_range(
    project: Project, since: int | None, until: int | None
) -> tuple[int | None, int | None]:
    """Return positions around all entries received in a time; None is unbounded.

    The rows of a sample project have made-up times, which its positions do not follow.
    """
    if (since is None and until is None) or project.is_sample:
        return None, None
    (bounds,) = _BOUNDS.rows(
        project=project.id,
        since=since - _SLACK_US if since is not None else 0,
        until=until + _SLACK_US if until is not None else LATEST_US,
    )
    return (
        bounds.last_before if since is not None else None,
        bounds.first_after if until is not None else None,
    )


def _bounds(project: UUID, since: int, until: int) -> "QuerySet[Any]":
    project_row = Project.objects.filter(id=project).only("id")
    return project_row.annotate(
        last_before=Subquery(_last_position_before(since)),
        first_after=Subquery(_first_position_from(until)),
    )


def _last_position_before(us: int) -> "QuerySet[Any, Any]":
    """Return the position of the last entry received before `us`. One index probe."""
    return (
        Entry.objects.filter(received_us__lt=us)
        .order_by("-received_us", "-position")
        .values("position")[:1]
    )


def _first_position_from(us: int) -> "QuerySet[Any, Any]":
    """Return the position of the first entry received at `us` or later. One index probe."""
    return (
        Entry.objects.filter(received_us__gte=us)
        .order_by("received_us", "position")
        .values("position")[:1]
    )


_BOUNDS: Final = CompiledQuerySet(_bounds, project=UUID, since=int, until=int)

__all__ = [
    "CompiledQuery",
    "ResultPage",
    "compile_parsed_query",
    "compile_query",
    "count_matches",
    "disjoint_querysets",
    "load_newest_values",
    "load_results",
    "matching_rows",
    "newest_position",
    "page_stages",
]
