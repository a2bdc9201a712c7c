"""Results of the search page: everything that one request reads from the database."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.db.models import F, QuerySet

from accounts.models import Project
from db.compiled_query import CompiledQuerySet
from display.effect_table import FoundEffect, select_row_columns, to_effect_rows
from display.run_times import run_time_expression
from investigation.fulltext import snippets, word_search
from investigation.fulltext.snippets import Snippet
from investigation.fulltext.word_search import SearchTerm
from investigation.history import search_text
from investigation.query import (
    analysis,
    compiler,
    corrections,
    execute,
    exemption_uses,
    facets,
    result_columns,
)
from investigation.query.analysis import DistinguishingValues, ExcludedRows, NearestName
from investigation.query.column_types import Reader
from investigation.query.execute import CompiledQuery, ResultPage
from investigation.query.facets import MatchSample
from investigation.query.grouping import GroupTable
from investigation.query.parser.ast import And, Node, Or, Query, QueryError, TextWords
from ledger.models import Effect
from pages.search.search_request import SearchRequest
from recovery import liveness

MAX_SORTED: Final = 2_000  # effects that are put in the order in which they ran


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A page of effects in the order in which they ran, the latest first; `count` are all."""

    number: int
    count: int

    @property
    def last(self) -> int:
        """Return the number of the last page."""
        return max(1, -(-self.count // execute.PAGE_SIZE))


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What was read for a search. A fragment has no `answer`, only a `sample`."""

    compiled: CompiledQuery
    reader: Reader
    answer: ResultPage | None = None
    rows: list[Any] = field(default_factory=list)
    count: int = 0
    more: bool = False
    took_ms: int = 0
    sample: MatchSample | None = None
    comparison: DistinguishingValues | None = None
    exclusions: list[ExcludedRows] | None = None  # None unless the query has no results.
    nearest: list[NearestName] = field(default_factory=list)  # of a query without results
    # By effect: where the searched words occur.
    snippets: dict[UUID, Snippet] = field(default_factory=dict)
    run_order: RunOrder | None = None  # None in the usual order


def load_search_results(
    search: SearchRequest, query: Query, project: Project, now_us: int
) -> SearchResults:
    """Compile and execute the request's query. Raises QueryError."""
    started = time.perf_counter()
    compiled = execute.compile_parsed_query(query, project, now_us)
    if search.part:
        sample = facets.load_overview_sample(compiled, time_name=_bar_time(search, compiled))
        return SearchResults(
            compiled,
            Reader.of_context(compiled.context),
            count=len(sample.times),
            more=sample.more,
            sample=sample,
        )
    # What changed since a past moment is set on models.
    is_usual = not (search.columns or search.shows_ran) and compiled.past is None
    ordered = _load_in_run_order(compiled, search) if search.shows_ran else None
    if ordered is not None:
        return _load_rest_of_rows(search, *ordered, started=started)
    answer = execute.load_results(
        compiled,
        _row_columns_of(compiled.entity.name, search),
        before=search.before,
        after=search.after,
        by_id=_load_effects_by_id if compiled.entity.name == "effect" and is_usual else None,
    )
    if answer.groups is not None:
        return _load_rest_of_groups(answer, answer.groups, started)
    return _load_rest_of_rows(search, answer, None, started)


def find_correction(
    search: SearchRequest, error: QueryError | None, project: Project, now_us: int
) -> str:
    """Return the query that was most likely meant by a wrong query, or "" if none is likely.

    Also of a query without an error that searches words where conditions are meant.
    """

    def check(text: str) -> None:
        execute.compile_query(text, project, now_us)

    if error is not None:
        return corrections.correct_query(search.text, error, check, now_us)
    if search.query is None or search.part:
        return ""
    return corrections.find_meant_conditions(search.query, check)


def _load_in_run_order(
    compiled: CompiledQuery, search: SearchRequest
) -> tuple[ResultPage, RunOrder] | None:
    """Return a page of effects, the latest run first and those that did not run last.

    None for others, and if more than MAX_SORTED match. `before` and `after` are places in the usual
    order, and are ignored. Two queries.
    """
    is_other = compiled.entity.name != "effect" or compiled.query.grouping is not None
    if is_other or compiled.past is not None:
        return None
    computed = {"ran_us": run_time_expression()}
    values, more = execute.load_newest_values(
        compiled, ("id", "ran_us"), MAX_SORTED, computed=computed
    )
    if more:
        return None
    # The values are newest first, and sorting keeps the order of equal ones.
    values.sort(key=lambda row: (row[1] is None, -(row[1] or 0)))
    order = RunOrder(search.page, len(values))
    order = replace(order, number=min(order.number, order.last))
    start = (order.number - 1) * execute.PAGE_SIZE
    ids = [row[0] for row in values[start : start + execute.PAGE_SIZE]]
    prepare = _row_columns_of("effect", search)
    rows = {row.pk: row for row in prepare(compiled.entity.select_all_rows().filter(pk__in=ids))}
    return ResultPage(compiled, [rows[pk] for pk in ids if pk in rows]), order


def _load_rest_of_groups(answer: ResultPage, groups: GroupTable, started: float) -> SearchResults:
    return SearchResults(
        answer.compiled,
        Reader.of_context(answer.compiled.context),
        answer,
        count=len(groups.rows),
        more=groups.more,
        took_ms=_elapsed_ms(started),
        exclusions=_load_exclusions(answer.compiled, len(groups.rows)),
    )


def _load_rest_of_rows(
    search: SearchRequest, answer: ResultPage, order: RunOrder | None, started: float
) -> SearchResults:
    """Read what the page shows of a page of rows, apart from its rows."""
    compiled, ids = answer.compiled, [row.pk for row in answer.rows]
    entity, reader = compiled.entity.name, Reader.of_context(compiled.context)
    is_usual = entity == "effect" and not search.columns
    rows: list[Any] = list(to_effect_rows(answer.rows)) if is_usual else answer.rows
    if entity == "gate":
        _attach_calls(rows)
    if entity == "session" and compiled.past is None:  # Heartbeats are not in the journal.
        liveness.attach_liveness(rows)
    if entity == "exemption":
        exemption_uses.set_late_counts(compiled.context.project, rows, reader.upto)
    snippets_by_id = _load_snippets(compiled, ids)
    if order is not None:
        is_complete = order.last == 1
    else:
        places = (search.before, search.after, answer.older, answer.looked_back_to)
        is_complete = all(place is None for place in places)
    count, more = (len(rows), False) if is_complete else execute.count_matches(compiled)
    took_ms, sample = _elapsed_ms(started), None
    if rows and (is_complete or search.with_facets):  # With few matches, the cost is negligible.
        sample = facets.load_overview_sample(
            compiled, ids if is_complete else None, _bar_time(search, compiled)
        )
        count, more = len(sample.times), sample.more
    return SearchResults(
        compiled,
        reader,
        answer,
        rows,
        count,
        more,
        took_ms,
        sample,
        analysis.find_distinguishing_values(compiled, search.compared)
        if search.compared and rows
        else None,
        _load_exclusions(compiled, count) if is_complete else None,
        analysis.find_nearest_names(compiled) if is_complete and not count else [],
        snippets_by_id,
        order,
    )


def _list_query_terms(compiled: CompiledQuery) -> list[SearchTerm]:
    """Return the distinct words that a query of effects requires; negated words are left out."""
    if compiled.entity.name != "effect":
        return []
    term_set: dict[SearchTerm, None] = {}
    for words in list_words(compiled.query):
        term_set |= dict.fromkeys(
            word_search.parse_terms(f"{words.text}*" if words.prefix else words.text)
        )
    return list(term_set)


def list_words(query: Query) -> list[TextWords]:
    """Return the words without a field that a query requires, of effects or of related rows."""
    return [words for node in compiler.top_level_conditions(query) for words in _find_words(node)]


def _find_words(node: Node) -> Iterator[TextWords]:
    if isinstance(node, TextWords):
        yield node
    elif isinstance(node, And | Or):
        for child in node.children:
            yield from _find_words(child)


def _load_snippets(compiled: CompiledQuery, effects: Sequence[UUID]) -> dict[UUID, Snippet]:
    """Return by effect the snippet with the most words. Two queries; none without words."""
    search_terms = _list_query_terms(compiled)
    if not search_terms:
        return {}
    rebuilt = compiled.past.rebuilt_rows if compiled.past is not None else {}
    changed_ids = [effect_id for effect_id in effects if effect_id in rebuilt]
    snippets_by_id = (
        snippets.snippets_of_effects(
            [effect_id for effect_id in effects if effect_id not in rebuilt], search_terms
        )
        if effects
        else {}
    )
    if changed_ids and compiled.past is not None:  # Later texts are not part of the past effect.
        snippets_by_id |= snippets.snippets_of_texts(
            search_text.load_past_texts(
                compiled.context.project.id, changed_ids, compiled.past.cut
            ),
            search_terms,
        )
    return snippets_by_id


def _load_exclusions(compiled: CompiledQuery, count: int) -> list[ExcludedRows] | None:
    if count or compiled.query.condition is None:
        return None
    return analysis.find_excluding_conditions(compiled)


def _elapsed_ms(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def _with_effect_columns(rows: "QuerySet[Any]") -> "QuerySet[Any]":
    """Limit effects to what a row shows, with the names of session, agent, repository."""
    return select_row_columns(
        rows,
        session_position=F("session__opened_position"),
        agent_name=F("agent__name"),
        repository_name=F("repository__name"),
    )


def _attach_calls(gates: list[Any]) -> None:
    """Set `call` of each gate to the row of its effect, for target and arguments. One query."""
    effects = _with_effect_columns(Effect.objects.filter(pk__in=[row.effect_id for row in gates]))
    calls = {row.effect.pk: row for row in to_effect_rows(effects)}
    for gate in gates:
        gate.call = calls.get(gate.effect_id)


def _load_effects_by_id(project: UUID, ids: list[Any]) -> list[Any]:
    rows = _compiled_effects_query(len(ids)).rows(
        project=project, **{f"id_{number}": effect_id for number, effect_id in enumerate(ids)}
    )
    return list(map(FoundEffect._make, rows))


@lru_cache(maxsize=execute.PAGE_SIZE)
def _compiled_effects_query(number: int) -> CompiledQuerySet:
    """Return the compiled query of `number` effects as the page shows them."""

    def build(project: UUID, **ids: UUID) -> "QuerySet[Any]":
        effects = Effect.objects.filter(project=project, pk__in=list(ids.values()))
        return _with_effect_columns(effects).values_list(*FoundEffect._fields)

    return CompiledQuerySet(build, project=UUID, **{f"id_{index}": UUID for index in range(number)})


def _row_columns_of(
    entity: str, search: SearchRequest
) -> "Callable[[QuerySet[Any]], QuerySet[Any]]":
    """Return a function that adds the columns that the entity's table needs."""
    if entity != "effect" or search.columns:
        return result_columns.prepare_rows(entity)
    if not search.shows_ran:
        return _with_effect_columns
    return lambda rows: _with_effect_columns(rows).annotate(ran_us=run_time_expression())


def _bar_time(search: SearchRequest, compiled: CompiledQuery) -> str:
    """Return the field of time of the bars; empty for the usual one."""
    shows_ran = search.shows_ran and compiled.past is None
    return "ran" if shows_ran and compiled.entity.name == "effect" else ""
