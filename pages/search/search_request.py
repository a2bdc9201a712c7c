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
from investigation.query import compiler, edit
from investigation.query.parser.ast import Query, QueryError

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
FRAGMENTS: Final = ("overview",)


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
    compared: int = 0  # Number of the condition whose matches are compared with the others.

    @property
    def place(self) -> PagePlace:
        """Return the query as links to other pages of the same results keep it."""
        filters = [("q", self.text)] if self.text else []
        return PagePlace(filters=[*filters, *([("facets", "1")] if self.with_facets else [])])


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
    if parameters.get("add"):
        text = _add_condition(text, str(parameters["add"]))
        return RedirectTo(urls_of_rows.build_search_url(text))
    query, error = _parse_text(text)
    return SearchRequest(
        text,
        query,
        error,
        before=places.get("before"),
        after=places.get("after"),
        with_facets=with_facets,
        part=part,
        compared=parse_number(str(parameters.get("apart", "")), 3) or 0,
    )


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
