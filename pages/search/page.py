"""The search page: a request and its results as the templates show them. Nothing is read here."""

import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from display import urls_of_rows
from display.effect_table import common_day
from display.index_progress import IndexProgress
from investigation.history.moment import JournalCut
from investigation.query import analysis, compiler, describe, edit, facets
from investigation.query.analysis import AnalysedCondition
from investigation.query.entity_registry import DEFAULT, ENTITIES
from investigation.query.execute import CompiledQuery
from investigation.query.facets import Overview
from investigation.query.grouping import GroupTable
from investigation.query.parser.ast import Query, QueryError, Term
from pages.search import histogram
from pages.search.histogram import HistogramDrawing
from pages.search.results import SearchResults
from pages.search.search_request import SearchRequest

ERROR_CONTEXT_CHARS: Final = 120  # characters of a query shown on either side of its error
AGES: Final = (("1h", "last hour"), ("24h", "24 h"), ("7d", "7 d"), ("30d", "30 d"))
TIME_BOUNDS: Final = ("since", "until")
# How errors of the query language end.
_MEANT: Final = re.compile(r"did you mean (?:is:)?“?([^”?]+)”?\?$")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One row of a grouped result.

    (field, word) of keys, (figure, value, kind) of figures, and its link.
    """

    keys: list[tuple[str, str]]
    figures: list[tuple[str, Any, str]]
    url: str


@dataclass(frozen=True, slots=True)
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
    description: str = ""  # The query in English, if it has no results.

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
    def day(self) -> str:
        """Return the day (UTC) on which all effects arrived, empty for several days."""
        if self.entity != "effect":
            return ""
        return common_day(row.effect.received_us for row in self.rows)

    @property
    def targets(self) -> bool:
        """Return True if an effect names a target and no snippets need the space."""
        if self.entity != "effect" or self.results is None or self.results.snippets:
            return False
        effects = [row.effect for row in self.rows]
        return any(effect.repository_id or effect.ref or effect.environment for effect in effects)

    @property
    def owners(self) -> bool:
        """Return True if any of these sessions has an owner."""
        return self.entity == "session" and any(row.owner_id for row in self.rows)

    @property
    def resumed(self) -> bool:
        """Return True if any of these sessions was resumed."""
        return self.entity == "session" and any(row.resumes for row in self.rows)

    @property
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
    def meant(self) -> str:
        """Return the query with the suggested name, empty without a suggestion."""
        nearest = _MEANT.search(self.error.sentence) if self.error else None
        if self.error is None or nearest is None:
            return ""
        text, at, end = self.request.text, self.error.at, self.error.at + self.error.length
        return text[:at] + edit.quote_if_needed(nearest[1]) + text[end:]

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
    search: SearchRequest, results: SearchResults | None, error: QueryError | None
) -> SearchPage:
    """Return the page of a request and its results. A pure function."""
    if results is None:
        return SearchPage(search, error=error)
    compiled, sample, drawing = results.compiled, results.sample, None
    overview = facets.build_overview(compiled, sample) if sample is not None else None
    if overview is not None:
        drawing = histogram.draw_histogram(compiled, overview, search.with_facets)
    groups = results.answer.groups if results.answer is not None else None
    return SearchPage(
        search,
        results,
        error,
        overview,
        drawing,
        _build_group_rows(compiled, groups) if groups is not None else [],
        describe.describe_query(compiled.query) if results.exclusions is not None else "",
    )


def list_time_ranges(query: Query) -> list[tuple[str, str, bool]]:
    """Return times to narrow to: (word, edited query, whether it is current)."""
    entity = ENTITIES[query.entity]
    always = edit.remove_time_conditions(query, entity)
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
        *((word, edit.set_last_age(query, entity, age), since == age) for age, word in AGES),
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
