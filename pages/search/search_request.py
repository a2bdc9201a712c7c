"""The request of the search page: its query string, parsed. Nothing is read from the database."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.http import QueryDict

from accounts.access import PROJECT_PARAMETER
from display import urls_of_rows
from display.handles import parse_position
from display.page_params import PagePlace, parse_number
from investigation.query import compiler, edit, result_columns
from investigation.query.entity_registry import ENTITIES
from investigation.query.parser import values
from investigation.query.parser.ast import Query, QueryError, QueryValue
from pages.search import query_builder

PARAMETER_NAMES: Final = (
    "q",
    "before",
    "after",
    "page",
    "facets",
    "part",
    "noted",
    "add",
    "apart",
    "cols",
    "col",
    "dense",
    "time",
    "from",
    "to",
    "by",
    *query_builder.PARAMETERS,
    PROJECT_PARAMETER,
)
FRAGMENTS: Final = ("overview",)
MAX_COLUMNS: Final = 24


@dataclass(frozen=True, slots=True)
class RedirectTo:
    """A redirect to another page."""

    url: str


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What a query string asks for. With a `refusal` or an `error`, there is no `query`."""

    text: str = ""
    query: Query | None = None
    error: QueryError | None = None
    refusal: str = ""
    before: int | None = None
    after: int | None = None
    with_facets: bool = False
    part: str = ""  # The fragment of the page that is requested; empty for the complete page.
    page: int = 1  # of effects in the order in which they ran
    compared: int = 0  # Number of the condition whose matches are compared with the others.

    columns: tuple[
        str, ...
    ] = ()  # Names of the columns that were chosen; empty for the usual ones.
    is_dense: bool = False
    shows_ran: bool = False  # Bars and rows show when an effect ran, not when it was first seen.

    @property
    def kept(self) -> dict[str, str]:
        """Return the parameters that every link to another query keeps."""
        kept = {"facets": "1"} if self.with_facets else {}
        kept |= {"cols": self._written_columns} if self.columns else {}
        kept |= {"dense": "1"} if self.is_dense else {}
        return kept | ({"time": "ran"} if self.shows_ran else {})

    @property
    def _written_columns(self) -> str:
        """Return the chosen columns as links name them: they, or all but the others if shorter."""
        chosen = ",".join(self.columns)
        if self.query is None:
            return chosen
        names = [column.name for column in result_columns.COLUMNS[self.query.entity]]
        others = ",".join(name for name in names if name not in self.columns)
        return f"-{others}" if others and len(others) < len(chosen) else chosen

    @property
    def place(self) -> PagePlace:
        """Return the query as links to other pages of the same results keep it."""
        filters = [("q", self.text)] if self.text else []
        return PagePlace(filters=[*filters, *self.kept.items()])


def parse_search_request(
    parameters: QueryDict, *, accepts_fragment: bool
) -> SearchRequest | RedirectTo:
    """Parse a query string. Unknown parameter names are refused."""
    text, with_facets = str(parameters.get("q", "")).strip(), parameters.get("facets") == "1"
    part = str(parameters.get("part", ""))
    part = part if accepts_fragment and part in FRAGMENTS else ""
    refusal = _unknown_name(parameters)
    places: dict[str, int] = {}
    for name in ("before", "after"):
        if parameters.get(name) and not refusal:
            position = parse_position(str(parameters[name]))
            if position is None:
                refusal = f"“{name}” must be a journal position. Enter a number."
            else:
                places[name] = position
    if refusal:
        return SearchRequest(text, refusal=refusal, with_facets=with_facets, part=part)
    query, error = _parse_text(text)
    view = SearchRequest(
        text,
        query,
        with_facets=with_facets,
        columns=_parse_columns(parameters, query),
        is_dense=parameters.get("dense") == "1",
        shows_ran=parameters.get("time") == "ran",
    )
    edited = _edit_text(text, parameters)
    if edited is not None or parameters.get("col"):
        return RedirectTo(urls_of_rows.build_search_url(edited or text, **view.kept))
    return SearchRequest(
        text,
        query,
        error,
        before=places.get("before"),
        after=places.get("after"),
        with_facets=with_facets,
        part=part,
        page=max(parse_number(str(parameters.get("page", "")), 3) or 1, 1),
        compared=parse_number(str(parameters.get("apart", "")), 3) or 0,
        columns=view.columns,
        is_dense=view.is_dense,
        shows_ran=view.shows_ran,
    )


def _parse_columns(parameters: QueryDict, query: Query | None) -> tuple[str, ...]:
    """Return the chosen columns: those of `cols` and `col`; `cols=-a,b` are all but a and b."""
    written = str(parameters.get("cols", ""))
    names = written.removeprefix("-").split(",")
    if written.startswith("-") and query is not None:
        columns = result_columns.COLUMNS[query.entity]
        names = [column.name for column in columns if column.name not in names]
    names = [name for name in [*names, *parameters.getlist("col")] if name.isidentifier()]
    return tuple(dict.fromkeys(names[:MAX_COLUMNS]))


def _edit_text(text: str, parameters: QueryDict) -> str | None:
    """Return the query that a form asks for: a condition, a range of dates or built rows."""
    if parameters.get("add"):
        return _add_condition(text, str(parameters["add"]))
    if "f" in parameters:
        return query_builder.compose_query(parameters)
    if parameters.get("from") or parameters.get("to"):
        try:
            since, until = str(parameters.get("from", "")), str(parameters.get("to", ""))
            return _set_range(text, since, until, str(parameters.get("by", "")))
        except QueryError:
            return None  # The query has an error, which the page shows.
    return None


def _set_range(text: str, since: str, until: str, by: str) -> str:
    """Replace the time range by dates, of which the last is included, or by microseconds.

    `by` is another field of time than the entity's, for a range of microseconds.
    """
    query = compiler.parse_query(text)
    entity = ENTITIES[query.entity]
    from_us, to_us = parse_number(since, 17), parse_number(until, 17)
    is_time = by in entity.fields and entity.fields[by].kind == "time"
    if is_time and from_us is not None and to_us is not None:
        return edit.set_time_range(query, entity, from_us, to_us, by)
    plain = compiler.parse_query(edit.remove_time_conditions(query, entity))
    bounds = []
    for name, value in (("since", since), ("until", until)):
        us = parse_number(value, 17)
        if value and us is None:
            moment = values.parse_time(QueryValue(value, 0), 0)
            us = moment.from_us if name == "since" else moment.to_us
        bounds += [f"{name}:{edit.format_moment(us)}"] if us is not None else []
    return edit.add_condition(plain, " ".join(bounds))


def _unknown_name(names: Iterable[str]) -> str:
    """Return an error about the first unknown name in `names`, or an empty string."""
    for name in names:
        if name not in PARAMETER_NAMES:
            close = difflib.get_close_matches(name.lower(), PARAMETER_NAMES, n=1, cutoff=0.5)
            hint = f"; did you mean “{close[0]}”?" if close else "."
            return f"There is no field “{name[:60]}”{hint}"
    return ""


def _add_condition(text: str, condition: str) -> str:
    """Add a condition, for all results if the text parses, else at its end."""
    try:
        return edit.add_condition(compiler.parse_query(text), condition)
    except QueryError:
        return f"{text} {condition}"


def _parse_text(text: str) -> tuple[Query | None, QueryError | None]:
    try:
        return compiler.parse_query(text), None
    except QueryError as error:
        return None, error
