"""The one table of pages for checks in a browser: every route of the URLconf, with examples.

`list_pages` fills the URLconf with the ids of tests/pages/route_examples.py. A new route with an
argument needs an example there; one that is no page of its own is named below. A test compares.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import httpx
from django.urls import URLPattern, URLResolver, get_resolver
from playwright.sync_api import Page

from investigation.query import result_columns
from tests.config.server import Server
from tests.pages.route_examples import IMPORTER, NEWCOMER, READER

WRITE: Final = """
import json
from tests.pages.route_examples import write_examples
print("examples: " + json.dumps(write_examples()))
"""
# The example of a route's argument, if it is not the one with the argument's name.
ARGUMENTS: Final = {
    "effect_chain": {"effect": "compensated"},
    "gate_history": {"gate": "decided"},
    "gate_confirm": {"gate": "drafted"},
    "imported_gate": {"gate": "imported_gate"},
    "remove_member_of_incident": {"member": "incident_member"},
    "resolve": {"effect": "lost"},
    "resolve_confirm": {"effect": "lost"},
    "session_bundle": {"session": "imported_session"},
}
# Who opens a page, if it is not the administrator of the sample project; "" is signed out.
PEOPLE: Final = {
    "imported_gate": IMPORTER,
    "invitations": NEWCOMER,
    "session_bundle": IMPORTER,
    "sign_in": "",
}
# The largest page: a query of usual length, as many columns as a table can have, and facets.
LARGEST_SEARCH: Final = (
    "q=since:90d+-state:superseded+NOT+tool:nothing.here+-agent:nobody-at-all&facets=1&cols="
    + ",".join(column.name for column in result_columns.COLUMNS["effect"])
)
# The queries of a page that needs one, or looks different with one. The first is its main state.
QUERIES: Final = {
    "case_file": ("session={session}",),
    "effect_chain": ("", "view=lanes"),
    "export": ("q=tool:git.push",),
    "gate_history": ("asof={position}",),
    "search_jump": ("", "id=e_99999999"),
    "home": ("", "view=table"),
    "inbox": ("", "open={gate}", "state=mine", "state=decided", "state=expired", "state=cancelled"),
    "incident": ("", "view=table"),
    "journal": ("", "at={position}"),
    "search": (
        "",
        *("q=effect+since:30d&facets=1", "q=session", "q=gate", "q=event", "q=exemption"),
        "q=99999999",  # no results of a word that is no ID
        LARGEST_SEARCH,
        *("q=since:30d+|+group+tool", "q=tool:nothing.here", "q=state:odd", "q=voucher"),
    ),
    "search_link": ("q=tool:git.push+since:7d",),
    "session": ("", "asof={position}"),
    "session_diff": ("", "all=1"),
    "session_timeline": (
        "",
        "view=lanes",
        "view=compact",
        "clocks=three",
        "state=unknown&live=off",
    ),
    "sessions": ("", "status=failed&text=none"),
    "stop": ("scope=session&subject={session}",),
    "stuck": ("", "mine=1"),
    "stuck_care": ("do=snooze", "do=assign"),
}
# A route once more, with other examples: "argument=example".
ALSO: Final = (
    *(("effect", "effect=lost"), ("effect", "effect=rejected"), ("effect", "effect=compensated")),
    *(("gate", "gate=decided"), ("gate", "gate=drafted"), ("session", "session=other")),
)
# Routes without a page of their own, and what a GET of them answers. A route that answers with 405,
# or with a file, is none either.
FRAGMENTS: Final = {"counts", "ended_requests", "search_complete"}
REDIRECTS: Final = {"gate_extend", "gate_undo", "gate_vote"}
# Pages that say what is wrong with the request, or, for `docs`, that nothing is built yet.
REFUSALS: Final = {"batch_confirm": 409, "docs": 404, "question": 422}
ONCE_BUILT: Final = {"docs"}  # leads to the documentation where `make run` has built it
NOWHERE: Final = ("not_found", "/nowhere/")


class PageRoute(NamedTuple):
    """A page: the name of its route, its URL, and who opens it."""

    name: str
    url: str
    person: str


@dataclass
class Tour:
    """The server with an example of everything, and the pages that show them."""

    server: Server
    cookies: dict[str, str]  # of the people who are signed in
    answers: dict[str, list[httpx.Response]]  # to a GET, by route
    pages: list[PageRoute]

    def sign_in(self, page: Page, person: str) -> None:
        """Let a browser be that person from now on; "" signs out."""
        page.context.clear_cookies()
        if person:
            cookie = {"name": "gatebook", "value": self.cookies[person], "url": self.server.url}
            page.context.add_cookies([cookie])  # type: ignore[list-item]

    def select_pages(self, *, is_main: bool) -> list[PageRoute]:
        """Return every page in its main state, or all further states."""
        main = {page.name: page for page in reversed(self.pages)}
        return [page for page in self.pages if (main[page.name] is page) is is_main]


def open_tour(server: Server) -> Tour:
    """Write the examples on a running server, and open every route."""
    examples = json.loads(server.run(WRITE).partition("examples: ")[2])
    cookies, ids = examples["cookies"], examples["ids"]
    answers: dict[str, list[httpx.Response]] = {}
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for name, route in list_patterns():
            headers = {"Cookie": f"gatebook={cookies.get(PEOPLE.get(name, READER), '')}"}
            urls = list_urls(name, route, ids)
            answers[name] = [client.get(url, headers=headers) for url in urls]
    shown = {name for name, (answer, *_) in answers.items() if is_page(name, answer)}
    return Tour(server, cookies, answers, list_pages(ids, shown))


def is_page(name: str, answer: httpx.Response) -> bool:
    """Tell whether a route answers a GET with a page of its own."""
    is_html = answer.headers.get("Content-Type", "").startswith("text/html")
    return is_html and answer.status_code not in (204, 302, 405) and name not in FRAGMENTS


def list_patterns(
    patterns: list[URLPattern | URLResolver] | None = None, before: str = "/"
) -> Iterator[tuple[str, str]]:
    """Yield the name and the route of every pattern of the pages' URLconf."""
    for pattern in get_resolver("config.urls").url_patterns if patterns is None else patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from list_patterns(pattern.url_patterns, route)
        else:
            yield pattern.name or route, route


def fill_route(name: str, route: str, ids: dict[str, str], **examples: str) -> str:
    """Return the URL of a route with the ids of its examples."""
    parts = route.split("<")
    for number, part in enumerate(parts[1:], 1):
        converter, _, rest = part.partition(">")
        argument = converter.rpartition(":")[2]
        example = {**ARGUMENTS.get(name, {}), **examples}.get(argument, argument)
        assert example in ids, f"{name}: write an example of {argument!r} in route_examples.py"
        parts[number] = ids[example] + rest
    return "".join(parts)


def list_pages(ids: dict[str, str], shown: Collection[str]) -> list[PageRoute]:
    """Return the pages of the routes `shown`, in each of their states."""
    routes = {name: route for name, route in list_patterns() if name in shown}
    pages = [
        PageRoute(name, url, PEOPLE.get(name, READER))
        for name in routes
        for url in list_urls(name, routes[name], ids)
    ]
    for name, example in ALSO:
        argument, _, value = example.partition("=")
        url = fill_route(name, routes[name], ids, **{argument: value})
        pages.append(PageRoute(name, url, READER))
    return [*pages, PageRoute(*NOWHERE, READER)]


def list_urls(name: str, route: str, ids: dict[str, str]) -> list[str]:
    """Return the URLs of a route, one for each of its queries."""
    url = fill_route(name, route, ids)
    return [f"{url}?{query.format(**ids)}" if query else url for query in QUERIES.get(name, ("",))]
