"""Data of the search page.

Parse the request, run the query, explain empty results.
"""

import difflib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import F, QuerySet
from django.http import QueryDict
from django.urls import reverse

from accounts.access import PROJECT_PARAMETER
from accounts.models import Project
from db.compiled_query import CompiledQuerySet
from display import handles, urls_of_rows
from display.effect_table import common_day, to_effect_rows, with_call_summaries
from display.handles import parse_position
from display.index_progress import IndexProgress
from display.page_params import PagePlace
from investigation.fulltext.snippets import Snippet
from investigation.history.moment import JournalCut
from investigation.query import (
    analysis,
    columns,
    compiler,
    describe,
    edit,
    execute,
    exemption_uses,
    facets,
)
from investigation.query import analysis as query_analysis
from investigation.query.analysis import DistinguishingValues, ExcludedRows
from investigation.query.column import Reader
from investigation.query.entities import ENTITIES
from investigation.query.execute import CompiledQuery, ResultPage
from investigation.query.facets import Overview
from investigation.query.parser.ast import QueryError, Term
from ledger.models import Effect
from pages.search import histogram, jump
from pages.search import snippets as search_snippets
from recovery import liveness

PARAMETER_NAMES: Final = (
    "q",
    "before",
    "after",
    "facets",
    "part",
    "noted",
    "add",
    "apart",
    PROJECT_PARAMETER,
)
LONGEST_ID: Final = 300
ERROR_CONTEXT_CHARS: Final = 120  # characters of a query shown on either side of its error
AGES: Final = (("1h", "last hour"), ("24h", "24 h"), ("7d", "7 d"), ("30d", "30 d"))
FRAGMENTS: Final = ("overview",)
TIME_BOUNDS: Final = ("since", "until")
_FIELDS: Final = frozenset(name for entity in ENTITIES.values() for name in entity.fields)
_ADDRESS: Final = re.compile(r"https?://[^\"\\]+$", re.IGNORECASE)
# How errors of the query language end.
_MEANT: Final = re.compile(r"did you mean (?:is:)?“?([^”?]+)”?\?$")


@dataclass(frozen=True, slots=True)
class RedirectTo:
    """A redirect to another page."""

    url: str


@dataclass(slots=True)
class SearchPage:
    """Data of the search page. With a `fault` or a `refusal` nothing was searched."""

    text: str = ""
    before: int | None = None
    after: int | None = None
    with_facets: bool = False
    part: str = ""
    brushed: int = 0  # the number of the condition whose rows are compared with the others
    refusal: str = ""
    fault: QueryError | None = None
    asked: CompiledQuery | None = None
    answer: ResultPage | None = None
    rows: list[Any] = field(default_factory=list)
    count: int = 0
    more: bool = False
    took_ms: int = 0
    overview: Overview | None = None
    apart: DistinguishingValues | None = None
    drawing: "histogram.HistogramDrawing | None" = None
    kept: list[ExcludedRows] = field(default_factory=list)
    interpretation: str = ""
    groups: "list[GroupRow]" = field(default_factory=list)
    reader: Reader | None = None
    # By effect: where the searched words occur.
    snippets: dict[UUID, Snippet] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """Return the HTTP status of the page."""
        return 400 if self.fault or self.refusal else 200

    @property
    def place(self) -> PagePlace:
        """Return the query as links to other pages of the same results keep it."""
        filters = [("q", self.text)] if self.text else []
        return PagePlace(filters=[*filters, *([("facets", "1")] if self.with_facets else [])])

    @property
    def entity(self) -> str:
        """Return the entity that is searched, empty for a query that cannot be parsed."""
        return self.asked.entity.name if self.asked else ""

    @property
    def cut(self) -> JournalCut | None:
        """Return the moment that the query is as of; None for now."""
        return (
            self.asked.past.cut if self.asked is not None and self.asked.past is not None else None
        )

    @property
    def late(self) -> list[IndexProgress]:
        """Return the indexes that the results depend on and that have not read everything."""
        indexes = self.asked.context.indexes.values() if self.asked is not None else ()
        return [index for index in indexes if not index.complete]

    @property
    def asof(self) -> str:
        """Return the query string that shows the same moment on the pages of rows."""
        return f"?{urlencode({'asof': self.cut.text})}" if self.cut is not None else ""

    @property
    def present(self) -> str:
        """Return the same query as of now."""
        return edit.remove_asof(self.asked.query) if self.asked is not None else ""

    @property
    def day(self) -> str:
        """Return the day (UTC) on which all effects arrived, empty for several days."""
        return (
            common_day(row.effect.received_us for row in self.rows)
            if self.entity == "effect"
            else ""
        )

    @property
    def targets(self) -> bool:
        """Return True if an effect names a target and no snippets need the space."""
        effects = (
            [row.effect for row in self.rows]
            if self.entity == "effect" and not self.snippets
            else []
        )
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
    def meant(self) -> str:
        """Return the query with the suggested name, empty without a suggestion."""
        nearest = _MEANT.search(self.fault.sentence) if self.fault else None
        if self.fault is None or nearest is None:
            return ""
        at, end = self.fault.at, self.fault.at + self.fault.length
        return self.text[:at] + edit.quote_if_needed(nearest[1]) + self.text[end:]

    @property
    def wrong(self) -> tuple[str, str, str]:
        """Return the query before the error, the error, and the query after it.

        Long ends are cut.
        """
        assert self.fault is not None  # noqa: S101 - asked for only where there is one
        at, end = self.fault.at, self.fault.at + self.fault.length
        before, after = self.text[:at], self.text[end : end + ERROR_CONTEXT_CHARS]
        return (
            ("…" if len(before) > ERROR_CONTEXT_CHARS else "") + before[-ERROR_CONTEXT_CHARS:],
            self.text[at:end],
            after,
        )


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One row of a grouped result.

    (field, word) of keys, (figure, value, kind) of figures, and its link.
    """

    keys: list[tuple[str, str]]
    figures: list[tuple[str, Any, str]]
    url: str


def parse_search_request(query: QueryDict) -> "SearchPage | RedirectTo":
    """Parse a query string. Unknown parameter names are refused."""
    page = SearchPage(text=str(query.get("q", "")).strip(), with_facets=query.get("facets") == "1")
    page.part = str(query.get("part", "")) if query.get("part") in FRAGMENTS else ""
    number = str(query.get("apart", ""))
    page.brushed = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0
    refusal = _unknown_name(query)
    if refusal:
        page.refusal = refusal
        return page
    places: dict[str, int] = {}
    for name in ("before", "after"):
        if query.get(name):
            position = parse_position(str(query[name]))
            if position is None:
                page.refusal = f"“{name}” must be a journal position. Enter a number."
                return page
            places[name] = position
    page.before, page.after = places.get("before"), places.get("after")
    if query.get("add"):
        return RedirectTo(urls_of_rows.search_url(_add_condition(page.text, str(query["add"]))))
    return page


def _unknown_name(names: Iterable[str]) -> str:
    """Return an error about the first unknown name in `names`, or an empty string."""
    for name in names:
        if name not in PARAMETER_NAMES:
            close = difflib.get_close_matches(name.lower(), PARAMETER_NAMES, n=1, cutoff=0.5)
            hint = f"; did you mean “{close[0]}”?" if close else "."
            return f"There is no field “{name[:60]}”{hint}"
    return ""


def _add_condition(text: str, condition: str) -> str:
    """Return the text with one more condition.

    For all results if the text parses, else at its end.
    """
    try:
        return edit.add_condition(compiler.parse_query(text), condition)
    except QueryError:
        return f"{text} {condition}"


def find_identity_url(project: Project, text: str) -> str | None:
    """Return the address of an object if the query is only its id.

    Handle, UUID, digest or address.
    """
    # `reference:https://…` is a query; looking it up as every kind of id would take longer.
    is_address = "://" in text and text.partition(":")[0] not in _FIELDS
    shaped = (
        handles.parse_handle(text) or handles.parse_uuid(text) or jump.is_sha256(text) or is_address
    )
    if not shaped or len(text) > LONGEST_ID or "\0" in text or len(text.split()) > 1:
        return None
    matches = jump.find_by_any_id(project, text)
    if len(matches.hits) == 1:
        return matches.hits[0].url
    if matches.hits:
        return f"{reverse('go')}?{urlencode({'id': text})}"
    # An address that no effect has as a reference: search for text that contains it.
    return urls_of_rows.search_url(f'"{text}"') if _ADDRESS.match(text) else None


def run_search(page: SearchPage, project: Project, now_us: int) -> None:
    """Run the parsed query; a query that cannot be parsed becomes the page's fault."""
    started, page.reader = time.perf_counter(), Reader(project, now_us)
    try:
        page.asked = compiled = execute.compile_query(page.text, project, now_us)
    except QueryError as fault:
        page.fault = fault
        return
    page.reader.follow(compiled.context)
    if page.part:
        _add_overview(page, compiled)
        return
    by_id = _load_effects_by_id if page.entity == "effect" else None
    rows = _row_columns_of(compiled.entity.name)
    try:
        page.answer = answer = execute.load_results(
            compiled, rows, before=page.before, after=page.after, by_id=by_id
        )
    except QueryError as fault:  # too many changes during the search to rebuild the moment
        page.fault = fault
        return
    if answer.groups is not None:
        page.groups = _group_rows(compiled, answer.groups)
        page.count, page.more = len(page.groups), answer.groups.more
        page.took_ms = _elapsed_ms(started)
        _explain_no_results(page, compiled)
        return
    page.rows = list(to_effect_rows(answer.rows)) if page.entity == "effect" else answer.rows
    if page.entity == "session" and page.cut is None:  # heartbeats are not in the journal
        liveness.attach_liveness(page.rows)
    if page.entity == "exemption":
        exemption_uses.set_late_counts(project, page.rows, page.reader.upto)
    page.snippets = search_snippets.load_snippets(compiled, [row.pk for row in answer.rows])
    is_complete = (
        page.before is None
        and page.after is None
        and answer.older is None
        and answer.looked_back_to is None
    )
    page.count, page.more = (
        (len(page.rows), False) if is_complete else execute.count_matches(compiled)
    )
    page.took_ms = _elapsed_ms(started)
    if page.rows and (is_complete or page.with_facets):  # with few matches the cost is negligible
        _add_overview(page, compiled, [row.pk for row in answer.rows] if is_complete else None)
    if page.brushed and page.rows:
        page.apart = analysis.find_distinguishing_values(compiled, page.brushed)
    if is_complete:
        _explain_no_results(page, compiled)


def _explain_no_results(page: SearchPage, compiled: CompiledQuery) -> None:
    if page.count or compiled.query.condition is None:
        return
    page.interpretation, page.kept = (
        describe.describe_query(compiled.query),
        query_analysis.find_excluding_conditions(compiled),
    )


def _add_overview(page: SearchPage, compiled: CompiledQuery, ids: list[Any] | None = None) -> None:
    page.overview = facets.build_overview(compiled, ids)
    page.count, page.more = page.overview.count, page.overview.more
    page.drawing = histogram.draw_histogram(compiled, page.overview, page.with_facets)


def _elapsed_ms(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def time_ranges(compiled: CompiledQuery) -> list[tuple[str, str, bool]]:
    """Return times to narrow to: (word, query, whether it is current).

    Each only edits the text.
    """
    query, entity = compiled.query, compiled.entity
    always = edit.remove_time_conditions(query, entity)
    time_terms = [
        node
        for node in compiler.top_level_conditions(query)
        if isinstance(node, Term) and node.name in TIME_BOUNDS
    ]
    since = time_terms[0].values[0].text if len(time_terms) == 1 else ""
    timeless = always == query.text.strip()
    return [
        ("any time", always, timeless),
        *((word, edit.set_last_age(query, entity, age), since == age) for age, word in AGES),
    ]


def _group_rows(compiled: CompiledQuery, groups: Any) -> list[GroupRow]:
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
        rows.append(GroupRow(words, measured, urls_of_rows.search_url(text.text)))
    return rows


def _with_effect_columns(rows: "QuerySet[Any]") -> "QuerySet[Any]":
    return with_call_summaries(
        rows,
        session_position=F("session__opened_position"),
        agent_name=F("agent__name"),
        repository_name=F("repository__name"),
    )


def _load_effects_by_id(project: UUID, ids: list[Any]) -> list[Any]:
    return _compiled_effects_query(len(ids)).rows(
        project=project, **{f"id_{number}": effect_id for number, effect_id in enumerate(ids)}
    )


@lru_cache(maxsize=execute.PAGE_SIZE)
def _compiled_effects_query(number: int) -> CompiledQuerySet:
    """Return the compiled query of `number` effects as the page shows them."""

    def build(project: UUID, **ids: UUID) -> "QuerySet[Any]":
        return _with_effect_columns(
            Effect.objects.filter(project=project, pk__in=list(ids.values()))
        )

    return CompiledQuerySet(build, project=UUID, **{f"id_{index}": UUID for index in range(number)})


def _row_columns_of(entity: str) -> "Callable[[QuerySet[Any]], QuerySet[Any]]":
    """Return a function that adds the columns that the entity's table needs."""
    return _with_effect_columns if entity == "effect" else columns.prepare_rows(entity)
