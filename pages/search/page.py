"""The search page: a request and its results as the templates show them. Nothing is read here."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from display import urls_of_rows
from display.effect_table import common_day
from display.index_progress import IndexProgress
from investigation.history.moment import JournalCut
from investigation.query import analysis, compiler, describe, edit, facets, result_columns
from investigation.query.analysis import AnalysedCondition
from investigation.query.column_types import Column
from investigation.query.entity_registry import DEFAULT, ENTITIES
from investigation.query.execute import CompiledQuery
from investigation.query.facets import Overview
from investigation.query.grouping import GroupTable
from investigation.query.parser.ast import Query, QueryError, Term
from pages.search import histogram, query_builder
from pages.search.histogram import HistogramDrawing
from pages.search.query_builder import BuilderRow
from pages.search.results import MAX_SORTED, SearchResults, list_words
from pages.search.search_request import SearchRequest

ERROR_CONTEXT_CHARS: Final = 120  # characters of a query shown on either side of its error
AGES: Final = (("1h", "last hour"), ("24h", "24 h"), ("7d", "7 d"), ("30d", "30 d"))
TIME_BOUNDS: Final = ("since", "until")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One row of a grouped result.

    (field, word) of keys, (figure, value, kind) of figures, and its link.
    """

    keys: list[tuple[str, str]]
    figures: list[tuple[str, Any, str]]
    url: str


@dataclass(frozen=True)
class SearchPage:
    """Data of the search page. With an `error` or a refusal, nothing was searched.

    Without `results` and without an error, the search took too long.
    """

    request: SearchRequest
    results: SearchResults | None = None
    error: QueryError | None = None
    overview: Overview | None = None
    drawing: HistogramDrawing | None = None
    groups: list[GroupRow] = field(default_factory=list)
    description: str = ""  # The query in English; empty for a query with an error.
    columns: list[Column] = field(default_factory=list)  # that the reader chose
    correction: str = ""  # The query that was most likely meant; empty without one.

    @property
    def status(self) -> int:
        """Return the HTTP status of the page."""
        return 400 if self.error or self.request.refusal else 200

    @property
    def entity(self) -> str:
        """Return the entity that is searched, empty for a query with an error."""
        query = self.request.query
        return query.entity if query is not None and self.error is None else ""

    @property
    def fields_entity(self) -> str:
        """Return the entity whose fields are offered."""
        return self.entity or DEFAULT

    @property
    def cut(self) -> JournalCut | None:
        """Return the moment that the query is as of; None for now."""
        past = self.results.compiled.past if self.results is not None else None
        return past.cut if past is not None else None

    @property
    def late(self) -> list[IndexProgress]:
        """Return the indexes that the results depend on and that have not read everything."""
        indexes = self.results.compiled.indexes if self.results is not None else ()
        return [index for index in indexes if not index.complete]

    @property
    def asof(self) -> str:
        """Return the query string that shows the same moment on the pages of rows."""
        return f"?{urlencode({'asof': self.cut.text})}" if self.cut is not None else ""

    @property
    def present(self) -> str:
        """Return the same query as of now."""
        return edit.remove_asof(self.request.query) if self.request.query is not None else ""

    @property
    def rows(self) -> list[Any]:
        """Return the rows of the table."""
        return self.results.rows if self.results is not None else []

    @property
    def has_words(self) -> bool:
        """Return True if the query requires words without a field."""
        query = self.request.query
        return query is not None and bool(list_words(query))

    @property
    def has_several_conditions(self) -> bool:
        """Return True if the query has more than one top-level condition."""
        query = self.request.query
        return query is not None and len(compiler.top_level_conditions(query)) > 1

    @property
    def day(self) -> str:
        """Return the day (UTC) on which all effects arrived, empty for several days."""
        if self.entity != "effect" or self.columns:
            return ""
        times = [
            row.effect.ran_us if self.shows_ran else row.effect.received_us for row in self.rows
        ]
        return common_day(us for us in times if us is not None)

    @property
    def targets(self) -> bool:
        """Return True if an effect names a target and no snippets need the space."""
        if self.entity != "effect" or self.columns:
            return False
        if self.results is None or self.results.snippets:
            return False
        effects = [row.effect for row in self.rows]
        return any(effect.repository_name or effect.ref or effect.environment for effect in effects)

    @property
    def owners(self) -> bool:
        """Return True if any of these sessions has an owner."""
        return self.entity == "session" and any(row.owner_id for row in self.rows)

    @property
    def resumed(self) -> bool:
        """Return True if any of these sessions was resumed."""
        return self.entity == "session" and any(row.resumes for row in self.rows)

    @property
    def shows_ran(self) -> bool:
        """Return True if rows show when they ran instead of when they were first seen."""
        return self.request.shows_ran and self.entity == "effect" and self.cut is None

    @property
    def most_sorted(self) -> int:
        """Return how many effects are put in the order in which they ran."""
        return MAX_SORTED

    @property
    def choosable(self) -> list[tuple[str, str, bool]]:
        """Return the columns to choose from: (name, label, whether it is shown)."""
        if self.results is None or not self.entity:
            return []
        chosen = {column.name for column in self.columns}
        visible = list_page_columns(self.results)
        return [
            (column.name, column.label, column.name in chosen or (not chosen and column.main))
            for column in visible
        ]

    @property
    def cell_columns(self) -> list[Column]:
        """Return the chosen columns without the handle, which begins each row anyway."""
        return [column for column in self.columns if column.name != self.entity]

    @property
    def column_names(self) -> str:
        """Return the names of the chosen columns, as links name them."""
        return ",".join(column.name for column in self.columns)

    def _url_with(self, **changed: str) -> str:
        kept = {**self.request.kept, **changed}
        return urls_of_rows.build_search_url(
            self.request.text, **{name: value for name, value in kept.items() if value}
        )

    @cached_property
    def views(self) -> dict[str, str]:
        """Return the addresses of the same results with another density or time."""
        return {
            "dense": self._url_with(dense="1"),
            "roomy": self._url_with(dense=""),
            "seen": self._url_with(time=""),
            "ran": self._url_with(time="ran"),
            "usual": self._url_with(cols=""),
        }

    @cached_property
    def date_ranges(self) -> list[tuple[str, str, bool]]:
        """Return days to narrow to: (word, edited query, whether it is current)."""
        query = self.request.query
        if query is None or self.error is not None:
            return []
        if self.results is None:
            return []
        at_us = self.results.compiled.context.now_us  # or the moment that the query is as of
        return list_date_ranges(query, datetime.fromtimestamp(at_us / 1_000_000, UTC))

    @property
    def dates(self) -> tuple[str, str]:
        """Return first and last day of the present time range, empty if open."""
        compiled = self.results.compiled if self.results is not None else None
        since = compiled.since_us if compiled is not None else None
        until = compiled.until_us if compiled is not None else None
        return _format_day(since), _format_day(None if until is None else until - 1)

    @property
    def builder_rows(self) -> list[BuilderRow]:
        """Return the conditions as rows of the builder, and an empty one."""
        query = self.request.query
        rows = query_builder.list_builder_rows(query) if query is not None else []
        return [*rows, BuilderRow()]

    @property
    def builder_fields(self) -> list[tuple[str, str]]:
        """Return the fields of the builder."""
        return query_builder.list_builder_fields(ENTITIES[self.fields_entity])

    @property
    def tail(self) -> str:
        """Return the stages of the query, which the builder keeps."""
        query = self.request.query
        return query.text[query.conditions_end :].strip() if query is not None else ""

    @cached_property
    def time_ranges(self) -> list[tuple[str, str, bool]]:
        """Return times to narrow to: (word, query, whether it is current)."""
        query = self.request.query
        return list_time_ranges(query) if query is not None and self.error is None else []

    @property
    def comparable(self) -> list[AnalysedCondition]:
        """Return the conditions whose matches can be compared with the others."""
        query = self.request.query
        return analysis.analysable_conditions(query) if query is not None and self.rows else []

    @property
    def url_with_facets(self) -> str:
        """Return the URL of this page with facets."""
        return self.request.place.url(facets=1)

    @property
    def overview_url(self) -> str:
        """Return the URL of the fragment with histogram and facets.

        The page already names indexes that lag; the fragment does not repeat the note.
        """
        return self.request.place.url(part="overview") + ("&noted=1" if self.late else "")

    @property
    def wrong(self) -> tuple[str, str, str]:
        """Return the query before the error, the error, and the rest; long ends are cut."""
        assert self.error is not None  # noqa: S101 - shown only with an error
        text, at, end = self.request.text, self.error.at, self.error.at + self.error.length
        before, after = text[:at], text[end : end + ERROR_CONTEXT_CHARS]
        return (
            ("…" if len(before) > ERROR_CONTEXT_CHARS else "") + before[-ERROR_CONTEXT_CHARS:],
            text[at:end],
            after,
        )


def build_search_page(
    search: SearchRequest,
    results: SearchResults | None,
    error: QueryError | None,
    correction: str = "",
) -> SearchPage:
    """Return the page of a request and its results. A pure function."""
    explained = search.query is not None and error is None
    names = results.compiled.context.names if results is not None else {}
    named = {text for (kind, text, _), rows in names.items() if kind == "a name" and rows}
    description = describe.describe_query(search.query, named) if explained else ""  # type: ignore[arg-type]
    if results is None:
        return SearchPage(search, error=error, description=description, correction=correction)
    compiled, sample, drawing = results.compiled, results.sample, None
    overview = facets.build_overview(compiled, sample) if sample is not None else None
    if overview is not None:
        drawing = histogram.draw_histogram(compiled, overview, search.kept)
    groups = results.answer.groups if results.answer is not None else None
    return SearchPage(
        search,
        results,
        error,
        overview,
        drawing,
        _build_group_rows(compiled, groups) if groups is not None else [],
        description,
        [column for column in list_page_columns(results) if column.name in search.columns],
        correction,
    )


def list_page_columns(results: SearchResults) -> list[Column]:
    """Return the columns that a page can show, which are those of exports."""
    return result_columns.visible_columns(results.compiled.entity.name, results.reader)


def list_date_ranges(query: Query, now: datetime) -> list[tuple[str, str, bool]]:
    """Return days to narrow to, in UTC: (word, edited query, whether it is current)."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    day = timedelta(days=1)
    ranges = (
        ("Today", today, today + day),
        ("Yesterday", today - day, today),
        ("Last 7 days", today - 6 * day, today + day),
        (f"{today:%A} last week", today - 7 * day, today - 6 * day),
    )
    plain = edit.parse_without_time(query, ENTITIES[query.entity])
    edited = [
        (word, edit.add_time_range(plain, _to_us(start), _to_us(end)))
        for word, start, end in ranges
    ]
    return [(word, text, text == query.text.strip()) for word, text in edited]


def _to_us(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000


def _format_day(us: int | None) -> str:
    return "" if us is None else datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d")


def list_time_ranges(query: Query) -> list[tuple[str, str, bool]]:
    """Return times to narrow to: (word, edited query, whether it is current)."""
    plain = edit.parse_without_time(query, ENTITIES[query.entity])
    always = plain.text
    time_terms = [
        node
        for node in compiler.top_level_conditions(query)
        if isinstance(node, Term) and node.name in TIME_BOUNDS
    ]
    is_one_age = len(time_terms) == 1 and time_terms[0].values
    since = time_terms[0].values[0].text if is_one_age else ""
    timeless = always == query.text.strip()
    return [
        ("any time", always, timeless),
        *((word, edit.add_condition(plain, f"since:{age}"), since == age) for age, word in AGES),
    ]


def _build_group_rows(compiled: CompiledQuery, groups: GroupTable) -> list[GroupRow]:
    plain, rows = edit.parse_without_grouping(compiled.query), []
    for keys, figures in groups.rows:
        text, words = plain, []
        for key_field, key in zip(groups.names, keys, strict=True):
            value = "" if key is None else str(key)
            words.append((key_field.label, dict(key_field.choices).get(value, value)))
            condition = (
                f"{key_field.name}:{edit.quote_if_needed(value)}"
                if value.strip()
                else f"-has:{key_field.name}"
            )
            text = compiler.parse_query(edit.add_condition(text, condition))
        kinds = [
            (str(figure), "count" if of is None or figure.function == "distinct" else of.kind)
            for figure, of in groups.figures
        ]
        measured = [(name, value, kind) for (name, kind), value in zip(kinds, figures, strict=True)]
        rows.append(GroupRow(words, measured, urls_of_rows.build_search_url(text.text)))
    return rows
