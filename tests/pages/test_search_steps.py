"""The steps of the search page without a database, from a request to a page."""

from collections import Counter
from typing import Any

import pytest
from django.http import QueryDict

from accounts.models import Project
from investigation.query import compiler, facets, result_columns
from investigation.query.analysis import ExcludedRows
from investigation.query.column_types import Reader
from investigation.query.entity_registry import ENTITIES
from investigation.query.execute import CompiledQuery, ResultPage
from investigation.query.facets import MatchSample
from investigation.query.fields.row_tests import CompileContext
from investigation.query.grouping import GroupTable
from pages.search.page import build_search_page, list_time_ranges
from pages.search.results import SearchResults
from pages.search.search_request import RedirectTo, SearchRequest, parse_search_request

NOW_US = 1_800_000_000_000_000
DAY_US = 86_400_000_000


def compiled_query(text: str) -> CompiledQuery:
    """Return a query of an entity whose conditions are not compiled."""
    query = compiler.parse_query(text)
    return CompiledQuery(query, ENTITIES[query.entity], CompileContext(Project(), NOW_US), ())


def results_of(text: str, **more: Any) -> SearchResults:
    compiled = compiled_query(text)
    answer = ResultPage(compiled, groups=more.pop("groups", None))
    return SearchResults(compiled, Reader.of_context(compiled.context), answer, **more)


@pytest.mark.parametrize(
    ("query", "accepts_fragment", "expected"),
    [
        ("", False, {"text": "", "refusal": "", "before": None, "with_facets": False}),
        ("q=+is:unknown+", False, {"text": "is:unknown", "error": None}),
        ("q=is:unknown&before=41&facets=1", False, {"before": 41, "with_facets": True}),
        ("q=tool:a&apart=2", False, {"compared": 2}),
        ("q=tool:a&apart=two", False, {"compared": 0}),
        ("q=tool:a&part=overview", True, {"part": "overview"}),
        ("q=tool:a&part=overview", False, {"part": ""}),
        ("q=tool:a&part=other", True, {"part": ""}),
        (
            "q=tool:a&after=last",
            False,
            {"refusal": "“after” must be a journal position. Enter a number.", "query": None},
        ),
        (
            "q=tool:a&facet=1",
            False,
            {"refusal": "There is no field “facet”; did you mean “facets”?", "query": None},
        ),
    ],
)
def test_a_query_string_is_parsed(
    query: str, accepts_fragment: bool, expected: dict[str, Any]
) -> None:
    search = parse_search_request(QueryDict(query), accepts_fragment=accepts_fragment)
    assert isinstance(search, SearchRequest)
    assert {name: getattr(search, name) for name in expected} == expected


def test_many_columns_are_written_as_all_but_the_others() -> None:
    names = [column.name for column in result_columns.COLUMNS["effect"]]
    for chosen in (names[:2], names[:24], names[-24:]):
        search = parse_search_request(
            QueryDict(f"q=tool:a&cols={','.join(chosen)}"), accepts_fragment=False
        )
        assert isinstance(search, SearchRequest)
        assert search.columns == tuple(chosen)
        written = search.kept["cols"]
        assert len(written) <= len(",".join(chosen))
        again = parse_search_request(QueryDict(f"q=tool:a&cols={written}"), accepts_fragment=False)
        assert isinstance(again, SearchRequest)
        assert set(again.columns) == set(chosen)


def test_a_condition_to_add_redirects_and_an_error_has_its_place() -> None:
    search = parse_search_request(QueryDict("q=tool:a&add=is:unknown"), accepts_fragment=False)
    assert search == RedirectTo("/search/?q=tool%3Aa+is%3Aunknown")
    search = parse_search_request(QueryDict("q=tool:a+(is:unknown"), accepts_fragment=False)
    assert isinstance(search, SearchRequest)
    assert search.query is None
    assert search.error is not None
    page = build_search_page(search, None, search.error)
    assert (page.status, page.entity, page.fields_entity) == (400, "", "effect")


SAMPLE = MatchSample(
    {"state": Counter({"unknown": 2, "failed": 1}), "tool": Counter({"git.push": 3})},
    [NOW_US, NOW_US - DAY_US, NOW_US - 2 * DAY_US],
    ["unknown", "unknown", "failed"],
    more=False,
)


@pytest.mark.parametrize(
    ("text", "facet", "expected"),
    [
        (
            "tool:git.push",
            "state",
            [
                ("unknown", 2, "tool:git.push state:unknown"),
                ("failed", 1, "tool:git.push state:failed"),
            ],
        ),
        ("tool:git.push state:failed", "tool", [("git.push", 3, "state:failed")]),
        ("state:unknown", "tool", [("git.push", 3, "state:unknown tool:git.push")]),
    ],
)
def test_facets_edit_the_text(text: str, facet: str, expected: list[tuple[str, int, str]]) -> None:
    overview = facets.build_overview(compiled_query(text), SAMPLE)
    (built,) = [candidate for candidate in overview.facets if candidate.field.name == facet]
    assert [(value.value, value.count, value.text) for value in built.values] == expected
    assert sum(bar.count for bar in overview.bars) == overview.count == 3


def test_a_page_of_results_is_drawn_and_an_empty_one_is_explained() -> None:
    text = "tool:git.push"
    search = SearchRequest(text, compiler.parse_query(text))
    page = build_search_page(search, results_of(text, sample=SAMPLE, count=3), None)
    assert page.overview is not None
    assert page.drawing is not None
    assert [row.count for row in page.drawing.rows] == [1, 1, 1]
    assert (page.status, page.entity) == (200, "effect")
    assert page.description == "Effects where tool is git.push."
    excluded = [ExcludedRows(text, 7, False, "effect")]
    page = build_search_page(search, results_of(text, exclusions=excluded), None)
    assert (page.overview, page.description) == (None, "Effects where tool is git.push.")


def test_each_group_links_to_its_rows() -> None:
    text = "session | group agent,branch | count"
    search = SearchRequest(text, compiler.parse_query(text))
    (count,) = search.query.grouping.aggregates if search.query and search.query.grouping else ()
    fields = ENTITIES["session"].fields
    table = GroupTable(
        [fields["agent"], fields["branch"]], [(count, None)], [(("deploy-7", None), (4,))]
    )
    page = build_search_page(search, results_of(text, groups=table, count=1), None)
    (row,) = page.groups
    assert (row.keys, row.figures) == (
        [("Agent", "deploy-7"), ("Branch", "")],
        [("count", 4, "count")],
    )
    assert row.url == "/search/?q=session+agent%3Adeploy-7+-has%3Abranch"


@pytest.mark.parametrize(
    ("text", "current", "last_day"),
    [
        ("tool:a", "any time", "tool:a since:24h"),
        ("tool:a since:7d", "7 d", "tool:a since:24h"),
        ("tool:a since:7d until:1h", None, "tool:a since:24h"),
        ("tool:a since:2d..1d", None, "tool:a since:24h"),
    ],
)
def test_time_ranges_edit_the_text(text: str, current: str | None, last_day: str) -> None:
    ranges = list_time_ranges(compiler.parse_query(text))
    assert [word for word, _text, is_current in ranges if is_current] == [
        word for word in [current] if word
    ]
    assert {word: text for word, text, _is_current in ranges}["24 h"] == last_day
